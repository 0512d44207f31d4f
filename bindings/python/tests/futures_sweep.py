"""A sweep of the lab by the ranks of an MPI job, whose results must be those of a process pool.

mpirun -n 3 python -m mpi4py.futures futures_sweep.py
"""

import collections
import socket
import time
from typing import Any

from mpi4py.futures import MPIPoolExecutor

from srd import lab

OPTIONS: dict[str, Any] = {
    "quick": True,
    "case": "rounds",
    "seeds": 8,
    "set": {"network.k": 4, "workload.bytes": 100_000},
    "sweep": {"engine.paths": [2, 64]},
}


def host(_: int) -> str:
    """Where this runs; it takes long enough that no rank does all."""
    time.sleep(0.05)
    return socket.gethostname()


def main() -> None:
    pool = lab.sweep("incast", **OPTIONS)
    with MPIPoolExecutor() as ranks:
        # More than one message is in flight, and messages are larger than a packet.
        assert ranks.submit(len, b"x" * 1_000_000).result() == 1_000_000
        hosts = collections.Counter(ranks.map(host, range(20)))
        results = lab.sweep("incast", executor=ranks, **OPTIONS)
    assert len(results) == len(pool) == 16, (len(results), len(pool))
    assert results.hash == pool.hash, (results.hash, pool.hash)
    assert len(hosts) > 1, hosts
    print(f"futures_sweep: {len(results)} runs by ranks on {len(hosts)} hosts, the hash of a pool")


if __name__ == "__main__":
    main()
