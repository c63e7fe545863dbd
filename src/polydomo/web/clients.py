"""Clients of the REST API, as the core sees them: one for each name, however many connections it uses.

A request that submits a job gets a `PendingJob`. Whoever has it waits for the job's end (`outcome`), hears what happens
on the way (`listen`), or lets it go: then a durable job goes on by itself, and one that lives in memory stays with its
client until it has ended. Nothing here is a task or a queue: a ticket costs one future while somebody waits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from polydomo.core.extras import Options
from polydomo.core.job import Failure, Job
from polydomo.core.ports import ClientPort
from polydomo.server.uuid7 import Uuid7Source
from polydomo.web.job_events import (
    ACCEPTED,
    ASSIGNED,
    EVENT,
    GATHERED,
    PARTIAL,
    STREAM,
    TAKEN,
    JobEvent,
    Listener,
)
from polydomo.web.loading import Loading
from polydomo.web.pending import Outcome, PendingJob, expire, last_of

if TYPE_CHECKING:
    from polydomo.core.client import Client
    from polydomo.server.server import BrokerServer

__all__ = ["JobEvent", "Listener", "Outcome", "PendingJob", "WebClient", "WebClients", "last_of"]

# Why a job of a client that has too many is refused (`api.problems`).
TOO_MANY: Final = "too-many-jobs"

# A client that has nothing under way is forgotten after so many seconds.
IDLE: Final = 30.0

# So many clients are kept before those without a job are looked for at once.
CROWD: Final = 1024


class WebClient(ClientPort):
    """One name's port."""

    def __init__(self, clients: WebClients, name: bytes, dialect: str) -> None:
        self.clients = clients
        self.broker = clients.server.broker
        self.loop = clients.loop
        self.used = clients.loop.time()
        self.full = False  # too much of it is under way
        self.stalled = False  # durable jobs come faster than they can be written
        self.tickets: dict[Job, PendingJob] = {}
        self._submitting: PendingJob | None = None
        self._queue: list[asyncio.Future[None]] = []  # whoever waits until it is not full
        self.core: Client = self.broker.join_client(name, dialect, self)

    def submit(self, service: bytes, body: bytes, options: Options | None = None) -> PendingJob:
        """A new job (`body` canonical). A refusal is an end like any other: look at the ticket. Without an id in the
        options it gets one, by which it can be asked for later."""
        self.clients.server.advance()
        if options is None:
            options = Options()
        if not options.uid:
            options.uid = self.clients.new_uid()
        ticket = PendingJob(self, options.uid)
        self.used = self.loop.time()
        if self.full:
            message = f"{self.core.jobs} jobs of this client are under way; no more until some have ended"
            ticket.end(Outcome(None, Failure(TOO_MANY, message)))
            return ticket
        self._submitting = ticket
        job = self.broker.submit(self.core, service, body, b"", options)
        self._submitting = None
        if job is not None and ticket.ended is None:
            ticket.job = job
            self.tickets[job] = ticket
        return ticket

    def watch(self, job: Job) -> PendingJob:
        """Somebody's job: what happens to it from now on is told here, too."""
        self.clients.server.advance()
        uid = job.extra.uid if job.extra is not None else ""
        ticket = PendingJob(self, uid)
        ticket.accepted = True
        ticket.watched = job
        self.used = self.loop.time()
        self._submitting = ticket
        watching = self.broker.watch(self.core, job)
        self._submitting = None
        if ticket.ended is None:
            ticket.job = watching
            self.tickets[watching] = ticket
        return ticket

    def unwatch(self, ticket: PendingJob) -> None:
        """No longer."""
        job = ticket.job
        if job is not None and self.tickets.pop(job, None) is not None:
            self.clients.server.advance()
            self.broker.unwatch(job)

    def drop(self, ticket: PendingJob) -> None:
        """Nobody waits for it here."""
        job = ticket.job
        if job is None or self.tickets.pop(job, None) is None:
            return
        if ticket.accepted and not self.broker.closing:
            self.clients.server.advance()
            self.broker.lifecycle.detach(job)

    async def room(self, timeout: float) -> bool:
        """Wait until it may submit more. False: it still may not."""
        if not self.full and not self.stalled:
            return True
        future: asyncio.Future[None] = self.loop.create_future()
        self._queue.append(future)
        timer = self.loop.call_later(timeout, expire, future)
        try:
            await future
        finally:
            timer.cancel()
            if future in self._queue:
                self._queue.remove(future)
        return not self.full and not self.stalled

    def idle(self) -> bool:
        """Has it nothing under way?"""
        return not self.tickets and not self.core.jobs

    # From the core

    def accepted(self, job: Job) -> None:
        ticket = self._ticket(job)
        if ticket is not None:
            ticket.accept()
            self._tell(ticket, JobEvent(ACCEPTED))

    def assigned(self, job: Job, names: list[bytes]) -> None:
        ticket = self._ticket(job)
        if ticket is not None and ticket.listener is not None:
            for name in names:
                ticket.listener.add(JobEvent(ASSIGNED, name))

    def taken(self, job: Job, name: bytes, body: bytes) -> None:
        self._hear(job, TAKEN, name, body)

    def partial(self, job: Job, body: bytes) -> None:
        ticket = self._ticket(job)
        if ticket is not None:
            name = _worker_of(ticket.watched or job)
            self._tell(ticket, JobEvent(PARTIAL, name, body, number=self.clients.number(job)))

    def stream(self, job: Job, name: bytes, body: bytes) -> None:
        self._hear(job, STREAM, name, body)

    def event(self, job: Job, name: bytes, kind: str, body: bytes) -> None:
        ticket = self._ticket(job)
        if ticket is not None:
            self._tell(ticket, JobEvent(EVENT, name, body, word=kind, number=self.clients.number(job)))

    def gathered(self, job: Job, name: bytes, body: bytes | None, failure: Failure | None) -> None:
        ticket = self._ticket(job)
        if ticket is not None and ticket.listener is not None:
            ticket.listener.add(JobEvent(GATHERED, name, body or b"", failure=_kept(failure)))

    def final(self, job: Job, body: bytes) -> None:
        ticket = self._ticket(job)
        if ticket is not None:
            self.tickets.pop(job, None)
            gathered = job.extra is not None and job.extra.several()
            name = b"" if gathered else _worker_of(ticket.watched or job)
            ticket.end(Outcome(body, None, gathered, name))

    def failed(self, job: Job, failure: Failure) -> None:
        ticket = self._ticket(job)
        if ticket is not None:
            self.tickets.pop(job, None)
            ticket.end(Outcome(None, _kept(failure)))

    def hold(self) -> None:
        self.full = True

    def release(self) -> None:
        self.full = False
        self._wake()

    def stall(self) -> None:
        self.stalled = True

    def go_on(self, held: bool) -> None:
        self.stalled = False
        if held:
            self._wake()
        else:
            self.release()

    def _wake(self) -> None:
        waiting = self._queue
        self._queue = []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def close(self) -> None:
        """The broker stops: whoever waits goes on with what is known."""
        for ticket in list(self.tickets.values()):
            ticket.wake()
            if ticket.listener is not None:
                ticket.listener.close()
        self.stalled = False
        self.release()

    def _ticket(self, job: Job) -> PendingJob | None:
        ticket = self.tickets.get(job)
        if ticket is None:
            ticket = self._submitting
            if ticket is None or (job.extra is not None and job.extra.uid != ticket.uid):
                return None  # nobody waits for it any more
        return ticket

    def _hear(self, job: Job, kind: str, name: bytes, body: bytes) -> None:
        ticket = self._ticket(job)
        if ticket is not None:
            self._tell(ticket, JobEvent(kind, name, body))

    def _tell(self, ticket: PendingJob, happening: JobEvent) -> None:
        if ticket.listener is not None:
            ticket.listener.add(happening)


class WebClients:
    """All of a server."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self.loop = server.loop
        self.new_uid = Uuid7Source()
        self.loading = Loading()
        self.closing = False
        self._clients: dict[tuple[bytes, str], WebClient] = {}
        self._crowd = CROWD
        self._ends: dict[Job, list[asyncio.Future[None]]] = {}  # whoever waits for somebody's job to end

    def of(self, name: bytes, dialect: str = "http") -> WebClient:
        """The client of this name."""
        client = self._clients.get((name, dialect))
        if client is None or client.core.gone:
            if len(self._clients) >= self._crowd:
                self._reap(self.loop.time())
                self._crowd = max(CROWD, 2 * len(self._clients))
            self.server.advance()
            client = self._clients[(name, dialect)] = WebClient(self, name, dialect)
        return client

    async def end_of(self, job: Job, timeout: float) -> bool:
        """Wait until a job that may be anybody's has ended, and that is safe. False: not in time."""
        waiting = self._ends.get(job)
        if waiting is None:
            waiting = self._ends[job] = []
            self.server.broker.lifecycle.when_ended(job, lambda: self._ended(job))
        future: asyncio.Future[None] = self.loop.create_future()
        if job not in self._ends:  # it had ended already
            return True
        waiting.append(future)
        timer = self.loop.call_later(timeout, expire, future)
        try:
            await future
        finally:
            timer.cancel()
            if future in waiting:
                waiting.remove(future)
        return job not in self._ends

    def number(self, job: Job) -> int:
        """Of what has just been said about a job, in the store, which is always told first; 0: it is not kept."""
        if self.server.store is None or job.extra is None or not job.extra.durable:
            return 0
        return self.server.store.number

    def inspect(self, now: float) -> None:
        """Every few seconds: forget clients that have nothing."""
        self._reap(self.loop.time() - IDLE)

    def close(self) -> None:
        """The broker stops."""
        self.closing = True
        for client in self._clients.values():
            client.close()
        for waiting in self._ends.values():
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    def __len__(self) -> int:
        return len(self._clients)

    def _reap(self, before: float) -> None:
        self.server.advance()
        for key, client in list(self._clients.items()):
            if client.used <= before and client.idle():
                del self._clients[key]
                self.server.broker.client_gone(client.core)

    def _ended(self, job: Job) -> None:
        for future in self._ends.pop(job, []):
            if not future.done():
                future.set_result(None)


def _kept(failure: Failure | None) -> Failure | None:
    """A copy: the core drops what may be big in it as soon as everybody was told."""
    if failure is None:
        return None
    return Failure(failure.reason, failure.message, failure.body, failure.detail)


def _worker_of(job: Job) -> bytes:
    return b"" if job.worker is None else job.worker.name
