"""Workers that poll for jobs over HTTP: each poll is for one job and waits until there is one.

A worker may hold one job per open poll, beside those it has already, so its credit is always "running + open polls".
It is alive while a poll is open; between two requests it may be silent for `http.worker_idle`. A worker that holds a
job and is silent is only expired if it has sent heartbeats while busy before: otherwise the job's timeout applies, as
for any single-threaded worker.

Each attempt has a credential, which is the last part of its URL (`web.attempt_keys`). Reports on a revoked attempt are
answered with "superseded", and so are those of anybody who does not have the credential.

Polls have no connection to be told apart by. Those with one name are one worker as long as they come from one site.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from polydomo.core.broker import ANSWERED
from polydomo.core.model import WorkerPort
from polydomo.core.policy import Heartbeat
from polydomo.core.tracked_job import TrackedJob
from polydomo.core.workers import DENIED_WORKER, NAME_TAKEN
from polydomo.web import attempt_keys
from polydomo.web.attempt_keys import AttemptKeys
from polydomo.web.callers import LOCAL
from polydomo.web.waiting import Wakeup
from polydomo.wire.frames import shown

if TYPE_CHECKING:
    from polydomo.core.failure import Failure
    from polydomo.core.model import Job
    from polydomo.server.server import BrokerServer

# Liveness checks of a worker within `http.worker_idle`.
CHECKS: Final = 4

# Services of one worker.
SERVICES_MAX: Final = 1000


class OfferRefused(ValueError):
    """Services that a worker may not offer. The text is for the worker's author."""


class OfferDenied(OfferRefused):
    """No role of the worker grants one of the services."""


class NameRefused(OfferRefused):
    """A name that belongs to another worker."""


class TooManyPolls(Exception):
    """A worker that has as many open polls as it may have."""


class Poll:
    """One request for a job."""

    __slots__ = ("credential", "job", "wakeup")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.wakeup = Wakeup(loop)
        self.job: Job | None = None
        self.credential = b""  # of the attempt at the job


class PollingWorker(WorkerPort):
    """One worker, by its name. `core` is the worker as the broker knows it."""

    def __init__(self, workers: PollingWorkers, name: bytes, dialect: str, principal: str, site: str) -> None:
        self.workers = workers
        self.site = site  # where its requests come from
        self.name = name
        self.key = (name, dialect, principal)
        self.broker = workers.server.broker
        # Attempts it holds, or held at its latest poll: token → credential.
        self.tokens: dict[bytes, bytes] = {}
        self._polls: dict[Poll, None] = {}  # open ones, oldest first
        idle = workers.server.settings.http.worker_idle
        beat = Heartbeat(idle / CHECKS, CHECKS)
        self.core = core = self.broker.make_worker(name, dialect, self, beat, principal)
        core.base_credit = core.credit = 0
        core.parallel = True
        core.must_beat = False  # heartbeats are optional, per attempt

    # Polls

    def open(self) -> Poll:
        """Open a poll: the worker can take one more job until `close`."""
        if len(self._polls) >= self.workers.server.settings.limits.worker_jobs:
            raise TooManyPolls(f"worker {shown(self.name)} has {len(self._polls)} open polls")
        self.workers.server.advance()
        core = self.core
        core.revoked.clear()  # the worker itself reports that it is ready
        self.workers.prune_attempts(self)
        poll = Poll(self.workers.loop)
        self._polls[poll] = None
        self.broker.set_reading_paused(core, True)  # the open connection proves that the worker is alive
        self.update_credit()
        return poll

    async def wait(self, poll: Poll, wait: float) -> None:
        """Wait up to `wait` seconds until the poll has a job, then close the poll.

        If the waiting task is cancelled, a job that the poll was given is returned.
        """
        try:
            if poll in self._polls and wait > 0:
                await poll.wakeup.wait(wait)
        except BaseException:
            self.withdraw(poll)
            raise
        self.close(poll)

    def close(self, poll: Poll) -> None:
        """End a poll, if it is open."""
        if poll in self._polls:
            del self._polls[poll]
            self.workers.server.advance()
            self.update_credit()
            if not self._polls:
                self.broker.set_reading_paused(self.core, False)
        poll.wakeup.wake()

    def withdraw(self, poll: Poll) -> None:
        """End a poll whose connection is lost; a job that it was given is dispatched to another worker at once."""
        job = poll.job
        self.close(poll)
        if job is not None:
            poll.job = None
            self.return_job(job)

    def return_job(self, job: Job) -> None:
        """Return a job that did not reach the worker."""
        if self.core.running.get(job.token) is job:
            self.workers.server.advance()
            self.update_credit(1)
            self.workers.remove_attempt(job.token)
            self.broker.report_unknown(self.core, job.token)

    @property
    def polls(self) -> int:
        """Return the number of open polls."""
        return len(self._polls)

    # Reports on an attempt; False: the attempt was revoked

    def partial(self, token: bytes, body: bytes) -> bool:
        """Pass on a partial result."""
        self.workers.server.advance()
        return self.broker.partial(self.core, token, body) == ANSWERED

    def event(self, token: bytes, kind: str, body: bytes) -> bool:
        """Pass on a progress event; `body` is the content of one frame."""
        self.workers.server.advance()
        return bool(token) and self.broker.event(self.core, token, kind, body) == ANSWERED

    def keep_alive(self, token: bytes) -> bool:
        """Record a sign of life. From the first one on, the worker expires if it is silent while busy."""
        self.workers.server.advance()
        self.broker.seen(self.core)
        if token not in self.core.running:
            return False
        self.core.beats_busy = True
        return True

    def result(self, token: bytes, body: bytes) -> bool:
        """End the attempt with a result."""
        self._end_attempt(token)
        return self.broker.final(self.core, token, body) == ANSWERED

    def failure(self, token: bytes, failure: Failure) -> bool:
        """End the attempt with a failure."""
        self._end_attempt(token)
        return self.broker.fail(self.core, token, failure) == ANSWERED

    def leave(self, reason: str = "disconnected on request") -> None:
        """Remove the worker; its jobs go to others."""
        self.workers.server.advance()
        self._end()
        self.broker.leave(self.core, reason)

    # Calls from the core

    def is_alive(self) -> bool:
        """Return whether a poll is open, or the worker was heard a short time ago."""
        idle = self.workers.server.settings.http.worker_idle
        return bool(self._polls) or self.broker.now - self.core.last_seen < idle

    def dispatch(self, job: Job) -> None:
        credential = self.workers.add_attempt(job, self)
        poll = next(iter(self._polls), None)
        if poll is None:
            self.workers.loop.call_soon(self.return_job, job)
            return
        del self._polls[poll]
        poll.job = job
        poll.credential = credential
        poll.wakeup.wake()
        if not self._polls:
            self.broker.set_reading_paused(self.core, False)

    def dismiss(self, reason: str) -> None:
        self._end()

    def update_credit(self, ending: int = 0) -> None:
        """Set the credit to the jobs held plus the open polls, less the attempts that are about to end."""
        core = self.core
        self.broker.set_credit(core, len(core.running) + len(core.revoked) + len(self._polls) - ending)

    def _end_attempt(self, token: bytes) -> None:
        """Prepare the end of an attempt, so that it makes no room for another job."""
        self.workers.server.advance()
        self.update_credit(1 if token in self.core.running or token in self.core.revoked else 0)
        self.workers.remove_attempt(token)

    def _end(self) -> None:
        self.workers.remove(self)
        polls = list(self._polls)
        self._polls.clear()
        self.broker.set_reading_paused(self.core, False)
        for poll in polls:
            poll.wakeup.wake()


class PollingWorkers:
    """All polling workers of a server."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self.loop = server.loop
        self.keys = AttemptKeys(server.attempt_secret)
        self.attempts: dict[bytes, PollingWorker] = {}  # by token
        self._workers: dict[tuple[bytes, str, str], PollingWorker] = {}
        self._generated = 0  # names

    def get(
        self,
        name: bytes | None,
        services: list[bytes],
        principal: str,
        dialect: str = "http",
        site: str = LOCAL,
    ) -> PollingWorker:
        """Return a principal's worker of this name, after setting the services that it offers; may raise OfferRefused.

        A worker of the same name that polled from another site is another one: it keeps its name while it is alive.
        Without a name the worker is anonymous: it has a generated name and never reconnects under it.
        """
        anonymous = name is None
        if name is None:
            name = self._new_name()
        self.server.advance()
        services = list(dict.fromkeys(services))
        if not services or len(services) > SERVICES_MAX:
            raise OfferRefused(f"a worker offers 1 to {SERVICES_MAX} services, not {len(services)}")
        worker = self._workers.get((name, dialect, principal))
        if worker is not None and worker.site != site:
            if worker.is_alive():
                raise NameRefused(f"{shown(name)}: {NAME_TAKEN}, which polls from another address")
            worker.leave("its name was taken over from another address")
            worker = None
        if worker is not None and not {one.name for one in worker.core.services}.issubset(services):
            if worker.core.running or worker.polls:
                raise OfferRefused(
                    f"worker {shown(name)} holds jobs or has other open polls, and cannot withdraw services"
                )
            worker.leave("offers other services now")
            worker = None
        if worker is None:
            worker = PollingWorker(self, name, dialect, principal, site)
            worker.core.anonymous = anonymous
        if self.server.broker.is_name_taken(worker.core):
            raise NameRefused(f"{shown(name)}: {NAME_TAKEN}")
        offered = {service.name for service in worker.core.services}
        services = [service for service in services if service not in offered]
        for service in services:
            if not self.server.broker.may_register(worker.core, service):
                why = self.server.broker.why_refused(worker.core, service)
                if why.startswith(DENIED_WORKER):
                    raise OfferDenied(why.removeprefix(DENIED_WORKER))
                raise OfferRefused(f"{shown(service)}: {why}")
        self._workers[worker.key] = worker
        for service in services:
            self.server.broker.register(worker.core, service)
        return worker

    def _new_name(self) -> bytes:
        while True:
            self._generated += 1
            name = b"http-%d" % self._generated
            if not self.server.broker.workers.has_name(name):
                return name

    def find(self, name: bytes, principal: str, dialect: str = "http") -> PollingWorker | None:
        """Return the worker of this name."""
        return self._workers.get((name, dialect, principal))

    def holder(self, credential: bytes, principal: str, site: str = LOCAL) -> PollingWorker | None:
        """Return the worker of this principal that holds an attempt; None if the credential is not the attempt's.

        An attempt from before the broker's restart is reattached.
        """
        token = attempt_keys.token_in(credential)
        worker = self.attempts.get(token)
        if worker is not None:
            expected, owner = worker.tokens[token], worker.core.principal.name
            return worker if owner == principal and attempt_keys.is_equal(credential, expected) else None
        job = self.server.broker.orphans().get(token)
        if job is None or job.holder_principal != principal:
            return None
        expected = self.keys.credential(token, job.holder, principal, job.uid.encode())
        return self.reattach(token, job, site=site) if attempt_keys.is_equal(credential, expected) else None

    def reattach(
        self, token: bytes, job: TrackedJob, dialect: str = "http", site: str = LOCAL
    ) -> PollingWorker | None:
        """Give an attempt from before the broker's restart back to its worker; None if it has been claimed, or if
        another worker has the name now."""
        self.server.advance()
        principal = job.holder_principal
        known = self._workers.get((job.holder, dialect, principal))
        offered = [] if known is None else [service.name for service in known.core.services]
        try:
            worker = self.get(job.holder, [*offered, job.service.name], principal, dialect, site)
        except OfferRefused:
            return None
        if not self.server.broker.take_up(worker.core, token):
            return None
        self.add_attempt(job, worker)
        worker.update_credit()
        return worker

    def add_attempt(self, job: Job, worker: PollingWorker) -> bytes:
        """Record that the worker holds the job's attempt, and return its credential."""
        uid = job.uid.encode() if isinstance(job, TrackedJob) else b"%d" % job.id
        credential = self.keys.credential(job.token, worker.name, worker.core.principal.name, uid)
        self.attempts[job.token] = worker
        worker.tokens[job.token] = credential
        return credential

    def remove_attempt(self, token: bytes) -> None:
        """Record that the attempt has ended."""
        worker = self.attempts.pop(token, None)
        if worker is not None:
            worker.tokens.pop(token, None)

    def prune_attempts(self, worker: PollingWorker) -> None:
        """Remove attempts that were revoked from the worker."""
        if len(worker.tokens) > len(worker.core.running):
            for token in [token for token in worker.tokens if token not in worker.core.running]:
                self.remove_attempt(token)

    def remove(self, worker: PollingWorker) -> None:
        """Remove a worker and its attempts."""
        if self._workers.get(worker.key) is worker:
            del self._workers[worker.key]
        for token in list(worker.tokens):
            self.remove_attempt(token)

    def close(self) -> None:
        """Dismiss workers that have registered since the broker dismissed all: the broker stops."""
        for worker in list(self._workers.values()):
            worker.dismiss("the broker stops")

    def __len__(self) -> int:
        return len(self._workers)
