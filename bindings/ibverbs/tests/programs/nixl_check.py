"""Moves data between two hosts by NIXL over UCX, in main memory, and compares every byte.

nixl_check.py          offers memory, until the other side has finished
nixl_check.py HOST     writes into that memory, and reads from it

The agents tell each other their metadata first. Each write carries a notification, on which the
side that offers looks at its memory. Ends with `nixl_check: N checks, M wrong`.
"""

import base64
import random
import sys
import time

import meeting
import numpy as np
from nixl._api import nixl_agent, nixl_agent_config

SIZES = [1, 4096, 65537, 1 << 20, (4 << 20) - 5]
PIECES = [(i * 70000, 1000 + 4567 * i) for i in range(12)]  # offset and size of each
ROOM = 8 << 20
HALF = ROOM // 2


def pattern(*seed, size):
    return random.Random(repr(seed)).randbytes(size)


def code(data):
    return base64.b64encode(data).decode()


def decode(text):
    return base64.b64decode(text)


class Memory:
    """Registered memory, of which parts are written and read."""

    def __init__(self, agent):
        self.array = np.zeros(ROOM, dtype=np.uint8)
        self.agent = agent
        self.address = self.array.ctypes.data
        agent.register_memory([(self.address, ROOM, 0, "")], "DRAM")

    def put(self, offset, data):
        self.array[offset : offset + len(data)] = np.frombuffer(data, dtype=np.uint8)

    def get(self, offset, size):
        return self.array[offset : offset + size].tobytes()


def agent_of(name):
    return nixl_agent(name, nixl_agent_config(backends=["UCX"]))


def offer(talk, checks):
    agent = agent_of("offers")
    memory = Memory(agent)
    talk.send({"metadata": code(agent.get_agent_metadata()), "memory": memory.address})
    agent.add_remote_agent(decode(talk.receive()["metadata"]))

    def notified(text):
        until = time.monotonic() + meeting.LIMIT_S
        while time.monotonic() < until:
            if text in agent.get_new_notifs().get("uses", []):
                return
        sys.exit(f"nixl_check: no notification {text}")

    for size in SIZES:
        notified(b"%d" % size)
        written = memory.get(0, size + 1)
        checks.same(f"{size} bytes written", written, pattern("write", size, size=size) + b"\0")
        talk.receive()
        memory.put(0, pattern("read", size, size=size))
        talk.send("look")
        talk.receive()
        memory.put(0, bytes(ROOM))
        talk.send("empty")
    notified(b"pieces")
    for offset, size in PIECES:
        wanted = pattern("pieces", offset, size=size)
        checks.same(f"{size} bytes of many", memory.get(offset, size), wanted)
    talk.send("done")
    talk.receive()


def use(talk, checks):
    agent = agent_of("uses")
    memory = Memory(agent)
    other = talk.receive()
    talk.send({"metadata": code(agent.get_agent_metadata())})
    peer, remote = agent.add_remote_agent(decode(other["metadata"])), other["memory"]

    def move(what, parts, notification=b""):
        """Moves parts: offset here, offset there, and size."""
        here = agent.get_xfer_descs([(memory.address + a, n, 0) for a, _, n in parts], "DRAM")
        there = agent.get_xfer_descs([(remote + b, n, 0) for _, b, n in parts], "DRAM")
        handle = agent.initialize_xfer(what, here, there, peer, notification)
        state = agent.transfer(handle)
        until = time.monotonic() + meeting.LIMIT_S
        while state == "PROC" and time.monotonic() < until:
            state = agent.check_xfer_state(handle)
        if state != "DONE":
            sys.exit(f"nixl_check: {what} of {len(parts)} parts ends with {state}")
        agent.release_xfer_handle(handle)

    for size in SIZES:
        memory.put(0, pattern("write", size, size=size))
        move("WRITE", [(0, 0, size)], b"%d" % size)
        move("READ", [(HALF, 0, size)])
        checks.same(f"{size} bytes read back", memory.get(HALF, size), memory.get(0, size))
        talk.send("read back")
        talk.receive()
        move("READ", [(0, 0, size)])
        checks.same(f"{size} bytes read", memory.get(0, size), pattern("read", size, size=size))
        talk.send("read")
        talk.receive()
    for offset, size in PIECES:
        memory.put(offset, pattern("pieces", offset, size=size))
    move("WRITE", [(offset, offset, size) for offset, size in PIECES], b"pieces")
    talk.receive()
    talk.send("end")


if __name__ == "__main__":
    meeting.run("nixl_check", sys.argv[1:], offer, use)
