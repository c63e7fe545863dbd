"""A submitted job: wait for its result, read its partial results and events, or cancel it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from typing import Any, NamedTuple, TypeVar

import msgspec

from polydomo.core.pieces import Piece
from polydomo.errors import JobFailed
from polydomo.sdk import codecs, gather_codec
from polydomo.sdk.channel import ClientCall, JobObserver
from polydomo.sdk.codecs import Codec

T = TypeVar("T")

# Sends input to a running job: service, UUID, value, codec.
Put = Callable[[str, str, Any, Codec], Awaitable[None]]


class Event(NamedTuple):
    """A worker's progress event. `body` is a value if it was JSON, else `bytes`."""

    service: str
    worker: str
    kind: str
    body: Any


def event_body(body: bytes) -> Any:
    """Decode JSON; return any other body unchanged, and None for an empty one."""
    if not body:
        return None
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body


class Handle:
    """A submitted job, returned by `Client.submit`. `await handle` is `await handle.result()`.

    `id` is the job's UUID, with which any client can query it later (`Client.job`); empty in dialects without UUIDs.
    Partial results and events are kept until they are read. If the connection was lost and the job is run again, its
    partial results start over.
    """

    def __init__(
        self,
        call: ClientCall,
        perform: Callable[[ClientCall], Coroutine[Any, Any, bytes]],
        put: Put | None = None,
        gathers: bool = False,
    ) -> None:
        self.service = call.name
        self.id = call.uid
        self.codec = call.codec
        self.workers: list[str] = []  # the workers the job is for, if the broker named them
        self._gathers = gathers  # the result combines several workers' replies
        self._put = put
        self._call = call
        self._partials: deque[bytes] = deque()
        self._events: deque[Event] = deque()
        self._pieces: deque[Piece] = deque()
        self._is_accepted = False
        self._changed = asyncio.Event()  # replaced at each change
        call.partial = self._on_partial
        call.observer = JobObserver(self._on_accepted, self._on_event, self._on_gathered)
        self._task = asyncio.create_task(perform(call))
        self._task.add_done_callback(self._on_end)

    def done(self) -> bool:
        """Return whether the job has ended, with or without a result."""
        return self._task.done()

    async def accepted(self) -> None:
        """Wait until the broker has accepted the job; a durable one is on disk then. In dialects without such a message
        (MDP, DCP) wait until the job has ended. Raises the job's error if it is refused."""
        while not self._is_accepted and not self._task.done():
            await self._changed.wait()
        if not self._is_accepted:
            await self.body()

    async def result(self) -> Any:
        """Wait for the final result and return it decoded, or raise the job's error. May be called more than once."""
        body = await self.body()
        if self._gathers:
            return gather_codec.decode(body, self.codec, self.service)
        return codecs.decode(body, self.codec)

    async def partials(self) -> AsyncIterator[Any]:
        """Yield partial results, decoded, as they arrive, until the job ends. Each is yielded once."""
        async for body in self._each(self._partials):
            yield codecs.decode(body, self.codec)

    async def events(self) -> AsyncIterator[Event]:
        """Yield the workers' events about this job (NFP only) as they arrive, until it ends. Each is yielded once."""
        async for event in self._each(self._events):
            yield event

    async def put(self, value: Any) -> None:
        """Send input to the running job (NFP only); its function gets it from `ctx.input()`."""
        if self._put is None:
            raise RuntimeError("only NFP has a way to add to a running job")
        await self.accepted()
        await self._put(self.service, self.id, value, self.codec)

    def cancel(self) -> None:
        """Stop waiting. On NFP the job itself is cancelled, too (DELETE); MDP and DCP cannot cancel jobs."""
        self._call.cancelled = True
        self._task.cancel()

    def __await__(self) -> Generator[Any, None, Any]:
        return self.result().__await__()

    async def body(self) -> bytes:
        """Wait for the final body and return it undecoded (canonical, `wire.frames`)."""
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            if self._task.cancelled():
                raise JobFailed(f"{self.service}: cancelled by the client", reason="cancelled") from None
            raise

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield several workers' replies, undecoded, as they arrive."""
        async for piece in self._each(self._pieces):
            yield piece

    async def _each(self, unread: deque[T]) -> AsyncIterator[T]:
        while True:
            while unread:
                yield unread.popleft()
            if self._task.done():
                return
            await self._changed.wait()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _on_accepted(self, workers: list[str]) -> None:
        self._is_accepted = True
        self.workers = workers or self.workers
        self._notify()

    def _on_event(self, worker: str, kind: str, body: bytes) -> None:
        self._events.append(Event(self.service, worker, kind, event_body(body)))
        self._notify()

    def _on_gathered(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self._notify()

    def _on_partial(self, body: bytes) -> None:
        self._partials.append(body)
        self._notify()

    def _on_end(self, task: asyncio.Task[bytes]) -> None:
        self._notify()
        if not task.cancelled():
            task.exception()  # retrieved, or asyncio would log it when no caller asks for the result
