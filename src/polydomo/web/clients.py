"""Clients of the REST API as the core sees them: one per name, regardless of how many connections it uses.

A request that submits a job gets a `PendingJob`: it waits for the result (`outcome`), follows the job's events
(`listen`) or detaches. A detached durable job continues by itself; one that lives in memory stays with its client
until it has ended.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from polydomo.core import failure as reasons
from polydomo.core.failure import Failure
from polydomo.core.model import ClientPort, Job
from polydomo.core.result_history import JobResult
from polydomo.core.tracked_job import Options, TrackedJob
from polydomo.server.uuid7 import Uuid7Source
from polydomo.web.job_events import ACCEPTED, ASSIGNED, EVENT, GATHERED, PARTIAL, STREAM, TAKEN, JobEvent
from polydomo.web.loader import BoundedLoader
from polydomo.web.pending import PendingJob
from polydomo.web.waiting import wait_event

if TYPE_CHECKING:
    from polydomo.core.model import Client
    from polydomo.server.server import BrokerServer

# Reason for refusing a job of a client that has too many (`api.problems`).
TOO_MANY: Final = "too-many-jobs"

# Seconds after which a client without jobs is forgotten.
IDLE: Final = 30.0

# Number of clients above which those without jobs are forgotten at once.
CLIENTS_MAX: Final = 1024


class WebClient(ClientPort):
    """The core's port to the client of one name."""

    def __init__(self, clients: WebClients, name: bytes, dialect: str, principal: str) -> None:
        self.clients = clients
        self.broker = clients.server.broker
        self.loop = clients.loop
        self.used = clients.loop.time()
        self.full = False  # too many unfinished jobs
        self.stalled = False  # durable jobs arrive faster than they can be written
        self.pending: dict[Job, PendingJob] = {}
        self._submitting: PendingJob | None = None
        self._room = asyncio.Event()  # neither full nor stalled
        self._room.set()
        self.core: Client = self.broker.join_client(name, dialect, self, principal)

    def submit(self, service: bytes, body: bytes, options: Options | None = None) -> PendingJob:
        """Submit a job (`body` canonical) and return it; a refused job has already `ended`.

        A job without an id in its options gets one.
        """
        self.clients.server.advance()
        if options is None:
            options = Options()
        if not options.uid:
            options.uid = self.clients.new_uid()
        pending = PendingJob(self, options.uid)
        self.used = self.loop.time()
        if self.full:
            pending.end(JobResult(options.uid, service, b"", None, self._why_full(), False))
            return pending
        self._submitting = pending
        job = self.broker.submit(self.core, service, body, b"", options)
        self._submitting = None
        if job is not None and pending.ended is None:
            pending.job = job
            self.pending[job] = pending
        return pending

    def watch(self, job: TrackedJob) -> PendingJob:
        """Return a pending job that is notified of everything that happens to `job`, which may be any client's."""
        self.clients.server.advance()
        pending = PendingJob(self, job.uid)
        pending.accepted = True
        pending.watched = job
        self.used = self.loop.time()
        self._submitting = pending
        watching = self.broker.jobs.watch(self.core, job)
        self._submitting = None
        if pending.ended is None:
            pending.job = watching
            self.pending[watching] = pending
        return pending

    def detach(self, pending: PendingJob, cancel: bool) -> None:
        """Stop notifying `pending`; with `cancel`, drop a job that lives in memory and has no other waiter."""
        job = pending.job
        if job is None or self.pending.pop(job, None) is None:
            return
        self.clients.server.advance()
        if pending.watched is not None and isinstance(job, TrackedJob):
            self.broker.jobs.unwatch(job)
            return
        if self.broker.control.is_closing():
            return
        if pending.accepted:
            self.broker.jobs.detach(job)
        needed = isinstance(job, TrackedJob) and (
            job.durable or job.followers or job.watchers or job.leader is not None
        )
        if cancel and not needed:
            self.broker.cancel(job, Failure(reasons.CLIENT_GONE, "the client disconnected"))

    @property
    def has_room(self) -> bool:
        """Return whether the client may submit another job now."""
        return self._room.is_set()

    async def wait_for_room(self, timeout: float) -> bool:
        """Wait until the client may submit another job; return whether it may."""
        return await wait_event(self._room, timeout)

    def idle(self) -> bool:
        """Return whether the client has no unfinished job."""
        return not self.pending and not self.core.jobs

    def close(self) -> None:
        """Wake all waiters: the broker stops."""
        for pending in list(self.pending.values()):
            pending.wake()
            if pending.listener is not None:
                pending.listener.close()
        self._set_room(full=False, stalled=False)

    # Calls from the core

    def accepted(self, job: Job) -> None:
        pending = self._find(job)
        if pending is not None:
            pending.accept()
            self._notify(job, JobEvent(ACCEPTED))

    def assigned(self, job: Job, names: list[bytes]) -> None:
        for name in names:
            self._notify(job, JobEvent(ASSIGNED, name))

    def acknowledged(self, job: Job, name: bytes, body: bytes) -> None:
        self._notify(job, JobEvent(TAKEN, name, body))

    def partial(self, job: Job, body: bytes) -> None:
        self._notify(job, JobEvent(PARTIAL, self._worker_of(job), body, number=self.clients.number(job)))

    def stream(self, job: Job, name: bytes, body: bytes) -> None:
        self._notify(job, JobEvent(STREAM, name, body))

    def event(self, job: Job, name: bytes, kind: str, body: bytes) -> None:
        self._notify(job, JobEvent(EVENT, name, body, word=kind, number=self.clients.number(job)))

    def gathered(self, job: Job, name: bytes, body: bytes | None, failure: Failure | None) -> None:
        copied = None if failure is None else _copy(failure)
        self._notify(job, JobEvent(GATHERED, name, body or b"", failure=copied))

    def final(self, job: Job, body: bytes) -> None:
        gathered = isinstance(job, TrackedJob) and job.is_gathered()
        self._end(job, b"" if gathered else self._worker_of(job), body, None, gathered)

    def failed(self, job: Job, failure: Failure) -> None:
        self._end(job, b"", None, _copy(failure), False)

    def hold(self) -> None:
        self._set_room(full=True, stalled=self.stalled)

    def release(self) -> None:
        self._set_room(full=False, stalled=self.stalled)

    def stall(self) -> None:
        self._set_room(full=self.full, stalled=True)

    def go_on(self, held: bool) -> None:
        self._set_room(full=self.full and held, stalled=False)

    def _why_full(self) -> Failure:
        core = self.core
        if core.throttled:
            principal = core.principal.name
            return Failure(
                reasons.QUOTA, f"{principal} has nearly reached its quota; wait until some jobs have ended"
            )
        return Failure(TOO_MANY, f"this client has {core.jobs} unfinished jobs; wait until some have ended")

    def _set_room(self, *, full: bool, stalled: bool) -> None:
        self.full = full
        self.stalled = stalled
        if full or stalled:
            self._room.clear()
        else:
            self._room.set()

    def _find(self, job: Job) -> PendingJob | None:
        pending = self.pending.get(job)
        if pending is None:
            pending = self._submitting
            if pending is None or (isinstance(job, TrackedJob) and job.uid != pending.uid):
                return None  # detached
        return pending

    def _notify(self, job: Job, event: JobEvent) -> None:
        pending = self._find(job)
        if pending is not None and pending.listener is not None:
            pending.listener.add(event)

    def _end(
        self, job: Job, worker: bytes, body: bytes | None, failure: Failure | None, gathered: bool
    ) -> None:
        pending = self._find(job)
        if pending is not None:
            self.pending.pop(job, None)
            pending.end(JobResult(pending.uid, job.service.name, worker, body, failure, gathered))

    def _worker_of(self, job: Job) -> bytes:
        pending = self._find(job)
        if pending is not None and pending.watched is not None:
            job = pending.watched
        return b"" if job.worker is None else job.worker.name


class WebClients:
    """All HTTP clients of a server."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self.loop = server.loop
        self.new_uid = Uuid7Source()
        self.loader = BoundedLoader()
        self.closing = False
        self._clients: dict[tuple[bytes, str, str], WebClient] = {}
        self._limit = CLIENTS_MAX
        self._ends: dict[Job, asyncio.Event] = {}  # of jobs that requests wait for

    def get(self, name: bytes, principal: str, dialect: str = "http") -> WebClient:
        """Return a principal's client of this name, which is created if necessary."""
        client = self._clients.get((name, dialect, principal))
        if client is None or client.core.gone:
            if len(self._clients) >= self._limit:
                self._forget_idle(self.loop.time())
                self._limit = max(CLIENTS_MAX, 2 * len(self._clients))
            self.server.advance()
            client = WebClient(self, name, dialect, principal)
            self._clients[(name, dialect, principal)] = client
        return client

    async def wait_ended(self, job: Job, timeout: float) -> bool:
        """Wait until the job of any client has ended and its result is safe; return False after the timeout."""
        ended = self._ends.get(job)
        if ended is None:
            ended = self._ends[job] = asyncio.Event()
            self.server.broker.jobs.when_ended(job, lambda: self._ended(job))
        await wait_event(ended, timeout)
        return job not in self._ends

    def number(self, job: Job) -> int:
        """Return the store's number of the job's latest event, which is stored before it is published; 0: none."""
        if self.server.store is None or not isinstance(job, TrackedJob) or not job.durable:
            return 0
        return self.server.store.number

    def inspect(self) -> None:
        """Forget clients that have been idle for some time; called every few seconds."""
        self._forget_idle(self.loop.time() - IDLE)

    def close(self) -> None:
        """Wake all waiters: the broker stops."""
        self.closing = True
        for client in self._clients.values():
            client.close()
        for ended in self._ends.values():
            ended.set()

    def __len__(self) -> int:
        return len(self._clients)

    def _forget_idle(self, before: float) -> None:
        self.server.advance()
        for key, client in list(self._clients.items()):
            if client.used <= before and client.idle():
                del self._clients[key]
                self.server.broker.client_gone(client.core)

    def _ended(self, job: Job) -> None:
        self._ends.pop(job).set()


def _copy(failure: Failure) -> Failure:
    """Return a copy: the core drops large parts of a failure after all clients were notified."""
    return Failure(failure.reason, failure.message, failure.body, failure.detail)
