"""Devices in Python: messages, RDMA, buffers, errors, asyncio."""

import array
import asyncio
import faulthandler
import gc
import subprocess
import threading
import unittest

import srd
import srd._tool
import srd.aio

#: Not the default, so that nothing that runs on this machine is met.
PORTS = {"port_base": 25_800}
LIMIT_S = 30


class Pair(unittest.TestCase):
    def setUp(self):
        self.a, self.b = srd.Device(**PORTS), srd.Device(**PORTS)
        self.qp_a, self.qp_b = self.a.queue_pair(qkey=7), self.b.queue_pair(qkey=8)
        self.to_b, self.to_a = self.a.peer(self.qp_b.address), self.b.peer(self.qp_a.address)
        self.addCleanup(self.a.close)
        self.addCleanup(self.b.close)

    def test_messages_arrive_with_immediate_data(self):
        room = self.b.region(4096)
        for size, imm in [(0, None), (5, 0xDEAD_BEEF), (80, None), (81, 1), (1000, None)]:
            sent = bytes(at % 251 for at in range(size))
            number = self.qp_b.recv(room)
            ended = self.qp_a.send(self.to_b, sent, imm=imm)
            done = self.qp_b.wait(LIMIT_S)
            self.assertEqual((done.id, done.op, done.nbytes, done.imm), (number, "recv", size, imm))
            self.assertEqual(done.source, ("127.0.0.1", int(self.qp_a.address.split("/")[1])))
            self.assertEqual(bytes(room)[:size], sent)
            done = self.qp_a.wait(LIMIT_S)
            self.assertEqual((done.id, done.op, done.ok, done.status), (ended, "send", True, 0))
        self.assertEqual(self.qp_a.outstanding, (0, 0))

    def test_rdma_moves_parts_of_buffers(self):
        target = self.b.region(100_000, remote_write=True, remote_read=True)
        mine = array.array("d", [0.5, 1.5, 2.5, 3.5])
        source = self.a.register(mine)
        self.assertEqual(source.nbytes, 32)
        self.qp_a.write(self.to_b, source, target.remote, offset=8, nbytes=16, remote_offset=99_984)
        self.assertEqual(self.qp_a.wait(LIMIT_S).nbytes, 16)
        self.assertEqual(memoryview(target)[99_984:].cast("d").tolist(), [1.5, 2.5])
        memoryview(target)[:32] = array.array("d", [9, 8, 7, 6]).tobytes()
        self.qp_a.read(self.to_b, source, target.remote, nbytes=32)
        self.qp_a.wait(LIMIT_S)
        self.assertEqual(mine.tolist(), [9, 8, 7, 6])
        with self.assertRaises(BufferError):
            mine.append(1.0)

    def test_arrays_of_numpy_are_registered_and_views_of_regions(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed")
        target = self.b.region(8 * 1000, remote_write=True)
        ramp = numpy.arange(1000, dtype=numpy.float64).reshape(10, 100)
        self.qp_a.write(self.to_b, self.a.register(ramp), target.remote)
        self.qp_a.wait(LIMIT_S)
        numpy.testing.assert_array_equal(numpy.frombuffer(target).reshape(10, 100), ramp)
        with self.assertRaisesRegex(srd.DeviceError, "ascontiguousarray"):
            self.a.register(ramp[:, ::2])

    def test_regions_live_as_long_as_somebody_needs_them(self):
        target = self.b.region(1 << 20, remote_write=True)
        remote = target.remote
        self.qp_a.write(self.to_b, self.a.register(bytearray(b"x" * (1 << 20))), remote)
        gc.collect()
        self.assertTrue(self.qp_a.wait(LIMIT_S).ok)
        view = memoryview(target)
        del target
        gc.collect()
        self.assertEqual(bytes(view[:4]), b"xxxx")
        # Its view keeps it registered; without one the peer is refused.
        self.qp_a.write(self.to_b, self.a.region(4), remote)
        self.assertTrue(self.qp_a.wait(LIMIT_S).ok)
        del view
        gc.collect()
        self.qp_a.write(self.to_b, self.a.region(4), remote)
        with self.assertRaisesRegex(srd.RequestFailed, "Write request"):
            self.qp_a.wait(LIMIT_S)

    def test_errors_name_the_fix(self):
        region = self.a.region(100)
        with self.assertRaisesRegex(srd.DeviceError, "beyond the region of 100 bytes"):
            self.qp_a.send_region(self.to_b, region, 90, 11)
        with self.assertRaisesRegex(srd.PostError, "beyond the peer's region of 10 bytes"):
            self.qp_a.write(self.to_b, region, (0, 0, 10))
        with self.assertRaisesRegex(srd.PostError, "longer than the operation allows"):
            self.qp_a.send(self.to_b, bytes(self.a.mtu + 1))
        with self.assertRaisesRegex(srd.DeviceError, "no address of a queue pair"):
            self.a.peer("10.0.0.1:18700")
        with self.assertRaisesRegex(srd.DeviceError, "ip -br addr"):
            srd.Device(ip="localhost")
        with self.assertRaisesRegex(srd.DeviceError, "not both"):
            srd.Device(ip="127.0.0.1", interface="lo")
        with self.assertRaisesRegex(srd.DeviceError, "ip -br addr"):
            srd.Device(interface="none0")
        with self.assertRaisesRegex(srd.DeviceError, "writable and contiguous"):
            self.a.register(b"constant")
        with self.assertRaisesRegex(TimeoutError, "outstanding: 0 sends, 1 receives"):
            self.qp_a.recv(region)
            self.qp_a.wait(0.01)
        with self.assertRaisesRegex(srd.DeviceError, "timeout_s"):
            self.qp_a.wait(-1)
        few = self.a.queue_pair(depth=1)
        few.recv(region)
        with self.assertRaisesRegex(srd.QueueFull, "poll"):
            few.recv(region)

    def test_failed_requests_are_told(self):
        wrong = self.a.peer(self.qp_b.address.rsplit("/", 1)[0] + "/99")
        self.qp_a.send(wrong, b"no")
        with self.assertRaisesRegex(srd.RequestFailed, "(?i)q_key"):
            self.qp_a.wait(LIMIT_S)
        self.qp_a.send(wrong, b"no")
        while not (done := self.qp_a.poll()):
            pass
        self.assertFalse(done[0].ok)
        self.assertIn("send", repr(done[0]))

    def test_a_wait_leaves_other_threads_running(self):
        room = self.b.region(100)
        self.qp_b.recv(room)
        waiter = threading.Thread(target=lambda: self.qp_b.wait(LIMIT_S))
        waiter.start()
        self.qp_a.send(self.to_b, b"now")
        waiter.join(LIMIT_S)
        self.assertFalse(waiter.is_alive())

    def test_asyncio_waits_for_many(self):
        async def main():
            a, b = srd.aio.AsyncQueuePair(self.qp_a), srd.aio.AsyncQueuePair(self.qp_b)
            room = self.b.region(100 * 8)
            received = [b.recv(room, 8 * at, 8) for at in range(100)]
            sent = [a.send(self.to_b, at.to_bytes(8)) for at in range(100)]
            done = await asyncio.wait_for(asyncio.gather(*received, *sent), LIMIT_S)
            self.assertTrue(all(d.ok for d in done))
            values = {int.from_bytes(bytes(room)[8 * at : 8 * at + 8]) for at in range(100)}
            self.assertEqual(values, set(range(100)))
            target = self.b.region(8, remote_write=True, remote_read=True)
            await a.write(self.to_b, self.a.region(8), target.remote)
            await a.read(self.to_b, self.a.region(8), target.remote)
            with self.assertRaises(srd.RequestFailed):
                await a.send(self.a.peer(self.qp_b.address.rsplit("/", 1)[0] + "/99"), b"no")
            never = b.recv(room)
            b.close()
            a.close()
            with self.assertRaises(asyncio.CancelledError):
                await never

        asyncio.run(main())

    def test_futures_end_when_their_device_is_closed(self):
        async def main():
            b = srd.aio.AsyncQueuePair(self.qp_b)
            waits = [b.recv(self.b.region(8)) for _ in range(3)]
            await asyncio.to_thread(self.b.close)
            ended = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), LIMIT_S)
            for error in ended:
                self.assertIsInstance(error, (srd.RequestFailed, srd.DeviceError))

        asyncio.run(main())

    def test_the_end_of_a_buffer_may_post(self):
        # A post that waits for its own thread keeps the interpreter's lock: nothing else of Python
        # runs then.
        faulthandler.dump_traceback_later(LIMIT_S, exit=True)
        self.addCleanup(faulthandler.cancel_dump_traceback_later)
        again, taken = self.b.region(8), []

        class Buffer(bytearray):
            def __del__(buffer):
                taken.append(self.qp_b.recv(again))

        self.qp_b.recv(self.b.register(Buffer(8)))
        self.qp_a.send(self.to_b, b"1")
        done = self.qp_b.wait(LIMIT_S)
        self.assertEqual((len(taken), done.nbytes), (1, 1))

    def test_changes_of_paths_are_told(self):
        try:
            tool = srd._tool.path()
        except srd.ToolError as error:
            self.skipTest(str(error))

        def order(*words):
            command = [tool, "paths", *words, "--peer", "127.0.79.2"]
            subprocess.run(command, check=True, capture_output=True)

        # Addresses of this test's own, because all devices of the user obey.
        with srd.Device(ip="127.0.79.1", **PORTS) as a, srd.Device(ip="127.0.79.2", **PORTS) as b:
            qp_a, qp_b = a.queue_pair(), b.queue_pair()
            qp_b.recv(b.region(8))
            events, to_b = a.path_events(), a.peer(qp_b.address)
            qp_a.send(to_b, b"hello")
            qp_a.wait(LIMIT_S)
            self.assertIsNone(events.get())
            self.assertIsNone(events.wait(0.01))
            self.addCleanup(order, "allow")

            async def main():
                told = srd.aio.path_events(a)
                await asyncio.to_thread(order, "deny", "3,7")
                async with asyncio.timeout(LIMIT_S):
                    first, second = await anext(told), await anext(told)
                    self.assertEqual((first.path, second.path), (3, 7))
                    self.assertEqual((first.ip, first.before, first.now),
                                     ("127.0.79.2", "active", "denied"))
                    self.assertIn("active -> denied", repr(first))
                    late = asyncio.create_task(anext(told))
                    await asyncio.sleep(0)
                    await asyncio.to_thread(order, "allow", "7")
                    event = await late
                    self.assertEqual((event.path, event.before, event.now),
                                     (7, "denied", "active"))
                    with self.assertRaises(TimeoutError):
                        async with asyncio.timeout(0.01):
                            await anext(told)
                await told.aclose()
                with self.assertRaisesRegex(srd.DeviceError, "closed"):
                    await anext(told)

            asyncio.run(main())
            self.assertEqual([events.wait(LIMIT_S).path for _ in range(3)], [3, 7, 7])
            self.assertEqual(events.missed, 0)
            with self.assertRaisesRegex(srd.DeviceError, "timeout_s"):
                events.wait(-1)
            events.close()
            with self.assertRaisesRegex(srd.DeviceError, "closed"):
                events.fileno()


if __name__ == "__main__":
    unittest.main()
