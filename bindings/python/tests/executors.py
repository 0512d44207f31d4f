"""Executors of ``concurrent.futures`` for tests, and a worker that is killed."""

import concurrent.futures
import contextlib
import multiprocessing
import os
import pathlib
import signal


def threads():
    return concurrent.futures.ThreadPoolExecutor(2)


def forked():
    return concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("fork"))


@contextlib.contextmanager
def dask(test):
    """Dask's executor with two workers; skips the test where Dask is not installed."""
    try:
        import distributed
    except ImportError:
        test.skipTest("Dask is not installed: pip install distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        with distributed.Client(cluster) as client:
            yield client.get_executor()


def die_once():
    """Kills this worker, unless a worker was killed before: the file SRD_TEST_MARKER says so."""
    marker = os.environ["SRD_TEST_MARKER"]
    if not os.path.exists(marker):
        pathlib.Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
