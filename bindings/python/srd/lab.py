"""The lab: experiments in a simulated data center.

    results = srd.lab.run("fig2", quick=True)
    print(results)                          # the table that `srd lab run` prints
    results.to_pandas()                     # one line per run
    results.plot("fig2.html")               # a page with tables and plots

Results follow from spec and seed alone: they do not depend on the machine, on the number of
threads, or on the engine that runs a sweep; ``Results.hash`` compares them. ``srd lab fields``
lists every field of a spec with its unit, and docs/lab.md explains the experiments.
"""

from __future__ import annotations

import csv as _csv
import hashlib
import importlib
import io
import json
import os
import pathlib
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from . import _jobs, _native, _progress, _tool
from ._native import SpecError, SrdError
from ._progress import Progress

__all__ = ["Results", "SweepFailed", "experiments", "run", "show", "sweep"]

#: Columns of text; those of axes, which begin with ``axis_``, too. All others are numbers.
_TEXTS = {"experiment", "case", "transport", "control", "hash", "series", "what"}


def experiments() -> list[str]:
    """Names of the experiments."""
    return _native.lab_experiments()


def show(name: str) -> str:
    """The spec of an experiment, as TOML, to start one's own from."""
    return _native.lab_spec(name)


class Results:
    """Finished runs: a sequence of one dict per run, in the order of cases and seeds.

    Names of columns end with their unit: ``fct_p99_us`` is the 99th percentile of completion times
    in microseconds. A value that a run does not have is ``None``.
    """

    def __init__(self, csv: str, name: str, command: str, runs: _native.Runs | None = None) -> None:
        self._csv, self.name, self.command, self._runs = csv, name, command, runs
        self.rows: list[dict[str, Any]] = _rows(csv)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __getitem__(self, at: int) -> dict[str, Any]:
        return self.rows[at]

    def __str__(self) -> str:
        return self.table

    def __repr__(self) -> str:
        return f"<srd.lab.Results of {len(self)} runs of {self.name}, hash {self.hash}>"

    def __reduce__(self) -> tuple[type[Results], tuple[str, str, str]]:
        return Results, (self._csv, self.name, self.command)

    @property
    def csv(self) -> str:
        """The runs as CSV, with all digits."""
        return self._csv

    @property
    def table(self) -> str:
        """One line per case: medians over seeds, and the worst seed for upper bounds."""
        return _native.lab_table(self._csv)

    @property
    def hash(self) -> str:
        """16 hexadecimal digits that are the same for the same results, whatever made them."""
        return hashlib.sha256(self._csv.encode()).hexdigest()[:16]

    def column(self, name: str) -> list[Any]:
        """The values of one column."""
        if self.rows and name not in self.rows[0]:
            raise SpecError(f"there is no column {name}; the columns are {', '.join(self.rows[0])}")
        return [row[name] for row in self.rows]

    def to_pandas(self) -> Any:
        """The runs as a ``pandas.DataFrame``."""
        return _module("pandas").DataFrame(self.rows)

    def to_arrow(self) -> Any:
        """The runs as a ``pyarrow.Table``."""
        return _module("pyarrow").Table.from_pylist(self.rows)

    def flows(self) -> list[dict[str, Any]]:
        """One dict per flow and round: ends, bytes, and times in microseconds."""
        return _rows(self._made_here().flows_csv())

    def series(self) -> list[dict[str, Any]]:
        """One dict per value over time, of runs with ``observe=True`` or a spec that measures.

        ``series`` is what was observed (``network``, ``flows``, a tier, a flow or a link), ``what``
        the quantity with its unit, and the value holds from ``start_us`` to ``end_us``."""
        found = _rows(self._made_here().series_csv())
        if not found:
            raise SpecError("these runs were not observed: srd.lab.run(..., observe=True)")
        return found

    def figures(self) -> list[str]:
        """The figures that the experiment declares, each as the text of an SVG."""
        return self._made_here().figures()

    def page(self) -> str:
        """A page in HTML with tables and plots, which needs no network.

        Plots of single runs are drawn by a JavaScript library, which the tool ``srd`` of the same
        package supplies."""
        if self._runs is None:
            return _native.lab_rows_page(self._csv, self.name, self.command)
        return self._runs.page(self.command, _tool.plot_library())

    def plot(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Writes ``page()`` to a file and returns its path."""
        file = pathlib.Path(path)
        file.write_text(self.page(), encoding="utf-8")
        return file

    def _repr_html_(self) -> str:
        drawn = "".join(self.figures()) if self._runs is not None else ""
        text = self.table.replace("&", "&amp;").replace("<", "&lt;")
        return f"<pre>{text}</pre>{drawn}"

    def _made_here(self) -> _native.Runs:
        if self._runs is None:
            raise SpecError(
                "these runs are known by their summaries only (a sweep, or pickled ones): "
                "srd.lab.run gives flows and figures"
            )
        return self._runs


def run(
    spec: str | os.PathLike[str],
    *,
    quick: bool = False,
    case: str | None = None,
    set: Mapping[str, Any] | None = None,
    sweep: Mapping[str, Iterable[Any]] | None = None,
    seeds: int | str | None = None,
    threads: int | None = None,
    observe: bool = False,
    progress: Progress = None,
) -> Results:
    """Runs an experiment in this process.

    spec: name of an experiment, or a spec file.
    quick: the reduced set, with fewer seeds and without slow cases.
    case: only cases whose names contain this text.
    set: fields to change in every case, for example ``{"engine.paths": 16}``.
    sweep: fields with several values each, for example ``{"engine.paths": [16, 64]}``.
    seeds: number of seeds per case, or a range such as ``"101..200"``; as in the spec unless given.
    threads: runs at a time; one per processor unless given. Results do not depend on it.
    observe: record series over time, for ``page()``.
    progress: called with the number of finished runs and of all; ``True``: a bar on standard
        error, ``False``: none; a bar in terminals and notebooks unless given.
    """
    options = _options(spec, quick, case, set, sweep)
    with _progress.shown(progress, "runs") as told:
        runs = _native.lab_run(
            os.fspath(spec),
            **options,
            seeds=_seeds(seeds),
            threads=_threads(threads),
            observe=observe,
            progress=told,
        )
    return Results(runs.csv(), pathlib.Path(spec).stem, _command([spec], options, seeds), runs)


class SweepFailed(SrdError):
    """Some runs of a sweep failed; ``results`` has the others, and ``errors`` why, by run."""

    def __init__(self, results: Results, errors: dict[str, BaseException]) -> None:
        first = next(iter(errors.items()))
        super().__init__(
            f"{len(errors)} runs of the sweep failed, the first is {first[0]}: {first[1]}; "
            f"{len(results)} results are kept"
        )
        self.results, self.errors = results, errors


def sweep(
    specs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    executor: Any = None,
    keep: str | os.PathLike[str] | None = None,
    quick: bool = False,
    case: str | None = None,
    set: Mapping[str, Any] | None = None,
    sweep: Mapping[str, Iterable[Any]] | None = None,
    seeds: int | str | None = None,
    progress: Progress = None,
) -> Results:
    """Runs experiments on any executor of ``concurrent.futures``, one run a job.

    executor: a process pool of this machine unless given; or Dask's ``Client.get_executor()``,
        ``mpi4py.futures.MPIPoolExecutor()``, or any other. Its workers need this package. A
        callable that makes one is called again when a pool breaks because a worker was killed; the
        runs that it had are run again.
    keep: a file to which each finished run is appended. A sweep that was stopped goes on from it;
        runs of other experiments, options or builds in it are ignored.
    progress: as in ``run``.

    The other options are those of ``run``. The rows, and their hash, are the same on every
    executor.
    """
    names = [specs] if isinstance(specs, (str, os.PathLike)) else list(specs)
    arguments: dict[str, tuple[Any, ...]] = {}
    labels: dict[str, str] = {}
    for spec in names:
        options = _options(spec, quick, case, set, sweep)
        for at, label, seed in _native.lab_jobs(os.fspath(spec), **options, seeds=_seeds(seeds)):
            key = _jobs.digest([_text_of(spec), options, at, seed])
            labels[key] = f"{spec}, case {label!r}, seed {seed}"
            arguments[key] = (os.fspath(spec), at, seed, options, _tool.build())

    with _progress.shown(progress, "runs") as told:

        def ended(key: str) -> None:
            if told is not None:
                told(len(jobs.done), len(arguments))

        jobs = _jobs.Jobs(
            _job,
            arguments,
            labels,
            executor=executor,
            keep=keep,
            writer="srd.lab.sweep",
            progress=ended,
        )
        errors = jobs.run()
    name = "sweep" if len(names) > 1 else pathlib.Path(names[0]).stem
    options = _options(names[0], quick, case, set, sweep)
    # Runs of one case together: their groups of flows are cases of their own behind it.
    cases: dict[tuple[str, int], list[str]] = {}
    for key, (spec, at, *_) in arguments.items():
        if key in jobs.done:
            cases.setdefault((spec, at), []).append(jobs.done[key])
    results = Results(_native.lab_join(list(cases.values())), name, _command(names, options, seeds))
    if errors:
        raise SweepFailed(results, errors)
    return results


def _job(spec: str, at: int, seed: int, options: dict[str, Any], made_by: str) -> str:
    _tool.same_build(made_by)
    return _native.lab_job(spec, at, seed, **options)


def _rows(csv: str) -> list[dict[str, Any]]:
    return [
        {column: _value(column, cell) for column, cell in row.items()}
        for row in _csv.DictReader(io.StringIO(csv))
    ]


def _value(column: str, cell: str) -> Any:
    if column in _TEXTS or column.startswith("axis_"):
        return cell
    if cell == "":
        return None
    return int(cell) if cell.lstrip("-").isdigit() else float(cell)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    raise SpecError(
        f"{value!r} is no value of a spec: give a number, a text, a bool or a list of them"
    )


def _options(
    spec: str | os.PathLike[str],
    quick: bool,
    case: str | None,
    set: Mapping[str, Any] | None,
    sweep: Mapping[str, Iterable[Any]] | None,
) -> dict[str, Any]:
    if not isinstance(spec, (str, os.PathLike)):
        raise SpecError(f"{spec!r} is no experiment: give a name of experiments(), or a spec file")
    return {
        "quick": bool(quick),
        "case": case,
        "set": [f"{field}={_toml(value)}" for field, value in (set or {}).items()],
        "sweep": [
            f"{field}={','.join(map(_toml, values))}" for field, values in (sweep or {}).items()
        ],
    }


def _seeds(seeds: int | str | None) -> str | None:
    return None if seeds is None else str(seeds)


def _threads(threads: int | None) -> int | None:
    if threads is not None and threads < 1:
        raise SpecError(f"threads={threads}: give 1 or more, or leave it out")
    return threads


def _text_of(spec: str | os.PathLike[str]) -> str:
    """The spec's content, so that kept runs of a changed file are not taken."""
    name = os.fspath(spec)
    return show(name) if name in experiments() else pathlib.Path(name).read_text(encoding="utf-8")


def _command(specs: Iterable[Any], options: dict[str, Any], seeds: int | str | None) -> str:
    """The command line of the tool that gives the same results."""
    words = ["srd", "lab", "run", *map(os.fspath, specs)]
    words += ["--quick"] if options["quick"] else []
    words += ["--case", options["case"]] if options["case"] is not None else []
    for option in ("set", "sweep"):
        for text in options[option]:
            words += [f"--{option}", text]
    words += ["--seeds", str(seeds)] if seeds is not None else []
    return shlex.join(words)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise SpecError(f"{name} is not installed: pip install {name}") from None
