"""Moves data between two hosts by Mooncake's transfer engine over EFA, and compares every byte.

mooncake_check.py          offers memory, until the other side has finished
mooncake_check.py HOST     writes into that memory, and reads from it

Both sides compare: the one that writes reads back what it wrote, and the one that offers looks at
its memory itself. Ends with `mooncake_check: N checks, M wrong`.
"""

import ctypes
import random
import sys

import meeting
from mooncake.engine import TransferEngine

DEVICE = "rdmap0s6"  # as EFA's devices are called
SIZES = [1, 4096, 65537, 1 << 20, (4 << 20) - 5]
BATCH = [(i * 70000, 1000 + 4567 * i) for i in range(12)]  # offset and size of each piece
ROOM = 8 << 20
HALF = ROOM // 2


def pattern(*seed, size):
    return random.Random(repr(seed)).randbytes(size)


class Memory:
    """Registered memory, of which parts are written and read."""

    def __init__(self, engine):
        self.bytes = (ctypes.c_uint8 * ROOM)()
        self.address = ctypes.addressof(self.bytes)
        if engine.register_memory(self.address, ROOM) != 0:
            sys.exit("mooncake_check: the memory cannot be registered")

    def put(self, offset, data):
        ctypes.memmove(self.address + offset, data, len(data))

    def get(self, offset, size):
        return ctypes.string_at(self.address + offset, size)


def engine_of(address):
    engine = TransferEngine()
    # No server with metadata: the engines tell each other.
    if engine.initialize(address, "P2PHANDSHAKE", "efa", DEVICE) != 0:
        sys.exit("mooncake_check: the engine does not start")
    return engine


def offer(talk, checks):
    address = meeting.own_address(talk)
    engine = engine_of(address)
    memory = Memory(engine)
    talk.send({"session": f"{address}:{engine.get_rpc_port()}", "memory": memory.address})
    for size in SIZES:
        talk.receive()
        written = memory.get(0, size + 1)
        checks.same(f"{size} bytes written", written, pattern("write", size, size=size) + b"\0")
        memory.put(0, pattern("read", size, size=size))
        talk.send("look")
        talk.receive()
        memory.put(0, bytes(ROOM))
        talk.send("empty")
    talk.receive()
    for offset, size in BATCH:
        wanted = pattern("batch", offset, size=size)
        checks.same(f"{size} bytes of a batch", memory.get(offset, size), wanted)
    talk.send("done")


def use(talk, checks):
    engine = engine_of(meeting.own_address(talk))
    memory = Memory(engine)
    other = talk.receive()
    session, remote = other["session"], other["memory"]

    def done(what, code):
        if code != 0:
            sys.exit(f"mooncake_check: {what} fails with {code}")

    for size in SIZES:
        memory.put(0, pattern("write", size, size=size))
        done("a write", engine.transfer_sync_write(session, memory.address, remote, size))
        done("a read", engine.transfer_sync_read(session, memory.address + HALF, remote, size))
        checks.same(f"{size} bytes read back", memory.get(HALF, size), memory.get(0, size))
        talk.send("written")
        talk.receive()
        done("a read", engine.transfer_sync_read(session, memory.address, remote, size))
        checks.same(f"{size} bytes read", memory.get(0, size), pattern("read", size, size=size))
        talk.send("read")
        talk.receive()
    for offset, size in BATCH:
        memory.put(offset, pattern("batch", offset, size=size))
    mine = [memory.address + offset for offset, _ in BATCH]
    theirs = [remote + offset for offset, _ in BATCH]
    sizes = [size for _, size in BATCH]
    done("a batch", engine.batch_transfer_sync_write(session, mine, theirs, sizes))
    talk.send("batch")
    talk.receive()


if __name__ == "__main__":
    meeting.run("mooncake_check", sys.argv[1:], offer, use)
