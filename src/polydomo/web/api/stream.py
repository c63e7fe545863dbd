"""Streams of a job's events as Server-Sent Events (formats: `sse`).

Stored events of a durable job (partial results and progress events) have an `id`: with it as `Last-Event-ID` a client
misses nothing and gets nothing twice, even across a restart of the broker. The ids are the store's numbers: when a live
event arrives, its number is the latest that the store has assigned.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from fastapi import APIRouter, Header
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from polydomo.core.pieces import unpack
from polydomo.core.principals import READ
from polydomo.core.result_history import JobResult
from polydomo.core.tracked_job import TrackedJob
from polydomo.store.errors import StoreError
from polydomo.store.records import EventRecord, PartialRecord
from polydomo.web import job_events
from polydomo.web.api import request_options, sse, views
from polydomo.web.api.job_results import load_result
from polydomo.web.api.openapi import JobId, failing, no_content, text_response
from polydomo.web.api.problems import problem_of
from polydomo.web.callers import caller_name, caller_of
from polydomo.web.clients import WebClients
from polydomo.web.connection import HttpConnection, connection_of
from polydomo.web.job_events import JobEvent
from polydomo.web.pending import PendingJob, last_event
from polydomo.web.waiting import called_back
from polydomo.wire.frames import Message

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer
    from polydomo.store import Store

EVENT_STREAM: Final = "text/event-stream"

# Seconds between comments that keep proxies from closing a quiet stream.
HEARTBEAT: Final = 15.0

# Rows that are read from the store at a time: few until their size is known, then about ROWS_BYTES, at most ROWS_MAX.
FIRST_ROWS: Final = 8
ROWS_BYTES: Final = 1024 * 1024
ROWS_MAX: Final = 500

_STREAM: Final = no_content("`Last-Event-ID` is the last event.") | text_response(
    "Server-Sent Events until the job ends.", EVENT_STREAM, "event: result\ndata: hello\n\n"
)


def make_router(server: BrokerServer, clients: WebClients) -> APIRouter:
    """Return the route for a job's events."""
    router = APIRouter(prefix="/v1", tags=["jobs"], default_response_class=Response)

    @router.get(
        "/jobs/{id}/events",
        summary="Follow a job",
        responses=failing("store") | _STREAM,
    )
    async def events(
        request: Request,
        id: JobId,
        last: Annotated[
            str | None,
            Header(
                alias="Last-Event-ID", description="continue after this event", pattern="^([0-9]{1,18}|end)$"
            ),
        ] = None,
    ) -> Response:
        """Stream the stored events of a job of any protocol, then live ones until it ends. 204: the client has
        received the last event already."""
        scope = request.scope
        if last == sse.END:
            return Response(status_code=204)
        after = int(last or 0)
        server.advance()
        caller = caller_of(server.broker, scope)
        job = server.broker.jobs.job_for(caller, id, READ)
        if job is None:
            ended = await load_result(clients, caller, id, connection_of(scope))
            source = _past(server.store, id, after, ended)
            return EventStreamResponse(source, connection_of(scope), kept=len(ended.body or b""))
        client = clients.get(
            request_options.client_of(scope, request_options.headers_of(scope)), caller_name(scope)
        )
        pending = client.watch(job)
        pending.listen()
        store = server.store if job.durable else None
        # Events up to this number are read from the store, later ones from the queue.
        latest = 0 if store is None else store.number
        source = _watched(store, pending, job.uid, after, latest)
        return EventStreamResponse(source, connection_of(scope), pending)

    return router


def event_stream(server: BrokerServer, pending: PendingJob, connection: HttpConnection) -> Response:
    """Return the events of a job that was just submitted."""
    ended = pending.ended
    if ended is not None and ended.failure is not None and not pending.accepted:
        raise problem_of(ended.failure)
    pending.listen()
    return EventStreamResponse(_submitted(server, pending), connection, pending)


class EventStreamResponse(Response):
    """A response that sends what its source yields, until the source ends or the peer disconnects."""

    def __init__(
        self,
        source: AsyncIterator[bytes],
        connection: HttpConnection,
        pending: PendingJob | None = None,
        kept: int = 0,
    ) -> None:
        super().__init__(None, 200, {"cache-control": "no-store", "x-accel-buffering": "no"}, EVENT_STREAM)
        del self.headers["content-length"]
        self.source = source
        self.connection = connection
        self.pending = pending
        self._queued = kept  # bytes waiting to be sent
        self._sending = 0  # bytes being sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.connection.on_disconnect = lambda: self._detach(disconnected=True)
        if self.pending is not None:
            self.pending.listen().on_size = lambda size: self._count(size, self._sending)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for chunk in self.source:
                self._count(self._queued, len(chunk))
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                self._count(self._queued, 0)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._detach(disconnected=False)

    def _count(self, queued: int, sending: int) -> None:
        """Report to the memory budget."""
        self._queued = queued
        self._sending = sending
        self.connection.hold(queued + sending)

    def _detach(self, disconnected: bool) -> None:
        pending = self.pending
        self.pending = None
        if pending is not None:
            pending.listen().discard()
            pending.detach(cancel=disconnected)


async def _submitted(server: BrokerServer, pending: PendingJob) -> AsyncIterator[bytes]:
    await pending.acceptance(server.settings.http.patience)
    if pending.job is not None and isinstance(pending.job, TrackedJob) and pending.accepted:
        described = views.active_job(server.broker, pending.job)
        yield sse.format_event(job_events.ACCEPTED, msgspec.json.encode(described).decode())
    async for chunk in _live(pending):
        yield chunk


async def _watched(
    store: Store | None, pending: PendingJob, uid: str, after: int, latest: int
) -> AsyncIterator[bytes]:
    yield sse.KEEP_ALIVE
    if store is not None:
        try:
            # Wait until earlier writes are on disk: writes are committed in order, so one more write tells.
            await called_back(partial(store.drop, "web", b"-"))
        except StoreError:  # the broker stops
            yield sse.encode_event(JobEvent(job_events.CUT))
            return
        async for chunk in _stored(store, uid, after, latest):
            yield chunk
    async for chunk in _live(pending):
        yield chunk


async def _past(store: Store | None, uid: str, after: int, ended: JobResult) -> AsyncIterator[bytes]:
    if store is not None:
        async for chunk in _stored(store, uid, after, store.number):
            yield chunk
    yield sse.encode_event(last_event(ended))


async def _live(pending: PendingJob) -> AsyncIterator[bytes]:
    listener = pending.listen()
    while not listener.over:
        event = await listener.next(HEARTBEAT)
        if event is not None:
            if event.kind != job_events.ACCEPTED:
                yield sse.encode_event(event)
        elif not listener.over:
            yield sse.KEEP_ALIVE


async def _stored(store: Store, uid: str, after: int, until: int) -> AsyncIterator[bytes]:
    """Yield stored events in order, reading some at a time."""
    most = FIRST_ROWS
    while after < until:
        try:
            partials = await store.partials(uid, after, most)
            events = await store.events(uid, after, most)
        except StoreError:
            yield sse.encode_event(JobEvent(job_events.CUT))
            return
        # After the end of a full list, the other one is incomplete.
        full = [rows[-1].number for rows in (partials, events) if len(rows) == most]
        stop = min([until, *full])
        found = [_partial(one) for one in partials if one.number <= stop]
        found += [_event(one) for one in events if one.number <= stop]
        largest = max((len(event.body) for event in found), default=0)
        most = max(1, min(ROWS_MAX, ROWS_BYTES // max(1, largest)))
        for event in sorted(found, key=lambda one: one.number):
            yield sse.encode_event(event)
        after = stop


def _partial(record: PartialRecord) -> JobEvent:
    """Return the event of a stored partial result; attempt 0 marks one worker's part (`server.store_adapter`)."""
    if record.attempt:
        return JobEvent(job_events.PARTIAL, body=record.body, number=record.number)
    message = Message(record.body, 0, len(record.body))
    message.take()
    piece = unpack(message.rest())[0]
    body = b"" if piece.reason else piece.body or b""
    return JobEvent(job_events.GATHERED, piece.name, body, failure=piece.failure(), number=record.number)


def _event(record: EventRecord) -> JobEvent:
    return JobEvent(job_events.EVENT, record.worker, record.body, word=record.kind, number=record.number)
