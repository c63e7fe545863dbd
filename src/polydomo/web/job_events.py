"""What happens to a job, for whoever listens: a short list that somebody reads, and that never grows without bound."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from polydomo.core.job import Failure

ACCEPTED: Final = "accepted"  # a durable one: it is on disk
ASSIGNED: Final = "assigned"  # this worker will do it
TAKEN: Final = "taken"  # the worker says that it has got it
PARTIAL: Final = "partial"  # one of several answers
STREAM: Final = "stream"  # a piece of data of a worker
EVENT: Final = "event"  # the worker says how it goes on
GATHERED: Final = "gathered"  # one of several workers has ended its part
RESULT: Final = "result"  # the end
FAILED: Final = "failed"  # the end, too
CUT: Final = "cut"  # the listener was too slow: something is missing from here on

# What a listener may leave unread before it is cut off: its own memory, not the worker's matter.
MOST: Final = 10_000
MOST_BYTES: Final = 64 * 1024 * 1024

# What one takes in memory beside its body, roughly.
OVERHEAD: Final = 256


class JobEvent:
    """One of them. `body` is canonical, but for an event's, which is one frame as it is."""

    __slots__ = ("body", "failure", "gathered", "kind", "number", "word", "worker")

    def __init__(
        self,
        kind: str,
        worker: bytes = b"",
        body: bytes = b"",
        *,
        word: str = "",
        failure: Failure | None = None,
        gathered: bool = False,
        number: int = 0,
    ) -> None:
        self.kind = kind
        self.worker = worker
        self.body = body
        self.word = word  # an event's own kind
        self.failure = failure
        self.gathered = gathered  # the body is packed (`core.gather`)
        self.number = number  # by which it is found in the store again; 0: it is not kept

    def last(self) -> bool:
        """Does nothing follow?"""
        return self.kind in (RESULT, FAILED, CUT)


class Listener:
    """Iterate over it; it ends behind the job's end. `next` waits no longer than it is told."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heard: deque[JobEvent] = deque()
        self._size = 0
        self.on_size: Callable[[int], object] | None = None  # called with the bytes that are not read yet
        self._over = False  # nothing will be added
        self._future: asyncio.Future[None] | None = None

    def add(self, happening: JobEvent) -> None:
        """From the core, which does not wait: too much at once ends it."""
        if self._over:
            return
        if len(self._heard) >= MOST or self._size + len(happening.body) > MOST_BYTES:
            happening = JobEvent(CUT)
        self._size += len(happening.body) + OVERHEAD
        self._heard.append(happening)
        self._over = happening.last()
        self._wake()
        if self.on_size is not None:
            self.on_size(self._size)

    def close(self) -> None:
        """Nothing more will come; what was heard can still be read."""
        self._over = True
        self._wake()

    def discard(self) -> None:
        """Nothing more will be read."""
        self.on_size = None
        self._heard.clear()
        self._size = 0
        self.close()

    async def next(self, timeout: float) -> JobEvent | None:
        """The next one. None: nothing within `timeout` seconds, or `over`."""
        if not self._heard and not self._over:
            future: asyncio.Future[None] = self._loop.create_future()
            self._future = future
            timer = self._loop.call_later(timeout, self._wake)
            try:
                await future
            finally:
                timer.cancel()
                self._future = None
        if not self._heard:
            return None
        happening = self._heard.popleft()
        self._size -= len(happening.body) + OVERHEAD
        if self.on_size is not None:
            self.on_size(self._size)
        return happening

    @property
    def over(self) -> bool:
        """Has everything been read, and will nothing come?"""
        return self._over and not self._heard

    def __aiter__(self) -> Listener:
        return self

    async def __anext__(self) -> JobEvent:
        while not self.over:
            happening = await self.next(3600.0)
            if happening is not None:
                return happening
        raise StopAsyncIteration

    def _wake(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
