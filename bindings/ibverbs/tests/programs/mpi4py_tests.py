"""Runs mpi4py's own tests in every rank and writes one line per test.

usage: mpirun ... python3 mpi4py_tests.py TESTS OUT [LIST]
TESTS    folder of the tests (`test` in mpi4py's source)
OUT      folder for a file per rank: "start ID", then "pass|fail|skip ID [reason]"; "known ID
         PATTERN" for what a pattern leaves out
LIST     file with "-ID" for each test to leave out, "~PATTERN" for several (* = anything), or
         "+ID" for each of the only ones to run

Processes that the tests themselves would start (spawn, dynproc) are left out: they are the
launcher's matter.
"""

import fnmatch
import glob
import os
import signal
import sys
import unittest

# Seconds after which a test that hangs ends this process, and with it the run.
LIMIT_S = 5

tests, out = sys.argv[1], sys.argv[2]
listed = set()
if len(sys.argv) > 3:
    with open(sys.argv[3]) as lines:
        listed = {line.strip() for line in lines}
some = any(line.startswith("+") for line in listed)
patterns = sorted(line[1:] for line in listed if line.startswith("~"))
sys.path.insert(0, tests)
sys.argv = sys.argv[:1]
for name in ("cupy", "numba"):
    sys.modules[name] = None

from mpi4py import MPI  # noqa: E402  (after the settings above)

rank = MPI.COMM_WORLD.Get_rank()


class Lines(unittest.TestResult):
    """One line per test, at once, so that a crash tells where it was."""

    def __init__(self, path):
        super().__init__()
        self.file = open(path, "w", buffering=1)

    def line(self, word, test, reason=""):
        last = str(reason).strip().splitlines()[-1:] or [""]
        self.file.write(f"{word} {test.id()} {last[0]}".strip() + "\n")

    def startTest(self, test):
        super().startTest(test)
        self.line("start", test)
        signal.alarm(LIMIT_S)

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)

    def addSuccess(self, test):
        self.line("pass", test)

    def addSkip(self, test, reason):
        self.line("skip", test, reason)

    def addError(self, test, err):
        super().addError(test, err)
        self.line("fail", test, f"{err[0].__name__}: {err[1]}")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.line("fail", test, f"{err[0].__name__}: {err[1]}")

    def addExpectedFailure(self, test, err):
        self.line("skip", test, "fails as expected")


def flat(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


names = sorted(os.path.basename(path)[:-3] for path in glob.glob(os.path.join(tests, "test_*.py")))
names = [name for name in names if name not in ("test_spawn", "test_dynproc")]
suite = unittest.TestSuite()
for name in names:
    suite.addTest(unittest.defaultTestLoader.loadTestsFromModule(__import__(name)))


def known(test):
    return next((p for p in patterns if fnmatch.fnmatchcase(test.id(), p)), None)


def wanted(test):
    return "+" + test.id() in listed if some else "-" + test.id() not in listed


everything = list(flat(suite))
lines = Lines(os.path.join(out, f"rank.{rank}"))
for test in everything:
    if known(test):
        lines.line("known", test, known(test))
chosen = unittest.TestSuite(test for test in everything if wanted(test) and not known(test))
chosen.run(lines)
