"""Software SRD: reliable datagrams and RDMA over ordinary UDP, and a lab that simulates them.

``srd.Device`` opens a device on an address of this host, ``srd.lab`` runs experiments in a
simulated data center, and ``srd.aio`` waits for completions with asyncio.

Units are the last word of a name: ``timeout_s`` seconds, ``nbytes`` bytes, ``fct_median_us``
microseconds. All errors are ``SrdError``; their texts say what to do.
"""

import sys as _sys

if _sys.version_info < (3, 11):
    raise ImportError(
        "the module srd needs Python 3.11 or newer (this is %d.%d); "
        "the tool `srd` of the same package works with older ones" % _sys.version_info[:2]
    )

from . import lab
from ._native import (
    Completion,
    Device,
    DeviceError,
    Peer,
    PostError,
    QueueFull,
    QueuePair,
    Region,
    RequestFailed,
    SpecError,
    SrdError,
    __version__,
)

__all__ = [
    "Completion",
    "Device",
    "DeviceError",
    "Peer",
    "PostError",
    "QueueFull",
    "QueuePair",
    "Region",
    "RequestFailed",
    "SpecError",
    "SrdError",
    "__version__",
    "lab",
]
