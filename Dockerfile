# An image with the tool `srd` and the drop-in libraries: docs/install.md says how to use it.
#     docker build -t software-srd:0.1.0 --build-arg SRD_COMMIT=$(git rev-parse HEAD) .
# BUILDER has rustup, a C compiler and dpkg; its C library is not newer than that of BASE.
ARG BUILDER=docker.io/library/rust:1-bookworm
ARG BASE=docker.io/library/debian:bookworm-slim

FROM ${BUILDER} AS build
# The context has no git repository; `srd --version` says this commit.
ARG SRD_COMMIT=
WORKDIR /src
COPY . .
RUN ./x deb

FROM ${BASE}
# What the package needs, libc6 and libgcc-s1, is in the base.
RUN --mount=type=bind,from=build,source=/src/target/package,target=/deb \
    dpkg --install /deb/software-srd_*.deb
CMD ["srd", "--help"]
