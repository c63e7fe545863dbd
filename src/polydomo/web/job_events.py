"""Events of one job, in a bounded queue with one reader."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from polydomo.web.waiting import Wakeup

if TYPE_CHECKING:
    from polydomo.core.failure import Failure

ACCEPTED: Final = "accepted"  # a durable job is on disk
ASSIGNED: Final = "assigned"  # to this worker
TAKEN: Final = "taken"  # the worker has acknowledged the job
PARTIAL: Final = "partial"  # a partial result
STREAM: Final = "stream"  # a chunk of a worker's data
EVENT: Final = "event"  # a progress event of the worker
GATHERED: Final = "gathered"  # one of several workers has ended its part
RESULT: Final = "result"  # last
FAILED: Final = "failed"  # last
CUT: Final = "cut"  # last: the reader was too slow, further events are lost

# Unread events that a reader may have before the queue is cut.
QUEUE_MAX: Final = 10_000
QUEUE_BYTES_MAX: Final = 64 * 1024 * 1024

# Approximate memory of an event beside its body, in bytes.
OVERHEAD: Final = 256


class JobEvent(NamedTuple):
    """One event. `body` is canonical, except for EVENT, where it is the content of one frame."""

    kind: str
    worker: bytes = b""
    body: bytes = b""
    word: str = ""  # the worker's own name for an EVENT
    failure: Failure | None = None
    gathered: bool = False  # the body is packed (`core.gather`)
    number: int = 0  # its number in the store; 0: not stored

    def last(self) -> bool:
        """Return whether no event follows this one."""
        return self.kind in (RESULT, FAILED, CUT)


class JobEventQueue:
    """The unread events of a job, up to the last one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._events: deque[JobEvent] = deque()
        self._size = 0
        self.on_size: Callable[[int], object] | None = None  # called with the number of unread bytes
        self._closed = False
        self._wakeup = Wakeup(loop)

    def add(self, event: JobEvent) -> None:
        """Append an event. The core does not wait for readers: if the queue is full, it is cut."""
        if self._closed:
            return
        if len(self._events) >= QUEUE_MAX or self._size + len(event.body) > QUEUE_BYTES_MAX:
            event = JobEvent(CUT)
        self._events.append(event)
        self._closed = event.last()
        self._wakeup.wake()
        self._resize(len(event.body) + OVERHEAD)

    def close(self) -> None:
        """Accept no more events; those in the queue can still be read."""
        self._closed = True
        self._wakeup.wake()

    def discard(self) -> None:
        """Drop all events and accept no more."""
        self.on_size = None
        self._events.clear()
        self._size = 0
        self.close()

    async def next(self, timeout: float) -> JobEvent | None:
        """Return the next event; None after `timeout` seconds without one, or when the queue is `over`."""
        if not self._events and not self._closed:
            await self._wakeup.wait(timeout)
        if not self._events:
            return None
        event = self._events.popleft()
        self._resize(-len(event.body) - OVERHEAD)
        return event

    @property
    def over(self) -> bool:
        """Return whether all events have been read and no more will be added."""
        return self._closed and not self._events

    def _resize(self, change: int) -> None:
        self._size += change
        if self.on_size is not None:
            self.on_size(self._size)
