"""Two processes send a message to and fro, and tell each other their addresses through a pipe.

python ping_pong.py
"""

import multiprocessing
import time
from multiprocessing.connection import Connection

import srd

ROUNDS = 100
LIMIT_S = 30


def one_side(pipe: Connection, begins: bool) -> None:
    with srd.Device(port_base=26_100) as device:
        qp = device.queue_pair()
        pipe.send(qp.address)
        peer = device.peer(pipe.recv())
        room = device.region(64)
        qp.recv(room)
        # Both have posted a receive.
        pipe.send("ready")
        pipe.recv()
        start = time.perf_counter()
        for number in range(ROUNDS):
            if begins:
                qp.send(peer, number.to_bytes(8))
            received = False
            while not received:
                # Sends complete here, too.
                received = qp.wait(LIMIT_S).op == "recv"
            assert int.from_bytes(bytes(room)[:8]) == number
            qp.recv(room)
            if not begins:
                qp.send(peer, number.to_bytes(8))
        took_us = (time.perf_counter() - start) * 1e6
        if begins:
            print(f"{ROUNDS} round trips, {took_us / ROUNDS:.1f} us each")


def main() -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    other = context.Process(target=one_side, args=(there, False))
    other.start()
    one_side(here, True)
    other.join(LIMIT_S)
    assert other.exitcode == 0


if __name__ == "__main__":
    main()
