#!/usr/bin/env bash
# Usage: fuzz/run.sh SECONDS [TARGET] [--if-available]
#
# Fuzzes TARGET (default: wire_parse) for SECONDS with the address sanitizer, which needs a nightly
# toolchain; cargo-fuzz is not needed. (`cargo xtask fuzz` is the gate's run: the same with a
# nightly toolchain, or the pinned stable one without the sanitizer if there is none.) Starts from
# fuzz/seeds/TARGET and from what earlier runs have found in fuzz/corpus/TARGET. An input that
# fails is kept in fuzz/artifacts/TARGET.
#
# --if-available: where a tool is missing, say so and end with 0 instead of 1.
set -euo pipefail

usage() {
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0" | head -1 >&2
    exit 2
}

seconds='' target='' missing_status=1
for word in "$@"; do
    case "$word" in
        --if-available) missing_status=0 ;;
        -*) echo "fuzz: unknown option $word" >&2 && usage ;;
        *) if [ -z "$seconds" ]; then seconds=$word
           elif [ -z "$target" ]; then target=$word
           else usage; fi ;;
    esac
done
target=${target:-wire_parse}
if ! [[ "$seconds" =~ ^[1-9][0-9]*$ ]]; then
    echo "fuzz: SECONDS must be a whole number above 0" >&2
    usage
fi
cd "$(dirname "$0")/.."
if [ ! -f "fuzz/fuzz_targets/$target.rs" ]; then
    echo "fuzz: no target '$target'; there are: $(cd fuzz/fuzz_targets && ls ./*.rs |
        sed 's|^\./||; s|\.rs$||' | tr '\n' ' ')" >&2
    exit 2
fi

missing() {
    echo "fuzz: $1 is missing. Install it with:" >&2
    echo "    $2" >&2
    if [ "$missing_status" = 0 ]; then echo "fuzz: skipped" >&2; fi
    exit "$missing_status"
}
command -v cargo >/dev/null ||
    missing "Rust" "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
cargo +nightly --version >/dev/null 2>&1 ||
    missing "the nightly toolchain" "rustup toolchain install nightly --profile minimal"
# libFuzzer itself is C++.
command -v c++ >/dev/null || missing "a C++ compiler" "apt-get install g++"

host=$(rustc +nightly -vV | sed -n 's/^host: //p')
build="${CARGO_TARGET_DIR:-target}/fuzz-asan"
# What cargo-fuzz passes, too. The explicit --target keeps build scripts uninstrumented.
RUSTFLAGS="--cfg fuzzing -Zsanitizer=address -Cdebug-assertions -Coverflow-checks \
-Ccodegen-units=1 -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares" \
    cargo +nightly build --quiet --release --locked --manifest-path fuzz/Cargo.toml \
    --bin "$target" --target "$host" --target-dir "$build"

mkdir -p "fuzz/corpus/$target" "fuzz/artifacts/$target"
folders=("fuzz/corpus/$target")
if [ -d "fuzz/seeds/$target" ]; then folders+=("fuzz/seeds/$target"); fi
status=0
"$build/$host/release/$target" "${folders[@]}" -max_total_time="$seconds" -timeout=5 \
    -rss_limit_mb=1024 -artifact_prefix="fuzz/artifacts/$target/" -print_final_stats=1 \
    -verbosity=1 || status=$?
if [ "$status" != 0 ]; then
    echo "fuzz: $target failed; the input lies in fuzz/artifacts/$target. Once more with:" >&2
    echo "    $build/$host/release/$target fuzz/artifacts/$target/FILE" >&2
fi
exit "$status"
