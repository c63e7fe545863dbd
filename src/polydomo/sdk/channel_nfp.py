"""NFP channel: one connection for jobs, many outstanding, distinguished by their UUIDs, and one for queries about jobs.

The connection for jobs asks the broker to push everything about them (`"push": true`). A job whose connection was lost
is sent again under its UUID: the broker takes it for the same job, so it is run once if the broker still knows it.
Queries (GET, PUT, DELETE, MMI) need replies that cannot be taken for a job's, so they have a second connection, in the
specification's strict dialog: one RESPONSE for each, in order.

As on DCP, the number of jobs outstanding is bounded below the broker's own bound; further calls wait for a slot.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from polydomo._version import __version__
from polydomo.core import failure as reasons
from polydomo.core.pieces import unpack
from polydomo.dialects.nfp.client import NfpAnswer, NfpClientProtocol
from polydomo.dialects.nfp.messages import EVENT, OPEN, STREAM
from polydomo.sdk.channel import ClientCall, ClientConnection, MultiplexedChannel, NoResult
from polydomo.sdk.connection import Dealer
from polydomo.sdk.failover import EndpointSelector
from polydomo.sdk.failures import FailureInfo
from polydomo.sdk.transport import ConnectionLost
from polydomo.wire.frames import Message, split

# The kind of event with which a Polydomo broker reports each worker's part of a gathered result.
GATHERED: Final = "gathered"

# Reasons of statuses whose body gives none (NFP §Status Frames).
_REASONS: Final = {400: "unknown", 408: reasons.EXPIRED, 417: "unexpected"}


class _FailureBody(FailureInfo):
    """The JSON of a failure as the broker writes it; `message`, `kind` and `traceback` are the worker's own."""

    reason: str = ""
    error: str = ""


class NfpChannel(MultiplexedChannel["NfpConnection"]):
    """Channel with one connection for jobs and one for queries, each opened on first use."""

    def __init__(
        self, selector: EndpointSelector, connect_timeout: float, ping: float, window: int, name: str
    ) -> None:
        super().__init__(selector, connect_timeout, ping, window)
        self._name = name
        self._open_reply: dict[str, Any] = {}  # the broker's latest answer to OPEN
        self._querying = asyncio.Lock()
        self._queries: NfpConnection | None = None

    async def ask(self, message: bytes) -> NfpAnswer:
        """Send a query, made with `NfpClientProtocol`, and return its response. One query at a time."""
        async with self._querying:
            connection = self._queries
            if connection is None or connection not in self._connections:
                connection = self._queries = await self._connect_nfp(push=False)
                self._connections.add(connection)
            try:
                return await connection.ask(message)
            except BaseException:  # a response that comes later would be taken for the next query's
                connection.close()
                raise

    async def open(self) -> dict[str, Any]:
        """Connect if necessary, and return the broker's answer to OPEN."""
        await self._open()
        return self._open_reply

    @property
    def host(self) -> str:
        """The host of the connected broker; empty if it has none."""
        connection = self._connection
        endpoint = None if connection is None else connection.transport.address.endpoint
        return "" if endpoint is None or endpoint.is_ipc else endpoint.host

    async def _dial(self) -> NfpConnection:
        return await self._connect_nfp(push=True)

    async def _connect_nfp(self, push: bool) -> NfpConnection:
        """Return a connection whose OPEN was answered (NFP §OPEN)."""
        connection = NfpConnection(self)
        connection.transport = await self._connect(connection.received, connection.lost)
        properties: dict[str, Any] = {"version": __version__}
        if push:
            properties["push"] = True
            if self._name:
                properties["name"] = self._name
        transport = connection.transport
        try:
            async with self.selector.clock.timeout(self._connect_timeout):
                answer = await connection.ask(connection.protocol.open(msgspec.json.encode(properties)))
        except TimeoutError:
            self.selector.failed(transport.address)
            transport.close()
            raise ConnectionLost(f"{transport.address}: OPEN was not answered: does it speak NFP?") from None
        except BaseException:
            transport.close()
            raise
        self._open_reply = _json_object(answer.body)
        return connection


class NfpConnection(ClientConnection):
    """One connection, and the jobs or the query outstanding on it."""

    transport: Dealer

    def __init__(self, channel: NfpChannel) -> None:
        super().__init__(channel)
        self.protocol = NfpClientProtocol()
        self._jobs: dict[bytes, list[tuple[ClientCall, asyncio.Future[bytes]]]] = {}
        self._query: asyncio.Future[NfpAnswer] | None = None

    async def exchange(self, call: ClientCall) -> bytes:
        """Send POST and return the final body."""
        await self._writable()
        uuid = call.uid.encode()
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        waiters = self._jobs.setdefault(uuid, [])
        waiters.append((call, reply))
        call.native = False  # NFP's failures have statuses of their own
        call.sent += 1
        self.transport.send(self.protocol.post(call.service, call.target, uuid, call.body))
        try:
            return await self._wait(reply)
        except asyncio.CancelledError:
            # Sent after the POST on the same connection: it cannot overtake, and its response is not awaited.
            if call.cancelled and not self.transport.closed and len(waiters) == 1:
                self.transport.send(self.protocol.delete(call.service, call.target, uuid))
                call.delete_sent = True
            raise
        finally:
            waiters.remove((call, reply))
            if not waiters:
                del self._jobs[uuid]

    async def ask(self, message: bytes) -> NfpAnswer:
        """Send a command and return its one response."""
        self._query = query = asyncio.get_running_loop().create_future()
        self.transport.send(message)
        try:
            return await self._wait(query)
        finally:
            self._query = None

    def received(self, message: Message) -> None:
        answer = self.protocol.receive(message)
        if answer is None:
            return
        if answer.command == OPEN or self._query is not None:
            if self._query is not None and not self._query.done():
                self._query.set_result(answer)
            return
        for call, reply in self._jobs.get(answer.uuid, ()):
            if not reply.done():
                _deliver(answer, call, reply)


def failure_info(answer: NfpAnswer) -> FailureInfo:
    """Return why there is no result, from a RESPONSE of 400 or more."""
    frames = split(answer.body)
    text = frames[0] if frames else b""
    try:
        failure = msgspec.json.decode(text, type=_FailureBody)
    except msgspec.DecodeError:
        failure = _FailureBody(error=text.decode(errors="replace"))
    reason = failure.reason or _REASONS.get(answer.status, "failed")
    message = failure.message or failure.error or f"the broker says {answer.status}"
    return FailureInfo(reason, message, failure.kind, failure.traceback)


def _deliver(answer: NfpAnswer, call: ClientCall, reply: asyncio.Future[bytes]) -> None:
    if answer.command == EVENT:
        _deliver_event(call, answer.body)
    elif answer.command == STREAM:
        message = Message(answer.body, 0, len(answer.body))
        message.take()  # the worker's name
        if call.partial is not None:
            call.partial(message.rest())
    elif answer.status == 202:
        if call.observer is not None:
            workers = _json_object(answer.body).get("workers")
            call.observer.accepted([str(name) for name in workers] if isinstance(workers, list) else [])
    elif answer.status == 200:
        reply.set_result(answer.body)
    elif answer.status >= 400:
        reply.set_exception(NoResult(failure_info(answer)))


def _deliver_event(call: ClientCall, body: bytes) -> None:
    frames = split(body)
    if call.observer is None or len(frames) < 3:
        return
    worker, kind = frames[0].decode(errors="replace"), frames[1].decode(errors="replace")
    if kind == GATHERED:
        # One frame that holds a packed piece, or the piece's own frames.
        message = Message(body, 0, len(body))
        message.take()
        message.take()
        for piece in unpack(frames[2] if len(frames) == 3 else message.rest()):
            call.observer.gathered(piece)
    else:
        call.observer.event(worker, kind, frames[2])


def _json_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body's first frame, or an empty one if it is none."""
    frames = split(body)
    try:
        found = msgspec.json.decode(frames[0]) if frames else None
    except msgspec.DecodeError:
        found = None
    return found if isinstance(found, dict) else {}
