"""The lab in Python: results, errors, sweeps on executors."""

import concurrent.futures
import contextlib
import io
import os
import pathlib
import pickle
import sys
import tempfile
import unittest
from unittest import mock

import executors
import srd
from srd import lab

#: Small runs: two hosts.
SMALL = {"quick": True, "seeds": 2, "threads": 1}


def _smallest() -> str:
    return str(pathlib.Path(__file__).with_name("small.toml"))


def _killed_once(*job):
    """A job whose worker is killed the first time."""
    executors.die_once()
    return JOB(*job)


def _fails_for_seed_2(spec, at, seed, *more):
    if seed == 2:
        raise OSError("no memory")
    return JOB(spec, at, seed, *more)


JOB = lab._job


class Lab(unittest.TestCase):
    def test_runs_are_rows_with_numbers(self):
        results = lab.run(_smallest(), **SMALL)
        self.assertEqual(len(results), 4)
        row = results[0]
        self.assertEqual((row["experiment"], row["case"], row["seed"]), ("small", "two paths", 1))
        self.assertGreater(row["fct_max_us"], row["floor_us"])
        self.assertEqual(results.column("unfinished"), [0] * 4)
        self.assertIn("two paths", results.table)
        self.assertIn("two paths", results._repr_html_())
        self.assertEqual(len(results.flows()), 4 * 2)
        with self.assertRaisesRegex(srd.SpecError, "observe=True"):
            results.series()
        seen = lab.run(_smallest(), **SMALL, observe=True)
        self.assertEqual(seen.hash, results.hash)
        jain = [v["value"] for v in seen.series() if (v["series"], v["what"]) == ("flows", "jain")]
        # Two flows, of which at first none has sent anything.
        self.assertEqual((min(jain), max(jain)), (0, 1))
        with self.assertRaisesRegex(
            srd.SpecError, "there is no column fct; the columns are experiment"
        ):
            results.column("fct")

    def test_results_do_not_depend_on_threads_and_travel(self):
        one = lab.run(_smallest(), **SMALL)
        two = lab.run(_smallest(), **{**SMALL, "threads": 2})
        self.assertEqual(one.hash, two.hash)
        other = lab.run(_smallest(), **{**SMALL, "seeds": "3..4"})
        self.assertNotEqual(one.hash, other.hash)
        copy = pickle.loads(pickle.dumps(one))
        self.assertEqual((copy.rows, copy.hash, copy.table), (one.rows, one.hash, one.table))
        with self.assertRaisesRegex(srd.SpecError, "srd.lab.run gives flows"):
            copy.flows()

    def test_a_plot_is_a_page(self):
        results = lab.run(_smallest(), **SMALL)
        with tempfile.TemporaryDirectory() as folder:
            page = results.plot(pathlib.Path(folder, "page.html")).read_text()
        self.assertIn("plotly", page.lower())
        self.assertIn("two paths", page)

    def test_fields_are_set_and_swept(self):
        results = lab.run(
            _smallest(),
            **SMALL,
            case="two",
            set={"workload.bytes": 20_000},
            sweep={"engine.paths": [2, 4]},
        )
        self.assertEqual(results.column("value_paths"), [2, 2, 4, 4])
        self.assertEqual(results.command.split()[:4], ["srd", "lab", "run", _smallest()])
        self.assertIn("--set workload.bytes=20000 --sweep engine.paths=2,4", results.command)

    def test_errors_name_the_fix(self):
        for wrong, text in [
            ({"spec": "fig99"}, "the experiments are"),
            ({"spec": "guards"}, "srd lab run guards"),
            ({"spec": 7}, "give a name of experiments"),
            ({"case": "three"}, 'the cases are "two paths"'),
            ({"set": {"engine.pathes": 3}}, "pathes"),
            ({"set": {"engine.paths": object()}}, "give a number, a text"),
            ({"seeds": 0}, "101..200"),
            ({"threads": 0}, "1 or more"),
        ]:
            with self.subTest(wrong), self.assertRaisesRegex(srd.SpecError, text):
                lab.run(**{"spec": _smallest(), **SMALL, **wrong})
        with self.assertRaisesRegex(srd.SpecError, "experiments\\(\\) lists them"):
            lab.show("fig99")
        self.assertIn("fig2", lab.experiments())
        self.assertIn("[network", lab.show("fig2"))

    def test_progress_is_told_and_may_stop(self):
        told = []
        lab.run(_smallest(), **SMALL, progress=lambda done, of: told.append((done, of)))
        self.assertEqual(told[-1], (4, 4))

        def stop(done, of):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            lab.run(_smallest(), **{**SMALL, "seeds": 500}, progress=stop)


    def test_a_bar_shows_what_is_done(self):
        for progress, shows in [(True, True), (None, False), (False, False)]:
            err = io.StringIO()
            # Without tqdm, which draws its own.
            hidden = {"tqdm": None, "tqdm.auto": None}
            with mock.patch.dict(sys.modules, hidden), contextlib.redirect_stderr(err):
                lab.run(_smallest(), **SMALL, progress=progress)
            self.assertEqual("4 of 4 runs, 0 s left" in err.getvalue(), shows, err.getvalue())


class Sweep(unittest.TestCase):
    OPTIONS = {"quick": True, "seeds": 2}

    def setUp(self):
        self.here = lab.run(_smallest(), **self.OPTIONS)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.addCleanup(setattr, lab, "_job", JOB)

    def test_every_executor_gives_the_same(self):
        for executor in [None, executors.forked, executors.threads]:
            told = []
            results = lab.sweep(
                [_smallest()], executor=executor, **self.OPTIONS, progress=lambda *n: told.append(n)
            )
            self.assertEqual(results.hash, self.here.hash)
            self.assertEqual(results.rows, self.here.rows)
            self.assertEqual(told, [(n, 4) for n in (1, 2, 3, 4)])
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            self.assertEqual(
                lab.sweep(_smallest(), executor=pool, **self.OPTIONS).hash, self.here.hash
            )

    def test_dask_gives_the_same(self):
        with executors.dask(self) as dask:
            results = lab.sweep(_smallest(), executor=dask, **self.OPTIONS)
        self.assertEqual(results.hash, self.here.hash)

    def test_groups_of_flows_are_cases_of_their_own(self):
        here = lab.run("coexist", quick=True, seeds=2, case=self.mixed_case())
        self.assertGreater(len({row["case"] for row in here}), 1)
        options = {"quick": True, "seeds": 2, "case": self.mixed_case()}
        there = lab.sweep("coexist", executor=executors.forked, **options)
        self.assertEqual(there.csv, here.csv)

    @staticmethod
    def mixed_case():
        return srd._native.lab_jobs("coexist", quick=True, case=None, set=[], sweep=[], seeds="1")[
            0
        ][1]

    def test_runs_of_a_killed_worker_are_run_again(self):
        marker = self.folder / "marker"
        os.environ["SRD_TEST_MARKER"] = str(marker)
        lab._job = _killed_once
        results = lab.sweep(_smallest(), executor=executors.forked, **self.OPTIONS)
        self.assertTrue(marker.exists())
        self.assertEqual(results.hash, self.here.hash)

    def test_what_was_done_is_kept_and_not_run_again(self):
        keep = self.folder / "kept"
        lab._job = _fails_for_seed_2
        with self.assertRaisesRegex(
            lab.SweepFailed, "2 runs of the sweep failed.*seed 2.*no memory"
        ) as caught:
            lab.sweep(_smallest(), executor=executors.forked, keep=keep, **self.OPTIONS)
        self.assertEqual(caught.exception.results.column("seed"), [1, 1])
        with open(keep, "a") as file:
            file.write('{"run": "cut')
        lab._job = JOB
        told = []
        options = {**self.OPTIONS, "keep": keep, "progress": lambda *n: told.append(n)}
        results = lab.sweep(_smallest(), executor=executors.forked, **options)
        self.assertEqual(results.hash, self.here.hash)
        self.assertEqual(told, [(3, 4), (4, 4)])
        again = lab.sweep(_smallest(), executor=lambda: self.fail("nothing is left"), **options)
        self.assertEqual(again.hash, self.here.hash)
        keep.write_text("something else\n")
        with self.assertRaisesRegex(srd.SpecError, "line 1: not written by srd.lab.sweep"):
            lab.sweep(_smallest(), **options)
        # A file of something else stays as it is, also where its only line has no end.
        for text in (b"something else", b"\xff\xfe\x00"):
            keep.write_bytes(text)
            with self.assertRaisesRegex(srd.SpecError, "line 1: not written by srd.lab.sweep"):
                lab.sweep(_smallest(), **options)
            self.assertEqual(keep.read_bytes(), text)
        # What cannot be written is refused before anything runs.
        options["executor"] = lambda: self.fail("nothing is to run")
        for place in (self.folder, self.folder / "missing" / "kept"):
            with self.assertRaisesRegex(srd.SpecError, "cannot be kept in"):
                lab.sweep(_smallest(), **{**options, "keep": place})

    def test_results_are_kept_in_regular_files_only(self):
        pipe, full, link = (self.folder / name for name in ("pipe", "full", "link"))
        os.mkfifo(pipe)
        full.symlink_to("/dev/full")
        options = {**self.OPTIONS, "executor": lambda: self.fail("nothing is to run")}
        # Devices would be read without end, and nobody opens the pipe's other side.
        for place in ("/dev/zero", full, pipe, self.folder):
            with self.assertRaisesRegex(srd.SpecError, "no regular file; name a file"):
                lab.sweep(_smallest(), **{**options, "keep": place})
        # A link to a file that is made is one.
        link.symlink_to(self.folder / "kept")
        results = lab.sweep(_smallest(), executor=executors.threads, keep=link, **self.OPTIONS)
        self.assertEqual(results.hash, self.here.hash)
        self.assertEqual(len((self.folder / "kept").read_text().splitlines()), 4)

    def test_what_another_build_kept_is_not_taken(self):
        keep = self.folder / "kept"
        told = []

        def sweep():
            told.clear()
            options = {**self.OPTIONS, "keep": keep, "progress": lambda *n: told.append(n)}
            results = lab.sweep(_smallest(), executor=executors.threads, **options)
            self.assertEqual(results.hash, self.here.hash)
            return len(told)

        self.assertEqual((sweep(), sweep()), (4, 0))
        with mock.patch.object(srd._native, "__commit__", "of a later build"):
            self.assertEqual((sweep(), sweep()), (4, 0))
        # Not all changes are committed: the engine's code counts, too.
        with mock.patch.object(srd._jobs, "_library", lambda: "of changed code"):
            self.assertEqual((sweep(), sweep()), (4, 0))
        self.assertEqual(sweep(), 0)

    def test_a_worker_of_another_build_is_refused(self):
        class OldWorkers:
            def submit(self, job, *arguments):
                future = concurrent.futures.Future()
                with mock.patch.object(srd._native, "__commit__", "of an old worker"):
                    try:
                        future.set_result(job(*arguments))
                    except Exception as error:
                        future.set_exception(error)
                return future

        refused = self.assertRaisesRegex(lab.SweepFailed, "of an old worker.*install the same")
        with refused as caught:
            lab.sweep(_smallest(), executor=OldWorkers(), **self.OPTIONS)
        self.assertEqual(len(caught.exception.errors), 4)


class Tool(unittest.TestCase):
    """What the module leaves to the tool `srd`."""

    def setUp(self):
        for cached in (srd._tool.path, srd._tool.plot_library, srd._tool.of_this_build):
            cached.cache_clear()
            self.addCleanup(cached.cache_clear)

    def test_without_the_tool_a_plot_says_what_to_do(self):
        results = lab.run(_smallest(), **SMALL)
        with mock.patch("srd._tool._of_package", lambda: None), mock.patch(
            "sysconfig.get_path", lambda name: "/nowhere"
        ), mock.patch.dict(os.environ, {"PATH": "/nowhere"}):
            with self.assertRaisesRegex(srd.ToolError, "pip install software-srd"):
                results.page()
            with self.assertRaisesRegex(srd.ToolError, "pip install software-srd"):
                srd.check.seeds(0, 1)
        # A sweep draws without it.
        joined = pickle.loads(pickle.dumps(results))
        self.assertIn("two paths", joined.page())

    def test_a_tool_that_is_too_old_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            old = pathlib.Path(folder, "srd")
            old.write_text(
                "#!/bin/sh\n"
                'case $1 in --version) echo "srd 0.0.9 (commit 1)";;\n'
                "*) echo \"unrecognized subcommand '$2'\" >&2; exit 2;; esac\n"
            )
            old.chmod(0o755)
            with mock.patch("srd._tool.path", lambda: str(old)):
                with self.assertRaisesRegex(srd.ToolError, "plot-library'; .* older than this"):
                    lab.run(_smallest(), **SMALL).page()
                with self.assertRaisesRegex(srd.ToolError, r"is srd 0.0.9 \(commit 1\), but this"):
                    srd.check.seeds(0, 1)


if __name__ == "__main__":
    unittest.main()
