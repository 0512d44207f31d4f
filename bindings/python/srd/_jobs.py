"""Jobs on executors of ``concurrent.futures``: kept in a file, and run again if a worker died."""

from __future__ import annotations

import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from . import _native
from ._native import SpecError
from ._tool import build

__all__ = ["Jobs", "digest"]

#: A job whose worker died is given to others this often.
_TRIES = 3


def digest(job: list[Any]) -> str:
    """The key of a job's result: another build may give another one, even of the same commit."""
    key = json.dumps([build(), _library(), *job], sort_keys=True)
    return hashlib.sha256(key.encode()).hexdigest()


@functools.cache
def _library() -> str:
    """Hash of the engine's code: a commit does not tell of changes that are not committed."""
    return hashlib.sha256(pathlib.Path(_native.__file__).read_bytes()).hexdigest()


class Jobs:
    """Jobs by the keys of their results, each with a name for errors and its arguments."""

    def __init__(
        self,
        job: Callable[..., str],
        arguments: dict[str, tuple[Any, ...]],
        names: dict[str, str],
        *,
        executor: Any,
        keep: str | os.PathLike[str] | None,
        writer: str,
        progress: Callable[[str], object],
    ) -> None:
        """``job``: a function that a worker can import, and whose result is a text.
        ``writer``: the function that writes ``keep``, for errors.
        ``progress``: called with the key of each new result."""
        self._job, self._arguments, self._names = job, arguments, names
        self._executor, self._keep, self._progress = executor, keep, progress
        #: Results by key; those that are kept from before, too.
        self.done = {key: text for key, text in _kept(keep, writer).items() if key in arguments}
        self._errors: dict[str, BaseException] = {}

    def run(self) -> dict[str, BaseException]:
        """Runs what is not done. The jobs that failed, by name, and why."""
        executor = self._executor
        make = executor if executor is None or callable(executor) else None
        for attempt in range(_TRIES):
            ended = {**self.done, **self._errors}
            left = [key for key in self._arguments if key not in ended]
            if not left:
                break
            pool = executor if make is None and executor is not None else (make or _pool)()
            try:
                killed = self._round(pool, left)
            finally:
                if pool is not executor:
                    pool.shutdown(wait=True, cancel_futures=True)
            if pool is executor or attempt + 1 == _TRIES:
                self._errors.update(killed)
            if not killed:
                break
        return {self._names[key]: error for key, error in self._errors.items()}

    def _round(self, pool: Any, left: Iterable[str]) -> dict[str, BaseException]:
        """Runs jobs once; returns those whose workers died."""
        killed: dict[str, BaseException] = {}
        futures: dict[Any, str] = {}
        for key in left:
            try:
                futures[pool.submit(self._job, *self._arguments[key])] = key
            except concurrent.futures.BrokenExecutor as error:
                killed[key] = error
        for future in _as_completed(futures):
            key = futures[future]
            try:
                text = future.result()
            except (concurrent.futures.BrokenExecutor, concurrent.futures.CancelledError) as error:
                killed[key] = error
                continue
            except Exception as error:
                self._errors[key] = error
                continue
            self.done[key] = text
            if self._keep is not None:
                _append(self._keep, json.dumps({"run": key, "result": text}))
            self._progress(key)
        return killed


def _pool() -> concurrent.futures.Executor:
    return concurrent.futures.ProcessPoolExecutor()


def _as_completed(futures: Iterable[Any]) -> Iterator[Any]:
    """Futures of any executor in the order in which they end, as far as that is known."""
    known = list(futures)
    if all(isinstance(future, concurrent.futures.Future) for future in known):
        yield from concurrent.futures.as_completed(known)
    else:
        yield from known


def _kept(keep: str | os.PathLike[str] | None, writer: str) -> dict[str, str]:
    """Results of earlier calls. A last line that was cut is not read."""
    found: dict[str, str] = {}
    if keep is None:
        return found
    place = pathlib.Path(keep)
    try:
        # A device may have no end, and a pipe nobody who opens its other side.
        if place.exists() and not place.is_file():
            raise SpecError(
                f"results cannot be kept in {os.fspath(keep)}: it is no regular file; name a "
                "file, which need not exist yet"
            )
        # Before the first job, not after it: whether results can be appended.
        with open(keep, "ab"):
            pass
        lines = place.read_bytes().splitlines(keepends=True)
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                found[entry["run"]] = entry["result"]
            except (ValueError, KeyError, TypeError):
                # Of a last line that was cut there is the beginning. Nothing else is removed.
                begin = b'{"run": "'
                if line.endswith(b"\n") or line[: len(begin)] != begin[: len(line)]:
                    raise SpecError(
                        f"{os.fspath(keep)}, line {number}: not written by {writer}; "
                        "name another file"
                    ) from None
        if lines and not lines[-1].endswith(b"\n"):
            _end_line(keep)
    except OSError as error:
        raise SpecError(
            f"results cannot be kept in {os.fspath(keep)}: {error.strerror}; name a file that "
            "can be written"
        ) from None
    return found


def _append(keep: str | os.PathLike[str], line: str) -> None:
    try:
        with open(keep, "a", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError as error:
        raise SpecError(
            f"a result cannot be appended to {os.fspath(keep)}: {error.strerror}; make room and "
            "call again: what is in the file is not run again"
        ) from None


def _end_line(keep: str | os.PathLike[str]) -> None:
    """Removes a last line that was cut, so that the next one begins a line."""
    with open(keep, "rb+") as file:
        text = file.read()
        file.truncate(text.rfind(b"\n") + 1)
