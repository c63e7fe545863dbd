"""The broker's side of memo01: one session per connection, and what all sessions share.

A connection carries many NNG contexts: clients and workers in any mix, each with one request at a time. Two shortcuts
handle nearly all traffic: a RESULT of a worker whose ID this broker assigned, and a JOB with the same header as the
last one. Everything else is decoded item by item, and only there can a message be refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from polydomo.core.broker import Broker
from polydomo.core.model import Job
from polydomo.core.timers import CallTimer
from polydomo.dialects.memo import messages
from polydomo.dialects.memo.broker_client import MemoClient
from polydomo.dialects.memo.broker_worker import BUSY, WAITING, MemoWorker, MemoWorkers
from polydomo.dialects.memo.connection import MemoPeerConnection, SpTransport
from polydomo.dialects.memo.reconnect import (
    GracePeriod,
    InterruptedRequest,
    InterruptedRequests,
    ReconnectMatcher,
)
from polydomo.dialects.session import Outbox
from polydomo.errors import ProtocolError
from polydomo.wire.frames import shown
from polydomo.wire.sp.connection import Handler

# Where the ID begins and ends in a RESULT of a worker whose ID this broker assigned.
_ID: Final = len(messages.WORKER_RESULT)
_ID_END: Final = _ID + messages.ID_SIZE

# A JOB's header up to this size is remembered, to recognise the next one with the same header.
JOB_HEADER_MAX: Final = 128


class MemoContext:
    """State that all connections share. `random` returns that many random bytes."""

    def __init__(self, broker: Broker, outbox: Outbox, random: Callable[[int], bytes]) -> None:
        self.broker = broker
        self.outbox = outbox
        self.workers = MemoWorkers(broker, random)
        self.interrupted = InterruptedRequests()
        self.reconnects = ReconnectMatcher()
        self.connected = 0  # connections so far
        self.repeats = 0  # repeated requests that were ignored
        self.returned = 0  # requests repeated on another connection
        self.wait = 10.0
        self.retries = 0
        self.grace = 10.0

    def end_grace(self, grace: GracePeriod) -> None:
        """Give up the requests of a broken connection that were not repeated, and its workers.

        Busy workers of a connection that was replaced are kept: they send nothing before their results.
        """
        self.reconnects.remove(grace)
        for request in grace.requests:
            if request.grace is grace and request.connection is None:
                self.interrupted.remove(request)
                job = request.job
                port = None if job is None else job.client.port
                if job is not None and isinstance(port, MemoClient):
                    port.give_up(job)
        for id in list(grace.connection.workers):
            worker = self.workers.by_id[id]
            if worker.state == WAITING or not grace.replaced:
                worker.leave("connection lost")


class MemoSession(Handler):
    """Session of one connection: it decodes requests and passes them to the client and the workers."""

    def __init__(
        self,
        memo: MemoContext,
        transport: SpTransport,
        write: Callable[[bytes], object],
        host: str,
        ipc: bool,
    ) -> None:
        memo.connected += 1
        name = b"memo-connection-%d" % memo.connected
        self.memo = memo
        self.broker = memo.broker
        self.connection = MemoPeerConnection(name, transport, memo.outbox, write, host, ipc)
        self.client: MemoClient | None = None
        self._last_header = b""  # of the last JOB, with what it says
        self._last_service = b""
        self._last_limit = 0.0

    # Handler

    def transmit(self, data: bytes) -> None:
        self.connection.transport.transmit(data)

    def peer_ready(self) -> None:
        self.connection.transport.ready()
        self.memo.reconnects.add_new(self.connection.host, self.broker.now)

    def failed(self, error: ProtocolError) -> None:
        self.connection.transport.failed(error)

    def dropped(self, reason: str) -> None:
        self.connection.report_violation(reason)

    def buffered(self, size: int) -> None:
        self.connection.transport.buffered(size)

    def message(self, stack: bytes, data: bytes, start: int, end: int) -> None:
        connection = self.connection
        if connection.is_repeat(stack):
            self.memo.repeats += 1
            return
        rest = start + _ID_END
        if rest <= end and data.startswith(messages.WORKER_RESULT, start):
            worker = self.memo.workers.find(data[start + _ID : rest], connection)
            if (
                worker is not None
                and worker.stack != stack
                and worker.finish(connection, stack, data[rest:end])
            ):
                return
        rest = start + len(self._last_header)
        if self._last_header and rest <= end and data.startswith(self._last_header, start):
            self._submit(stack, self._last_service, self._last_limit, data[rest:end])
            return
        try:
            header = messages.read(data, start, end)
        except ProtocolError as error:
            self._refuse(stack, error.message)
            return
        kind = header.kind
        if kind == messages.JOB:
            self._job(stack, header, data, start, end)
        elif kind in (messages.RESULT, messages.HEARTBEAT):
            self._next_request(stack, header, data[header.end : end])
        elif kind == messages.READY:
            self._ready(stack, header)
        else:
            self._refuse(stack, f"a {messages.NAMES[kind]}, which only a broker may send")

    # The connection

    def is_worker(self) -> bool:
        """Return whether workers use this connection."""
        return len(self.connection.workers) > 0

    def lost(self) -> None:
        """Keep what the connection had under way for the grace period: its peer may have left or may reconnect."""
        connection = self.connection
        if connection.lost:
            return
        memo = self.memo
        grace = GracePeriod(connection)
        busy = False
        for id in connection.workers:
            worker = memo.workers.by_id[id]
            busy = busy or worker.state != WAITING
            worker.disconnected()
        for stack, job in connection.jobs.items():
            port = None if job is None else job.client.port
            if job is not None and isinstance(port, MemoClient):
                memo.interrupted.add(port.interrupt(stack, job), grace)
        for stack, reply in connection.replies():
            memo.interrupted.add(InterruptedRequest(stack, None, reply), grace)
        connection.close()
        if self.client is not None:
            self.client.leave_if_unused()
        if connection.workers or grace.requests:
            if busy:
                memo.reconnects.add_broken(grace, self.broker.now)
            self.broker.timers.set(CallTimer(memo.end_grace, grace), self.broker.now + memo.grace)

    # Clients

    def _job(self, stack: bytes, header: messages.Header, data: bytes, start: int, end: int) -> None:
        """MemoDB §Simple client: the timeout counts from the dispatch; 0 leaves it to the service."""
        limit = min(header.timeout, messages.TIMEOUT_MAX) / 1000
        if header.end - start <= JOB_HEADER_MAX:
            self._last_header = data[start : header.end]
            self._last_service = header.service
            self._last_limit = limit
        self._submit(stack, header.service, limit, data[header.end : end])

    def _submit(self, stack: bytes, service: bytes, limit: float, payload: bytes) -> None:
        body = messages.body_of(payload)
        memo = self.memo
        if memo.interrupted.requests and self._continue(stack, service, limit, body):
            return
        client = self.client
        if client is None:
            client = self.client = MemoClient(self.broker, self.connection, memo.interrupted)
            client.core.wait = memo.wait
            client.core.retries = memo.retries
        jobs = self.connection.jobs
        jobs[stack] = None
        job: Job | None = self.broker.submit(client.core, service, body, stack, None, limit)
        if job is not None and stack in jobs:
            jobs[stack] = job

    def _continue(self, stack: bytes, service: bytes, limit: float, body: bytes) -> bool:
        """Continue a request whose connection broke; False if this is a new one."""
        principal = self.connection.principal
        request = self.memo.interrupted.take(stack, service, limit, body, principal)
        if request is None:
            return False
        self.memo.returned += 1
        request.connection = self.connection
        if request.reply is not None:
            self.connection.reply(stack, request.reply.content, request.reply)
        else:
            self.connection.jobs[stack] = request.job
        return True

    # Workers

    def _ready(self, stack: bytes, header: messages.Header) -> None:
        """MemoDB §Worker: a worker gets its ID with the first reply."""
        memo = self.memo
        services = list(dict.fromkeys(header.services))
        former = memo.workers.by_ready.get(stack)
        if (
            former is not None
            and former.services == services
            and former.connection.same_peer(self.connection)
            and former.repeat(self.connection)
        ):
            memo.returned += 1
            return
        if not services:
            self._refuse(stack, "a READY without a service")
            return
        if len(memo.workers.by_id) >= memo.workers.limit:
            self._refuse(stack, f"a READY of more than {memo.workers.limit} workers")
            return
        worker = MemoWorker(memo.workers, self.connection)
        for name in services:
            if not self.broker.may_register(worker.core, name):
                self._refuse(
                    stack, f"a READY for {shown(name)}, {self.broker.why_refused(worker.core, name)}"
                )
                return
        memo.workers.by_id[worker.id] = worker
        self.connection.workers[worker.id] = None
        for name in services:
            if not self.broker.register(worker.core, name):
                worker.leave("too many services")
                self._refuse(stack, "a READY that exceeds the number of services")
                return
        worker.wait_for_job(self.connection, stack, messages.READY)
        worker.services = services

    def _next_request(self, stack: bytes, header: messages.Header, payload: bytes) -> None:
        """Handle RESULT or HEARTBEAT, or the same again from another connection."""
        worker = self.memo.workers.find(header.id, self.connection)
        if worker is None:
            self._disconnect(stack, header.id)
        elif worker.is_last_request(stack, header.kind, payload):
            self.memo.returned += 1
            if not worker.repeat(self.connection):
                self._out_of_step(worker, stack)
        elif header.leaving:
            worker.finish_and_leave(payload)
            self._disconnect(stack, header.id)
        elif header.kind == messages.HEARTBEAT and worker.state != BUSY:
            worker.wait_for_job(self.connection, stack, messages.HEARTBEAT)
        elif header.kind == messages.HEARTBEAT or not worker.finish(self.connection, stack, payload):
            self._out_of_step(worker, stack)

    def _out_of_step(self, worker: MemoWorker, stack: bytes) -> None:
        """MemoDB §Worker: disconnect a worker that the broker is out of sync with; its job is requeued."""
        worker.leave("too late" if worker.state == BUSY else "out of step")
        self._disconnect(stack, worker.id)

    def _disconnect(self, stack: bytes, id: bytes) -> None:
        self.connection.send(stack, messages.disconnect(id))

    def _refuse(self, stack: bytes, reason: str) -> None:
        """Leave a request unanswered; its repeats are not reported again."""
        self.connection.remember(stack, None)
        self.connection.report_violation(reason)
