"""Writes blocks into another device's memory and waits for all of them with asyncio.

python asyncio_rdma.py
"""

import asyncio

import srd
import srd.aio

BLOCKS, BLOCK_BYTES = 64, 100_000


async def main() -> None:
    with srd.Device(port_base=26_400) as a, srd.Device(port_base=26_400) as b:
        there = b.queue_pair()
        # A peer may use RDMA while the responder has an address handle for it.
        qp = srd.aio.AsyncQueuePair(a.queue_pair())
        to_a, to_b = b.peer(qp.address), a.peer(there.address)
        target = b.region(BLOCKS * BLOCK_BYTES, remote_write=True)
        blocks = [a.register(bytearray([at] * BLOCK_BYTES)) for at in range(BLOCKS)]
        writes = [
            qp.write(to_b, block, target.remote, remote_offset=at * BLOCK_BYTES)
            for at, block in enumerate(blocks)
        ]
        done = await asyncio.wait_for(asyncio.gather(*writes), 60)
        assert all(memoryview(target)[at * BLOCK_BYTES] == at for at in range(BLOCKS))
        print(f"{len(done)} blocks, {sum(d.nbytes for d in done)} bytes, written to {to_a.ip}")
        qp.close()


asyncio.run(main())
