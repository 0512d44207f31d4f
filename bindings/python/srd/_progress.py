"""Progress of many runs: a bar, or a function of the caller's."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

__all__ = ["Progress", "shown"]

#: How progress is told: a function of what is done and of all, or whether there is a bar; ``None``:
#: a bar where somebody looks.
Progress = Callable[[int, int], object] | bool | None

_COLUMNS = 30
_SECONDS_BETWEEN = 0.1


@contextlib.contextmanager
def shown(progress: Progress, unit: str) -> Iterator[Callable[[int, int], object] | None]:
    """What is to be called with the number of what is done and of all, which are ``unit``."""
    if callable(progress):
        yield progress
        return
    if progress is False or (progress is None and not _is_looked_at()):
        yield None
        return
    bar = _bar(unit)
    try:
        yield bar.told
    finally:
        bar.close()


def _is_looked_at() -> bool:
    """Whether standard error is a terminal, or this is a notebook."""
    kernel = sys.modules.get("ipykernel.kernelapp")
    return kernel is not None or bool(sys.stderr and sys.stderr.isatty())


def _bar(unit: str) -> _Tqdm | _Line:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Line(unit, sys.stderr)
    return _Tqdm(tqdm(unit=f" {unit}", leave=False))


class _Tqdm:
    """tqdm's bar, in terminals and notebooks."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar

    def told(self, done: int, of: int) -> None:
        self._bar.total = of
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        self._bar.close()


class _Line:
    """A line that is written again and again, where tqdm is not installed."""

    def __init__(self, unit: str, out: TextIO) -> None:
        self._unit, self._out = unit, out
        self._began = time.monotonic()
        self._written = -_SECONDS_BETWEEN

    def told(self, done: int, of: int) -> None:
        now = time.monotonic()
        if done < of and now - self._written < _SECONDS_BETWEEN:
            return
        self._written = now
        full = _COLUMNS * done // max(of, 1)
        left = (now - self._began) * (of - done) / max(done, 1)
        bar = "=" * full + " " * (_COLUMNS - full)
        self._out.write(f"\r[{bar}] {done} of {of} {self._unit}, {left:.0f} s left ")
        self._out.flush()

    def close(self) -> None:
        if self._written >= 0:
            self._out.write("\n")
            self._out.flush()
