"""Software SRD: reliable datagrams and RDMA over ordinary UDP, and a lab that simulates them.

``srd.Device`` opens a device on an address of this host, ``srd.lab`` runs experiments in a
simulated data center, ``srd.check`` runs the fault checker, and ``srd.aio`` waits for completions
with asyncio.

Units are the last word of a name: ``timeout_s`` seconds, ``nbytes`` bytes, ``fct_median_us``
microseconds. All errors are ``SrdError``; their texts say what to do.
"""

import sys as _sys

if _sys.version_info < (3, 11):
    raise ImportError(
        "the module srd needs Python 3.11 or newer (this is %d.%d); "
        "the tool `srd` of the same package works with older ones" % _sys.version_info[:2]
    )

from . import check, lab
from ._native import (
    Completion,
    Device,
    DeviceError,
    PathEvent,
    PathEvents,
    Peer,
    PostError,
    QueueFull,
    QueuePair,
    Region,
    RequestFailed,
    SpecError,
    SrdError,
    __commit__,
    __version__,
)
from ._tool import ToolError

__all__ = [
    "Completion",
    "Device",
    "DeviceError",
    "PathEvent",
    "PathEvents",
    "Peer",
    "PostError",
    "QueueFull",
    "QueuePair",
    "Region",
    "RequestFailed",
    "SpecError",
    "SrdError",
    "ToolError",
    "__commit__",
    "__version__",
    "check",
    "lab",
]
