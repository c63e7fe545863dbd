"""A call under way: wait for its result, watch its partial answers, or stop waiting."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import Any, NamedTuple, TypeVar

import msgspec

from polydomo.core.gather import Piece
from polydomo.errors import JobFailed
from polydomo.sdk import codecs, gather_codec
from polydomo.sdk.channel import Call, Watch
from polydomo.sdk.codecs import Codec

T = TypeVar("T")


class Event(NamedTuple):
    """What a worker says beside its answers. `body` is a value if it was JSON, else `bytes`."""

    service: str
    worker: str
    kind: str
    body: Any


class Control(ABC):
    """What can be done about a job from outside, where the dialect has words for it."""

    @abstractmethod
    async def put(self, service: str, uid: str, value: Any, codec: Codec) -> None:
        """Give the running job something more."""


def event_body(body: bytes) -> Any:
    """JSON is decoded, anything else stays as it is; an empty frame is None."""
    if not body:
        return None
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body


class Handle:
    """Given by `Client.submit`. `await handle` is `await handle.result()`.

    `id` is the job's UUID, by which any client can ask for it later (`Client.job`); empty where the dialect has none.
    Partial answers and events are kept until they are read. If the connection was lost and the call sent again,
    partial answers begin anew where the job is run again.
    """

    def __init__(
        self,
        service: str,
        codec: Codec,
        call: Call,
        perform: Callable[[Call], Coroutine[Any, Any, bytes]],
        control: Control | None = None,
        gathers: bool = False,
    ) -> None:
        self.service = service
        self.id = call.uid
        self.codec = codec
        self._gathers = gathers  # several workers' answers, in one
        self._control = control
        self._call = call
        self._partials: deque[bytes] = deque()
        self._events: deque[Event] = deque()
        self._news = asyncio.Event()
        self._is_accepted = False
        self.workers: list[str] = []  # whom it is for, if the broker said so
        self._pieces: deque[Piece] = deque()
        call.partial = self._partial
        call.watch = _Watch(self)
        self._task = asyncio.create_task(perform(call))
        self._task.add_done_callback(self._ended)

    def done(self) -> bool:
        """Has it ended, well or not?"""
        return self._task.done()

    async def accepted(self) -> None:
        """Until the broker has taken the job; if it is durable, it is on disk then. Where the dialect has no word for
        that (MDP, DCP), until the job has ended. If it is refused, so is this."""
        while not self._is_accepted and not self._task.done():
            await self._change()
        if not self._is_accepted:
            await self.body()

    async def result(self) -> Any:
        """The final answer, decoded, or the error in its place. May be asked for more than once."""
        body = await self.body()
        return (
            gather_codec.decode(body, self.codec, self.service)
            if self._gathers
            else codecs.decode(body, self.codec)
        )

    async def partials(self) -> AsyncIterator[Any]:
        """Partial answers as they come, decoded; ends when the job does. Each is given once."""
        async for body in self._each(self._partials):
            yield codecs.decode(body, self.codec)

    async def events(self) -> AsyncIterator[Event]:
        """What workers say about this job (NFP only) as it comes; ends when the job does. Each is given once."""
        async for event in self._each(self._events):
            yield event

    async def put(self, value: Any) -> None:
        """Give the running job something more (NFP only): its function gets it from `ctx.input()`."""
        if self._control is None:
            raise RuntimeError("only NFP has a way to add to a running job")
        await self.accepted()
        await self._control.put(self.service, self.id, value, self.codec)

    def cancel(self) -> None:
        """Stop waiting. On NFP the job itself is ended, too (DELETE); MDP and DCP have no word for that."""
        self._call.withdrawn = True
        self._task.cancel()

    def __await__(self) -> Generator[Any, None, Any]:
        return self.result().__await__()

    async def body(self) -> bytes:
        """For those who build on this: the final body, canonical (`wire.frames`)."""
        try:
            return await asyncio.shield(self._task)
        except asyncio.CancelledError:
            if self._task.cancelled():
                raise JobFailed(f"{self.service}: given up with cancel()", reason="cancelled") from None
            raise

    async def pieces(self) -> AsyncIterator[Piece]:
        """For those who build on this: several workers' answers as they come."""
        async for piece in self._each(self._pieces):
            yield piece

    async def _each(self, kept: deque[T]) -> AsyncIterator[T]:
        while True:
            while kept:
                yield kept.popleft()
            if self._task.done():
                return
            await self._change()

    async def _change(self) -> None:
        """Until anything is new. Several may wait for it."""
        await self._news.wait()

    def _announce(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _taken(self, workers: list[str]) -> None:
        self._is_accepted = True
        self.workers = workers or self.workers
        self._announce()

    def _event(self, worker: str, kind: str, body: bytes) -> None:
        self._events.append(Event(self.service, worker, kind, event_body(body)))
        self._announce()

    def _gathered(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self._announce()

    def _partial(self, body: bytes) -> None:
        self._partials.append(body)
        self._announce()

    def _ended(self, task: asyncio.Task[bytes]) -> None:
        self._announce()
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not complain if nobody asks for the result


class _Watch(Watch):
    """A handle's ear."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def accepted(self, workers: list[str]) -> None:
        self._handle._taken(workers)

    def event(self, worker: str, kind: str, body: bytes) -> None:
        self._handle._event(worker, kind, body)

    def gathered(self, piece: Piece) -> None:
        self._handle._gathered(piece)
