"""Moves data between two hosts by the Python package `efa`, and compares every byte.

efa_check.py         waits for the other side
efa_check.py HOST    is the other side

Both sides do the same at once: messages of sizes from 1 byte to the largest of the device, whose
order is free; then writes into the other side's memory and reads from it, up to 4 MiB; then writes
with immediate data. Ends with `efa_check: N checks, M wrong`.
"""

import ctypes
import random
import struct
import sys
import time

import efa
import meeting

QKEY = 0x1234
ROUNDS = 8  # messages of each size
RDMA_SIZES = [1, 4095, 65536, 1 << 20, (1 << 22) - 3]
LARGEST = max(RDMA_SIZES)
LIMIT_S = 30

ACCESS = efa.AccessFlags.LOCAL_WRITE | efa.AccessFlags.REMOTE_WRITE | efa.AccessFlags.REMOTE_READ


def pattern(*seed, size):
    return random.Random(repr(seed)).randbytes(size)


class Memory:
    """Memory that is registered, with its offsets."""

    def __init__(self, pd, size):
        self.bytes = (ctypes.c_uint8 * size)()
        self.mr = pd.reg_mr(ctypes.addressof(self.bytes), size, ACCESS)

    def put(self, offset, data):
        ctypes.memmove(ctypes.addressof(self.bytes) + offset, data, len(data))

    def get(self, offset, size):
        return ctypes.string_at(ctypes.addressof(self.bytes) + offset, size)

    def part(self, offset, size):
        return [efa.SGE(self.mr.addr + offset, size, lkey=self.mr.lkey)]


class Side:
    def __init__(self, talk, checks, me):
        self.talk, self.me, self.checks = talk, me, checks
        device = efa.get_efa_device_list()[0]
        self.context = device.open()
        self.pd = self.context.alloc_pd()
        self.cq = self.context.create_cq(1024)
        attr = efa.QPInitAttr(send_cq=self.cq, recv_cq=self.cq, max_send_wr=256, max_recv_wr=256)
        self.qp = self.pd.create_qp(attr).prepare(qkey=QKEY)
        self.packet = self.context.query_port(1).max_msg_sz
        limits = self.context.query_efa_device()
        if LARGEST > limits.max_rdma_size:
            sys.exit(f"efa_check: the device allows {limits.max_rdma_size} bytes of RDMA")
        told = self.swap(efa.local_endpoint_info(self.qp, qkey=QKEY).to_bytes())
        self.peer = efa.EndpointInfo.from_bytes(told).peer(self.pd)

    def swap(self, data):
        return self.talk.swap_bytes(data)

    def completions(self, number):
        """Returns so many completions."""
        done, until = [], time.monotonic() + LIMIT_S
        while len(done) < number:
            for wc in self.cq.poll(16):
                wc.raise_for_status()
                done.append(wc)
            if time.monotonic() > until:
                sys.exit(f"efa_check: {len(done)} of {number} completions in {LIMIT_S} s")
        return done

    def messages(self, size):
        """Messages of one size in both directions, in any order."""
        step = size + 7
        incoming, outgoing = Memory(self.pd, ROUNDS * step), Memory(self.pd, ROUNDS * step)
        receives = [efa.RecvWR(i, incoming.part(i * step, size)) for i in range(ROUNDS)]
        self.qp.post_recv(receives)
        self.swap(b"ready")
        sends = []
        for i in range(ROUNDS):
            outgoing.put(i * step, pattern("message", self.me, size, i, size=size))
            sends.append(
                efa.SendWR(
                    wr_id=1000 + i,
                    sg_list=outgoing.part(i * step, size),
                    opcode=efa.WROpcode.SEND_WITH_IMM,
                    imm_data=i,
                    send_flags=efa.SendFlags.SIGNALED,
                    dest=self.peer,
                )
            )
        self.qp.post_send(sends)
        done = self.completions(2 * ROUNDS)
        came = {wc.imm_data: wc for wc in done if wc.wr_id < 1000}
        self.checks.same(f"the set of messages of {size} bytes", sorted(came), list(range(ROUNDS)))
        for i, wc in came.items():
            wanted = pattern("message", 1 - self.me, size, i, size=size)
            self.checks.same(f"the length of message {i}", wc.byte_len, size)
            got = incoming.get(wc.wr_id * step, size)
            self.checks.same(f"message {i} of {size} bytes", got, wanted)
        self.swap(b"done")

    def rdma(self, size):
        """Writes into the other side's memory, then reads what it has elsewhere."""
        mine = pattern("write", self.me, size, size=size)
        source, target = Memory(self.pd, size), Memory(self.pd, size + 2)
        readable, read = Memory(self.pd, size), Memory(self.pd, size)
        source.put(0, mine)
        readable.put(0, pattern("read", self.me, size, size=size))
        place = struct.Struct("!QIQI")
        here = place.pack(target.mr.addr, target.mr.rkey, readable.mr.addr, readable.mr.rkey)
        to, to_key, of, of_key = place.unpack(self.swap(here))
        # In pieces, which need not arrive in order.
        chunk = max(1, size // 3)
        writes = efa.write_wrs(source.mr, self.peer, to + 1, to_key, chunk=chunk)
        self.qp.post_send(writes)
        self.completions(len(writes))
        reads = efa.read_wrs(read.mr, self.peer, of, of_key, chunk=chunk)
        self.qp.post_send(reads)
        self.completions(len(reads))
        self.swap(b"written")
        theirs = pattern("write", 1 - self.me, size, size=size)
        wanted = b"\0" + theirs + b"\0"
        self.checks.same(f"{size} bytes written here", target.get(0, size + 2), wanted)
        theirs = pattern("read", 1 - self.me, size, size=size)
        self.checks.same(f"{size} bytes read", read.get(0, size), theirs)
        self.swap(b"done")

    def immediate(self, size):
        """A write whose immediate data tell the other side that it is complete."""
        source, target = Memory(self.pd, size), Memory(self.pd, size)
        source.put(0, pattern("immediate", self.me, size, size=size))
        self.qp.post_recv([efa.RecvWR(7, [])])
        place = struct.Struct("!QI")
        to, key = place.unpack(self.swap(place.pack(target.mr.addr, target.mr.rkey)))
        write = efa.SendWR(
            wr_id=1007,
            sg_list=source.part(0, size),
            opcode=efa.WROpcode.RDMA_WRITE_WITH_IMM,
            imm_data=size,
            send_flags=efa.SendFlags.SIGNALED,
            remote_addr=to,
            rkey=key,
            dest=self.peer,
        )
        self.qp.post_send([write])
        told = [wc.imm_data for wc in self.completions(2) if wc.wr_id == 7]
        self.checks.same("the immediate data", told, [size])
        theirs = pattern("immediate", 1 - self.me, size, size=size)
        self.checks.same(f"{size} bytes with immediate data", target.get(0, size), theirs)
        self.swap(b"done")


def main(talk, checks, me):
    side = Side(talk, checks, me)
    for size in [1, 2, 31, 32, 33, 1024, 4096, side.packet - 1, side.packet]:
        side.messages(size)
    for size in RDMA_SIZES:
        side.rdma(size)
    for size in [1, 70000]:
        side.immediate(size)


if __name__ == "__main__":
    meeting.run(
        "efa_check",
        sys.argv[1:],
        lambda talk, checks: main(talk, checks, 0),
        lambda talk, checks: main(talk, checks, 1),
    )
