"""Completions with asyncio: ``await`` the end of a request.

qp = srd.aio.AsyncQueuePair(device.queue_pair())
receive = qp.recv(region)              # posted at once
await qp.send(peer, b"hello")
done = await receive                   # a srd.Completion

async for event in srd.aio.path_events(device):
    print(event.path, event.before, event.now)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from ._native import (
    Completion,
    Device,
    DeviceError,
    PathEvent,
    Peer,
    QueuePair,
    Region,
    RequestFailed,
)
from typing import Any

__all__ = ["AsyncQueuePair", "path_events"]


class _PathEvents:
    """Changes of paths, as they come; see ``path_events``."""

    def __init__(self, device: Device) -> None:
        self.events = device.path_events()
        self._loop = asyncio.get_running_loop()

    def __aiter__(self) -> AsyncIterator[PathEvent]:
        return self

    async def __anext__(self) -> PathEvent:
        while True:
            if event := self.events.get():
                return event
            readable = self._loop.create_future()
            # The loop has one reader of a descriptor: only one task may wait.
            self._loop.add_reader(self.events.fileno(), _wake, readable)
            try:
                await readable
            finally:
                self._loop.remove_reader(self.events.fileno())

    async def aclose(self) -> None:
        """Ends the subscription."""
        self.events.close()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def path_events(device: Device) -> _PathEvents:
    """Changes of the states of all paths of a device, from this call on: an asynchronous iterator.

    It never ends by itself; ``aclose`` ends the subscription. Its ``events.missed`` counts changes
    that were dropped because more than 1,024 waited. One task may wait for it at a time.
    """
    return _PathEvents(device)


class AsyncQueuePair:
    """A queue pair whose requests are futures of the running event loop.

    Every method posts at once, and raises at once if the request is refused; the future ends with
    the completion, or with ``RequestFailed``, or with ``DeviceError`` if the device is closed
    before. Nobody else may take completions of the queue pair.
    """

    def __init__(self, queue_pair: QueuePair) -> None:
        self.queue_pair = queue_pair
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[Completion]] = {}
        self._loop.add_reader(queue_pair.fileno(), self._take)
        self._take()

    @property
    def address(self) -> str:
        """What the other side gives to ``Device.peer``."""
        return self.queue_pair.address

    def send(self, peer: Peer, data: bytes, **options: Any) -> asyncio.Future[Completion]:
        """As ``QueuePair.send``."""
        return self._posted(self.queue_pair.send, peer, data, **options)

    def send_region(
        self, peer: Peer, region: Region, *part: int, **options: Any
    ) -> asyncio.Future[Completion]:
        """As ``QueuePair.send_region``."""
        return self._posted(self.queue_pair.send_region, peer, region, *part, **options)

    def recv(self, region: Region, *part: int, **options: Any) -> asyncio.Future[Completion]:
        """As ``QueuePair.recv``."""
        return self._posted(self.queue_pair.recv, region, *part, **options)

    def write(
        self, peer: Peer, region: Region, remote: tuple[int, int, int], **options: Any
    ) -> asyncio.Future[Completion]:
        """As ``QueuePair.write``."""
        return self._posted(self.queue_pair.write, peer, region, remote, **options)

    def read(
        self, peer: Peer, region: Region, remote: tuple[int, int, int], **options: Any
    ) -> asyncio.Future[Completion]:
        """As ``QueuePair.read``."""
        return self._posted(self.queue_pair.read, peer, region, remote, **options)

    def close(self) -> None:
        """Stops taking completions; futures that have not ended are cancelled."""
        self._loop.remove_reader(self.queue_pair.fileno())
        for future in self._waiting.values():
            future.cancel()
        self._waiting.clear()

    def _posted(
        self, post: Callable[..., int], *args: Any, **options: Any
    ) -> asyncio.Future[Completion]:
        # Completions are taken in this thread only, so none is missed before the future is known.
        number = post(*args, **options)
        future = self._loop.create_future()
        self._waiting[number] = future
        return future

    def _take(self) -> None:
        try:
            # Armed before the queue is emptied: what arrives afterwards notifies again.
            self.queue_pair.arm()
        except DeviceError as error:
            # The device is closed or has failed: this is the last notification.
            self._end(error)
        else:
            self._empty()

    def _empty(self) -> None:
        while done := self.queue_pair.poll():
            for completion in done:
                future = self._waiting.pop(completion.id, None)
                if future is None or future.done():
                    continue
                try:
                    completion.check()
                except RequestFailed as error:
                    future.set_exception(error)
                else:
                    future.set_result(completion)

    def _end(self, error: DeviceError) -> None:
        """Takes what is left; requests without a completion end with the error."""
        self._loop.remove_reader(self.queue_pair.fileno())
        with contextlib.suppress(DeviceError):
            self._empty()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()
