"""The tool ``srd`` of the same installation: it has what the module does not have a second time."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sysconfig

from . import _native

__all__ = ["ToolError", "build", "path", "plot_library", "same_build"]

#: The distribution that has both.
_PACKAGE = "software-srd"


class ToolError(_native.SrdError):
    """The tool ``srd`` is missing, of another build than this module, or has failed."""


def build() -> str:
    """Version and commit of this module, as ``srd --version`` prints them."""
    return f"{_native.__version__} (commit {_native.__commit__ or 'unknown'})"


def same_build(other: str) -> None:
    """Requires that the caller of a job is of this worker's build: results may differ."""
    if other != build():
        raise ToolError(
            f"this worker has {_PACKAGE} {build()}, but the program that gave it the job has "
            f"{other}: install the same on all hosts"
        )


@functools.cache
def path() -> str:
    """The tool: of the package that this module belongs to, or beside ``python``, or in PATH."""
    scripts = pathlib.Path(sysconfig.get_path("scripts"), "srd")
    # Where `pip install --target` puts it, whose list of files is not true.
    target = pathlib.Path(__file__).parents[1] / "bin/srd"
    for found in (_of_package(), str(target), str(scripts), shutil.which("srd")):
        if found is not None and os.access(found, os.X_OK):
            return found
    raise ToolError(
        f"the tool `srd` is neither beside this module nor in PATH: `pip install {_PACKAGE}` "
        "installs both; or put the folder of a tool of the same version into PATH"
    )


def _of_package() -> str | None:
    """The tool that pip installed with this module."""
    try:
        package = importlib.metadata.distribution(_PACKAGE)
        here = pathlib.Path(__file__)
        if not here.samefile(str(package.locate_file(f"srd/{here.name}"))):
            return None
    except (importlib.metadata.PackageNotFoundError, OSError):
        return None
    for file in package.files or []:
        if file.name == "srd" and file.parent.name == "bin":
            return str(file.locate())
    return None


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the tool to its end, whatever its exit code is."""
    try:
        return subprocess.run(
            [path(), *arguments], capture_output=True, text=True, encoding="utf-8", check=False
        )
    except OSError as error:
        raise ToolError(f"cannot start {path()}: {error}") from None


def required(option: str, *arguments: str) -> str:
    """The output of a command that must succeed. ``option``: what a tool that is too old lacks."""
    done = run(*arguments)
    if done.returncode == 0:
        return done.stdout
    raise ToolError(
        f"`{path()} {' '.join(arguments)}` failed: {done.stderr.strip()}; if it does not know "
        f"{option}, it is older than this module ({build()}): install both by "
        f"`pip install {_PACKAGE}`"
    )


@functools.cache
def plot_library() -> str:
    """The JavaScript library that pages draw their plots with."""
    return required("plot-library", "lab", "plot-library")


@functools.cache
def of_this_build() -> None:
    """Requires a tool of this module's build."""
    said = required("--version", "--version").strip()
    if said != f"srd {build()}":
        raise ToolError(
            f"{path()} is {said}, but this module is {build()}: their results may differ; install "
            f"both by `pip install {_PACKAGE}`"
        )
