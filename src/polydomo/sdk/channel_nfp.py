"""NFP's way: one connection for jobs, many outstanding, told apart by their UUIDs, and one for questions about jobs.

Jobs go out on a line that asks the broker for everything about them by itself (`"push": true`). A job whose connection
was lost is sent again under its UUID: to the broker that is the same job, so it is run once if the broker still knows
it. Questions (GET, PUT, DELETE, MMI) need answers that cannot be taken for a job's, so they have a second line, in the
specification's strict dialog: one RESPONSE for each, in turn.

As on DCP, the number of jobs outstanding is bounded below the broker's own bound; calls beyond it wait their turn.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from polydomo._version import __version__
from polydomo.core import job as reasons
from polydomo.core.gather import unpack
from polydomo.dialects.nfp.client import NfpAnswer, NfpClientProtocol
from polydomo.dialects.nfp.messages import EVENT, OPEN, STREAM
from polydomo.sdk.channel import Call, Channel, NoResult
from polydomo.sdk.connection import Dealer, Lost
from polydomo.sdk.failover import EndpointSelector
from polydomo.sdk.failures import Account
from polydomo.wire.frames import Message, split

# The kind of event by which our broker tells of each worker's part in a gathered result.
GATHERED: Final = "gathered"

# What a status means where its body gives no reason (NFP §Status Frames).
_REASONS: Final = {400: "unknown", 408: reasons.EXPIRED, 417: "unexpected"}


class _Trouble(msgspec.Struct):
    """The JSON in a failure as the broker writes it; `message`, `kind` and `traceback` are the worker's own."""

    reason: str = ""
    error: str = ""
    message: str = ""
    kind: str = ""
    traceback: str = ""


class NfpChannel(Channel):
    """Lines are opened when they are first needed and again after they were lost."""

    def __init__(
        self, roster: EndpointSelector, connect_timeout: float, ping: float, window: int, name: str
    ) -> None:
        super().__init__(roster, connect_timeout, ping)
        self.name = name
        self.hello: dict[str, Any] = {}  # what the broker said of itself when it was last met
        self._turns = asyncio.Semaphore(window)
        self._opening = asyncio.Lock()
        self._asking = asyncio.Lock()
        self._line: NfpConnection | None = None
        self._desk: NfpConnection | None = None  # for questions
        self._retired: set[NfpConnection] = set()  # with calls under way

    async def exchange(self, call: Call) -> bytes:
        async with self._turns:
            line = self._line or await self._open()
            return await line.exchange(call)

    async def ask(self, message: bytes) -> NfpAnswer:
        """A command whose answer is its own: one at a time. `message` is made with `side`."""
        async with self._asking:
            line = self._desk
            if line is None:
                line = self._desk = await self._connected(push=False)
            try:
                return await line.ask(message)
            except BaseException:  # an answer that comes later would be taken for the next one's
                self._desk = None
                line.dealer.close()
                raise

    async def open(self) -> dict[str, Any]:
        """Meet the broker, if that is not done yet: what it says of itself."""
        if self._line is None:
            await self._open()
        return self.hello

    @property
    def host(self) -> str:
        """Of the broker that is in use; empty if it has none."""
        line = self._line
        endpoint = None if line is None else line.dealer.place.endpoint
        return "" if endpoint is None or endpoint.is_ipc else endpoint.host

    def retire(self) -> None:
        if self._line is not None:
            self.roster.failed(self._line.dealer.place)
        self.renew()

    def renew(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            self._retired.add(line)
            line.retire()
        desk, self._desk = self._desk, None
        if desk is not None and not self._asking.locked():
            desk.dealer.close()

    def close(self) -> None:
        self.closed = True
        self.roster.close()
        for line in (*self._retired, self._line, self._desk):
            if line is not None:
                line.lost("the client was closed")
                line.dealer.close()

    def drop(self, line: NfpConnection) -> None:
        """It is of no use any more."""
        self._retired.discard(line)
        if self._line is line:
            self._line = None
        if self._desk is line:
            self._desk = None

    async def _open(self) -> NfpConnection:
        """Whoever comes first opens it, the others wait."""
        async with self._opening:
            if self._line is None:
                self._line = await self._connected(push=True)
            return self._line

    async def _connected(self, push: bool) -> NfpConnection:
        """A line whose OPEN was answered (NFP §OPEN)."""
        line = NfpConnection(self)
        line.dealer = await self._connect(line.received, line.lost)
        hello: dict[str, Any] = {"version": __version__}
        if push:
            hello["push"] = True
            if self.name:
                hello["name"] = self.name
        try:
            async with self.roster.clock.timeout(self._connect_timeout):
                answer = await line.ask(line.side.open(msgspec.json.encode(hello)))
        except TimeoutError:
            self.roster.failed(line.dealer.place)
            line.dealer.close()
            raise Lost(f"{line.dealer.place}: OPEN was not answered: does it speak NFP?") from None
        except BaseException:
            line.dealer.close()
            raise
        self.hello = _object(answer.body)
        return line


class NfpConnection:
    """One connection, and the calls or the question on it."""

    def __init__(self, channel: NfpChannel) -> None:
        self.dealer: Dealer
        self.side = NfpClientProtocol()
        self._channel = channel
        self._retired = False
        self._waiting: dict[bytes, list[tuple[Call, asyncio.Future[bytes]]]] = {}
        self._question: asyncio.Future[NfpAnswer] | None = None

    async def exchange(self, call: Call) -> bytes:
        """POST, and everything up to its end."""
        dealer = self.dealer
        await dealer.writable()
        if dealer.closed:
            raise Lost("the connection broke before the request was sent")
        uuid = call.uid.encode()
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        waiting = (call, answer)
        self._waiting.setdefault(uuid, []).append(waiting)
        call.native = False  # failures have a word of their own here
        call.sent += 1
        dealer.send(self.side.post(call.service, call.target, uuid, call.body))
        dealer.expect(1)
        try:
            return await answer
        except asyncio.CancelledError:
            # On the same connection, behind the POST: nothing can be overtaken, and nobody waits for the answer.
            if call.withdrawn and not dealer.closed and len(self._waiting[uuid]) == 1:
                dealer.send(self.side.delete(call.service, call.target, uuid))
                call.deleted = True
            raise
        finally:
            dealer.expect(-1)
            waiters = self._waiting[uuid]
            waiters.remove(waiting)
            if not waiters:
                del self._waiting[uuid]
            if self._retired and not self._waiting:
                self._end()

    async def ask(self, message: bytes) -> NfpAnswer:
        """A command and its one answer."""
        question: asyncio.Future[NfpAnswer] = asyncio.get_running_loop().create_future()
        self._question = question
        self.dealer.send(message)
        self.dealer.expect(1)
        try:
            return await question
        finally:
            self.dealer.expect(-1)
            self._question = None

    def retire(self) -> None:
        """Close when the calls that are on it have been answered."""
        self._retired = True
        if not self._waiting:
            self._end()

    def received(self, message: Message) -> None:
        answer = self.side.receive(message)
        if answer is None:
            return
        if answer.command == OPEN or self._question is not None:
            if self._question is not None and not self._question.done():
                self._question.set_result(answer)
            return
        for call, end in self._waiting.get(answer.uuid, ()):
            if end.done():
                continue
            if answer.command == EVENT:
                _tell_event(call, answer.body)
            elif answer.command == STREAM:
                _tell_piece(call, answer.body)
            elif answer.status == 202:
                if call.watch is not None:
                    workers = _object(answer.body).get("workers")
                    call.watch.accepted([str(name) for name in workers] if isinstance(workers, list) else [])
            elif answer.status == 200:
                end.set_result(answer.body)
            elif answer.status >= 400:
                end.set_exception(NoResult(account_of(answer)))

    def lost(self, reason: str) -> None:
        self._channel.roster.failed(self.dealer.place)
        self._channel.drop(self)
        if self._question is not None and not self._question.done():
            self._question.set_exception(Lost(reason))
        for waiters in self._waiting.values():
            for _, end in waiters:
                if not end.done():
                    end.set_exception(Lost(reason))

    def _end(self) -> None:
        self.dealer.close()
        self._channel.drop(self)


def account_of(answer: NfpAnswer) -> Account:
    """Why there is no result, from a RESPONSE of 400 or more."""
    frames = split(answer.body)
    text = frames[0] if frames else b""
    try:
        trouble = msgspec.json.decode(text, type=_Trouble)
    except msgspec.DecodeError:
        trouble = _Trouble(error=text.decode(errors="replace"))
    reason = trouble.reason or _REASONS.get(answer.status, "failed")
    message = trouble.message or trouble.error or f"the broker says {answer.status}"
    return Account(reason, message, trouble.kind, trouble.traceback)


def _tell_event(call: Call, body: bytes) -> None:
    frames = split(body)
    if call.watch is None or len(frames) < 3:
        return
    worker, kind = frames[0].decode(errors="replace"), frames[1].decode(errors="replace")
    if kind == GATHERED:
        # One frame that holds a packed piece, or the piece's own frames.
        message = Message(body, 0, len(body))
        message.take()
        message.take()
        for piece in unpack(frames[2] if len(frames) == 3 else message.rest()):
            call.watch.gathered(piece)
    else:
        call.watch.event(worker, kind, frames[2])


def _tell_piece(call: Call, body: bytes) -> None:
    message = Message(body, 0, len(body))
    message.take()  # the worker's name
    if call.partial is not None:
        call.partial(message.rest())


def _object(body: bytes) -> dict[str, Any]:
    """The JSON object in a body's first frame; an empty one if it is none."""
    frames = split(body)
    try:
        found = msgspec.json.decode(frames[0]) if frames else None
    except msgspec.DecodeError:
        found = None
    return found if isinstance(found, dict) else {}
