"""The fault checker: worlds from seeds, on any number of machines.

    report = srd.check.seeds(1_000_000, 10_000)
    print(report)                           # what was run, and every broken promise
    assert report.ok

Each seed makes a simulated network with hosts, requests and random faults, in which every promise
of docs/reliability.md must hold. The tool of the same package runs them (``srd check``), in
processes of its own: a world that crashes or never ends is a failure of its seed, and ends nothing
else. Reports do not depend on the machine or on the engine that runs the seeds; ``Report.hash``
compares them.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import re
import signal
from typing import Any

from . import _jobs, _progress, _tool
from ._native import SpecError, SrdError
from ._progress import Progress

__all__ = ["Failure", "Report", "SeedsFailed", "seeds"]

#: Seeds are numbers of 64 bits.
_SEEDS_END = 1 << 64
#: Signals by which a program ends because of an error of its own.
_CRASHES = {signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
#: What the tool says of a world that does not end, before it ends itself.
_LOOP = re.compile(r"^seed (\d+) failed: Loop: (.*)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Failure:
    """A world in which a promise was broken."""

    #: The seed that makes the world again.
    seed: int
    #: Its classes of faults, for example ``("Loss", "Restart")``.
    classes: tuple[str, ...]
    #: The oracle that noticed; ``Loop`` if the world did not end, ``Crash`` if its program died.
    oracle: str
    #: What it saw.
    what: str

    @property
    def command(self) -> str:
        """The command that shows what happens in the world."""
        return f"srd check --seed {self.seed} --trace"

    def __str__(self) -> str:
        classes = " ".join(self.classes) or "none"
        return f"seed {self.seed} ({classes}): {self.oracle}: {self.what[:300]}"


@dataclasses.dataclass(frozen=True)
class Report:
    """What the worlds of a range of seeds have shown."""

    #: First seed.
    first: int
    #: Worlds that were run; with ``with_class`` fewer than seeds.
    seeds: int
    #: Worlds that were run twice, to compare both runs.
    replays: int
    #: 16 hexadecimal digits that are the same for the same worlds, whatever ran them.
    hash: str
    #: Sums over all worlds: packets, requests, retransmitted, lost and others.
    counters: dict[str, int]
    #: Worlds by class of faults.
    worlds: dict[str, int]
    #: Broken promises, in the order of seeds.
    failures: list[Failure]

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return not self.failures

    def __str__(self) -> str:
        head = (
            f"{self.seeds} worlds from seed {self.first} on ({self.replays} of them twice), "
            f"{self.counters.get('packets', 0)} packets, hash {self.hash}: "
            f"{len(self.failures)} failed"
        )
        look = [f"look at the first with: {self.failures[0].command}"] if self.failures else []
        return "\n".join([head, *map(str, self.failures), *look])


class SeedsFailed(SrdError):
    """Some seeds could not be run; ``report`` has the others, and ``errors`` why, by range."""

    def __init__(self, report: Report, errors: dict[str, BaseException]) -> None:
        first = next(iter(errors.items()))
        super().__init__(
            f"{len(errors)} jobs could not be run, the first is {first[0]}: {first[1]}; "
            f"the report has {report.seeds} worlds"
        )
        self.report, self.errors = report, errors


def seeds(
    first: int,
    count: int,
    *,
    executor: Any = None,
    keep: str | os.PathLike[str] | None = None,
    batch: int = 100,
    with_class: str | None = None,
    progress: Progress = None,
) -> Report:
    """Checks the worlds of ``count`` seeds from ``first`` on, on any executor of
    ``concurrent.futures``.

    executor, keep, progress: as in ``srd.lab.sweep``, with progress in seeds. Workers need this
        package with its tool.
    batch: seeds of one job. One world in twenty is run twice, the first of each job among them.
    with_class: only worlds with this class of faults, for example ``"Restart"``.

    Broken promises are not errors of this function: they are ``failures`` of the report.
    """
    for name, value, least in [("first", first, 0), ("count", count, 1), ("batch", batch, 1)]:
        if not isinstance(value, int) or value < least:
            raise SpecError(f"{name}={value!r}: give a whole number of {least} or more")
    if first + count > _SEEDS_END:
        raise SpecError(f"first + count = {first + count}: seeds are below 2**64")
    _tool.of_this_build()
    arguments: dict[str, tuple[Any, ...]] = {}
    for at in range(first, first + count, batch):
        job = (at, min(batch, first + count - at), with_class)
        arguments[_jobs.digest(["check", *job])] = (*job, _tool.build())

    names = {key: f"seeds {at} to {at + n - 1}" for key, (at, n, *_) in arguments.items()}
    done = 0
    with _progress.shown(progress, "seeds") as told:

        def ended(key: str) -> None:
            nonlocal done
            done += arguments[key][1]
            if told is not None:
                told(done, count)

        jobs = _jobs.Jobs(
            _job,
            arguments,
            names,
            executor=executor,
            keep=keep,
            writer="srd.check.seeds",
            progress=ended,
        )
        done = sum(arguments[key][1] for key in jobs.done)
        errors = jobs.run()
    texts = (json.loads(jobs.done[key]) for key in arguments if key in jobs.done)
    report = _report(first, _sum(texts))
    if errors:
        raise SeedsFailed(report, errors)
    return report


def _job(first: int, count: int, with_class: str | None, made_by: str) -> str:
    _tool.same_build(made_by)
    _tool.of_this_build()
    return json.dumps(_checked(first, count, with_class))


def _checked(first: int, count: int, with_class: str | None) -> dict[str, Any]:
    """What the tool says of seeds; those whose worlds end the tool itself are told apart."""
    if count == 0:
        return _nothing()
    line = ["check", "--json", "--threads", "1", "--first", str(first), "--seeds", str(count)]
    done = _tool.run(*line, *(["--with", with_class] if with_class is not None else []))
    loop = _LOOP.search(done.stderr)
    if loop is not None and not done.stdout:
        seed = int(loop[1])
        before = _checked(first, seed - first, with_class)
        after = _checked(seed + 1, first + count - seed - 1, with_class)
        return _sum([before, _failed(seed, "Loop", loop[2]), after])
    if -done.returncode in _CRASHES:
        if count == 1:
            by = signal.Signals(-done.returncode).name
            return _failed(first, "Crash", f"the program died by {by}: {done.stderr.strip()}")
        half = count // 2
        parts = [(first, half), (first + half, count - half)]
        return _sum(_checked(at, n, with_class) for at, n in parts)
    if done.returncode == 2:
        raise SpecError(done.stderr.strip())
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        found = {}
    # A signal to stop makes the tool end early, with a summary of what it has done.
    if done.returncode not in (0, 1) or found.get("end") != (first + count) % _SEEDS_END:
        raise _tool.ToolError(
            f"`{_tool.path()} {' '.join(line)}` was stopped (exit code {done.returncode}): "
            f"{done.stderr.strip()}"
        )
    return found


def _nothing() -> dict[str, Any]:
    return {"seeds": 0, "replays": 0, "hash": "0", "counters": {}, "worlds": {}, "failures": []}


def _failed(seed: int, oracle: str, what: str) -> dict[str, Any]:
    failure = {"seed": seed, "classes": "none", "oracle": oracle, "what": what}
    return {**_nothing(), "seeds": 1, "failures": [failure]}


def _sum(parts: Any) -> dict[str, Any]:
    """Reports of several ranges as one."""
    total = _nothing()
    counters: collections.Counter[str] = collections.Counter()
    worlds: collections.Counter[str] = collections.Counter()
    for part in parts:
        total["seeds"] += part["seeds"]
        total["replays"] += part["replays"]
        total["hash"] = f"{(int(total['hash'], 16) + int(part['hash'], 16)) % _SEEDS_END:016x}"
        counters.update(part["counters"])
        worlds.update(part["worlds"])
        total["failures"] += part["failures"]
    return {**total, "counters": dict(counters), "worlds": dict(worlds)}


def _report(first: int, total: dict[str, Any]) -> Report:
    def classes(text: str) -> tuple[str, ...]:
        return () if text == "none" else tuple(text.split())

    failures = [Failure(**{**f, "classes": classes(f["classes"])}) for f in total["failures"]]
    failures.sort(key=lambda failure: failure.seed)
    return Report(
        first,
        total["seeds"],
        total["replays"],
        total["hash"],
        total["counters"],
        total["worlds"],
        failures,
    )
