"""Runs modules of pyverbs' tests and says in lines of its own how each test ended.

Usage: pyverbs_run.py FOLDER MODULE,MODULE... SKIP SECONDS --dev NAME

FOLDER has pyverbs' package `tests`; the first SKIP tests are left out, as they ran before.
Lines are `conformance`, a word, the test's name and a remark, with tabs in between. A test that
takes more than SECONDS ends the process, even inside a call of the library.
"""

import faulthandler
import os
import sys
import unittest


def say(word, test, remark=""):
    """One line, apart from whatever a test has printed."""
    line = "\t".join(["conformance", word, test, " ".join(str(remark).split())])
    print("\n" + line, flush=True)


class Result(unittest.TestResult):
    """Tells outcomes as they come."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds
        self.told = False

    def startTest(self, test):
        self.told = False
        say("begin", test.id())
        faulthandler.dump_traceback_later(self.seconds, exit=True)

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()

    def tell(self, word, test, remark=""):
        """A test has one outcome: its clean-up does not change it."""
        if not self.told:
            self.told = True
            say(word, test.id(), remark)

    def addSuccess(self, test):
        self.tell("pass", test)

    def addSkip(self, test, reason):
        self.tell("skip", test, reason)

    def addFailure(self, test, err):
        self.tell("fail", test, err[1])
        print(self._exc_info_to_string(err, test), file=sys.stderr, flush=True)

    addError = addFailure


def tests_of(suite):
    """All tests, in order."""
    for entry in suite:
        if isinstance(entry, unittest.TestSuite):
            yield from tests_of(entry)
        else:
            yield entry


def main():
    folder, modules, skip, seconds = sys.argv[1:5]
    sys.argv[1:5] = []
    # The package wants its own folder first, and reads the arguments that are left. Its parent
    # comes last: it has a folder `pyverbs` of sources, too.
    sys.path.insert(0, os.path.join(folder, "tests"))
    sys.path.append(folder)
    from args_parser import parser

    parser.parse_args()
    names = ["tests." + module for module in modules.split(",")]
    loaded = unittest.defaultTestLoader.loadTestsFromNames(names)
    result = Result(float(seconds))
    for test in list(tests_of(loaded))[int(skip):]:
        test.run(result)
    say("end", modules)


main()
