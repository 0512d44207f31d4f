"""Runs an incast with 2 to 64 paths on a pool of processes, and draws it.

python lab_sweep.py [PAGE.html]
"""

import sys
from typing import Any

from srd import lab

OPTIONS: dict[str, Any] = {
    "quick": True,
    "case": "rounds",
    "seeds": 2,
    "set": {"network.k": 4, "workload.bytes": 100_000},
    "sweep": {"engine.paths": [2, 8, 64]},
}


def main() -> None:
    results = lab.sweep("incast", **OPTIONS)
    print(results)
    here = lab.run("incast", **OPTIONS)
    print(f"the same on both: {results.hash == here.hash}")
    if len(sys.argv) > 1:
        print(f"see {results.plot(sys.argv[1])}")


if __name__ == "__main__":
    main()
