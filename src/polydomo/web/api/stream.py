"""What happens to a job, while it happens: a stream of Server-Sent Events (`sse` says what they look like).

Of a durable job, what is kept (partial answers and events) has an `id`: with it as `Last-Event-ID` nothing is missed
and nothing comes twice, also over a restart of the broker. The store's own numbers are these ids: at the moment a live
one is heard, its number is the latest that the store has given.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from fastapi import APIRouter, Header, Path
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from polydomo.core.gather import unpack
from polydomo.store.errors import StoreError
from polydomo.store.records import EventRecord, PartialRecord
from polydomo.web import job_events
from polydomo.web.api import request_options, sse, views
from polydomo.web.api.job_results import ended_of
from polydomo.web.api.openapi import Answers, failing
from polydomo.web.api.problems import problem, problem_of
from polydomo.web.clients import Outcome, PendingJob, WebClients, last_of
from polydomo.web.connection import Connection, connection_of
from polydomo.web.job_events import JobEvent
from polydomo.wire.frames import Message

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer
    from polydomo.store import Store

EVENT_STREAM: Final = "text/event-stream"

# A comment so often keeps proxies from taking a quiet stream for a dead one.
HEARTBEAT: Final = 15.0

# Rows that are read from the store at a time: few as long as it is not known how large they are, then so many that
# they have about so many bytes together, but no more than that.
FIRST_ROWS: Final = 8
ROWS_BYTES: Final = 1024 * 1024
ROWS: Final = 500

_STREAM: Final[Answers] = {
    204: {"description": "There is nothing behind the end."},
    200: {
        "description": "Server-Sent Events until the job has ended.",
        "content": {
            EVENT_STREAM: {"schema": {"type": "string"}, "example": "event: result\ndata: hello\n\n"}
        },
    },
}


def make_router(server: BrokerServer, clients: WebClients) -> APIRouter:
    """See the module's text."""
    router = APIRouter(prefix="/v1", tags=["jobs"])

    @router.get(
        "/jobs/{id}/events",
        summary="Hear what happens to a job",
        responses=failing("malformed", "not-found", "store") | _STREAM,
    )
    async def events(
        request: Request,
        id: Annotated[str, Path(description="the job's id", min_length=1, max_length=255)],
        last: Annotated[
            str | None,
            Header(alias="Last-Event-ID", description="go on behind this one", pattern="^([0-9]{1,18}|end)$"),
        ] = None,
    ) -> Response:
        """What is kept of it comes first, then what happens, until its end. A job of any protocol. 204: its end was
        heard already."""
        scope = request.scope
        if last == sse.END:
            return Response(status_code=204)
        after = int(last or 0)
        server.advance()
        job = server.broker.find(id)
        if job is None or job.extra is None:
            ended = await ended_of(clients, id, connection_of(scope))
            if ended is None:
                raise problem("not-found", f"there is no job {id[:100]!r}, or it is not kept any more")
            outcome = Outcome(ended.body, ended.failure, ended.gathered, ended.worker)
            return Stream(
                _past(server.store, id, after, outcome), connection_of(scope), kept=len(ended.body or b"")
            )
        client = clients.of(request_options.client_of(scope, request_options.headers_of(scope)))
        ticket = client.watch(job)
        ticket.listen()
        store = server.store if job.extra.durable else None
        # What is numbered up to here is in the store, or on its way there; what comes next is heard.
        latest = 0 if store is None else store.number
        source = _watched(store, ticket, job.extra.uid, after, latest)
        return Stream(source, connection_of(scope), ticket)

    return router


def stream_of(server: BrokerServer, ticket: PendingJob, connection: Connection | None) -> Response:
    """All that happens to a job that has just been submitted."""
    ended = ticket.ended
    if ended is not None and ended.failure is not None and not ticket.accepted:
        return problem_of(ended.failure).response()
    ticket.listen()
    return Stream(_submitted(server, ticket), connection, ticket, owns=True)


class Stream(Response):
    """Sends what its source gives, until that ends or nobody reads any more."""

    def __init__(
        self,
        source: AsyncIterator[bytes],
        connection: Connection | None,
        ticket: PendingJob | None = None,
        owns: bool = False,
        kept: int = 0,
    ) -> None:
        super().__init__(None, 200, {"cache-control": "no-store", "x-accel-buffering": "no"}, EVENT_STREAM)
        del self.headers["content-length"]
        self.source = source
        self.connection = connection
        self.ticket = ticket
        self.owns = owns  # the job is this request's own: nobody else waits for it
        self._queued = kept  # bytes that wait for the connection
        self._sending = 0  # bytes that it is given

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.connection is not None:
            self.connection.on_gone = self._gone
            if self.ticket is not None:
                self.ticket.listen().on_size = self._queue
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for chunk in self.source:
                self._count(self._queued, len(chunk))
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                self._count(self._queued, 0)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._leave(False)

    def _queue(self, size: int) -> None:
        self._count(size, self._sending)

    def _count(self, queued: int, sending: int) -> None:
        """Tell the memory budget."""
        self._queued = queued
        self._sending = sending
        if self.connection is not None:
            self.connection.keep(queued + sending)

    def _gone(self) -> None:
        self._leave(True)

    def _leave(self, gone: bool) -> None:
        ticket = self.ticket
        self.ticket = None
        if ticket is None:
            return
        if ticket.listener is not None:
            ticket.listener.discard()
        if not self.owns:
            ticket.client.unwatch(ticket)
        elif gone:
            ticket.abandon()
        else:
            ticket.let_go()


async def _submitted(server: BrokerServer, ticket: PendingJob) -> AsyncIterator[bytes]:
    await ticket.acceptance(server.settings.http.patience)
    if ticket.job is not None and ticket.job.extra is not None and ticket.accepted:
        described = views.living(server.broker, ticket.job)
        yield sse.event(job_events.ACCEPTED, msgspec.json.encode(described).decode())
    async for chunk in _live(ticket):
        yield chunk


async def _watched(
    store: Store | None, ticket: PendingJob, uid: str, after: int, latest: int
) -> AsyncIterator[bytes]:
    yield sse.QUIET
    if store is not None:
        try:
            await _written(store)
        except StoreError:  # the broker stops
            yield sse.told(JobEvent(job_events.CUT))
            return
        async for chunk in _kept(store, uid, after, latest):
            yield chunk
    async for chunk in _live(ticket):
        yield chunk


async def _past(store: Store | None, uid: str, after: int, outcome: Outcome) -> AsyncIterator[bytes]:
    if store is not None:
        async for chunk in _kept(store, uid, after, store.number):
            yield chunk
    yield sse.told(last_of(outcome))


async def _live(ticket: PendingJob) -> AsyncIterator[bytes]:
    listener = ticket.listen()
    while not listener.over:
        happening = await listener.next(HEARTBEAT)
        if happening is not None:
            if happening.kind != job_events.ACCEPTED:
                yield sse.told(happening)
        elif not listener.over:
            yield sse.QUIET


async def _written(store: Store) -> None:
    """Until what was given to the store is on disk: writes are done in their order, so one more tells."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def written(error: StoreError | None) -> None:
        if not done.done():
            done.set_result(None)

    store.drop("web", b"-", written)
    await done


async def _kept(store: Store, uid: str, after: int, until: int) -> AsyncIterator[bytes]:
    """What the store has, in order, some at a time."""
    most = FIRST_ROWS
    while after < until:
        try:
            partials = await store.partials(uid, after, most)
            events = await store.events(uid, after, most)
        except StoreError:
            yield sse.told(JobEvent(job_events.CUT))
            return
        # Behind the end of a list that is full, the other one is not complete.
        full = [rows[-1].number for rows in (partials, events) if len(rows) == most]
        stop = min([until, *full])
        found = [_partial(one) for one in partials if one.number <= stop]
        found += [_event(one) for one in events if one.number <= stop]
        largest = max((len(happening.body) for happening in found), default=0)
        most = max(1, min(ROWS, ROWS_BYTES // max(1, largest)))
        for happening in sorted(found, key=lambda one: one.number):
            yield sse.told(happening)
        after = stop


def _partial(record: PartialRecord) -> JobEvent:
    """One of attempt 0 is what one of several workers answered (`server.store_adapter`)."""
    if record.attempt:
        return JobEvent(job_events.PARTIAL, body=record.body, number=record.number)
    message = Message(record.body, 0, len(record.body))
    message.take()
    piece = unpack(message.rest())[0]
    body = b"" if piece.reason else piece.body or b""
    return JobEvent(job_events.GATHERED, piece.name, body, failure=piece.failure(), number=record.number)


def _event(record: EventRecord) -> JobEvent:
    return JobEvent(job_events.EVENT, record.worker, record.body, word=record.kind, number=record.number)
