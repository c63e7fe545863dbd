"""Workers that ask for work over HTTP: each poll is for one job, and waits until there is one.

A worker may hold as many jobs as it has polls open, beside those it holds already, so its credit is always "running +
open polls". It is alive while a poll is open; between two requests it may be silent for `http.worker_idle`. A worker
that holds a job and is silent is only given up if it has sent heartbeats while busy before: otherwise its job's own
time decides, as with any worker whose program has one thread.

Each attempt has a token, which is its URL. One that was taken from its worker is answered with "superseded".
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from polydomo.core.answers import ANSWERED
from polydomo.core.policy import Heartbeat
from polydomo.core.ports import WorkerPort
from polydomo.core.worker import Worker
from polydomo.wire.frames import shown

if TYPE_CHECKING:
    from polydomo.core.job import Failure, Job
    from polydomo.server.server import BrokerServer

# How often a worker is looked at within the time it may be silent.
LOOKS: Final = 4

# Services of one worker.
MOST_SERVICES: Final = 1000


class Unwilling(ValueError):
    """A worker may not offer what it says. The text is for whoever wrote it."""


class Crowded(Exception):
    """It has as many polls open as it may."""


class Poll:
    """One request for a job."""

    __slots__ = ("future", "job")

    def __init__(self, future: asyncio.Future[None]) -> None:
        self.future = future
        self.job: Job | None = None


class PollingWorker(WorkerPort):
    """One of them, by its name. `core` is the worker as the broker knows it."""

    def __init__(self, workers: PollingWorkers, name: bytes, dialect: str) -> None:
        self.workers = workers
        self.name = name
        self.key = (name, dialect)
        self.broker = workers.server.broker
        self.gone = False
        self.tokens: dict[bytes, None] = {}  # of attempts it has, or had when it polled last
        self._polls: dict[Poll, None] = {}  # open ones, oldest first
        idle = workers.server.settings.http.worker_idle
        self.core = core = Worker(self.broker, name, dialect, self, Heartbeat(idle / LOOKS, LOOKS))
        core.base_credit = core.credit = 0
        core.parallel = True
        core.must_beat = False  # it may, for each attempt

    # What it asks

    async def next(self, wait: float) -> Job | None:
        """A job, within `wait` seconds. Whoever is cancelled here gives back what he may have got."""
        poll = self.open()
        await self.wait(poll, wait)
        return poll.job

    async def wait(self, poll: Poll, wait: float) -> None:
        """Until the poll has a job, or its time is over; then it is closed."""
        timer = None
        try:
            if poll.job is None and wait > 0 and not self.gone:
                timer = self.workers.loop.call_later(wait, self.close, poll)
                await poll.future
        except BaseException:
            self.withdraw(poll)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        self.close(poll)

    def open(self) -> Poll:
        """It is ready for one more job, from now on until `close`."""
        if len(self._polls) >= self.workers.server.settings.limits.worker_jobs:
            raise Crowded(f"worker {shown(self.name)} has {len(self._polls)} polls open")
        self.workers.server.advance()
        core = self.core
        core.late.clear()  # it says itself that it is ready
        self.workers.tidy(self)
        poll = Poll(self.workers.loop.create_future())
        self._polls[poll] = None
        core.set_deaf(True)  # its connection is open: that is the sign of life
        self.set_credit()
        return poll

    def close(self, poll: Poll) -> None:
        """It does not wait any more."""
        if poll in self._polls:
            del self._polls[poll]
            self.workers.server.advance()
            self._after()
        if not poll.future.done():
            poll.future.set_result(None)

    def let_go(self) -> None:
        """It waits for nothing any more."""
        for poll in list(self._polls):
            self.close(poll)

    def withdraw(self, poll: Poll) -> None:
        """Its connection is gone: a job that was given to it, and did not reach it, goes to another at once."""
        job = poll.job
        self.close(poll)
        if job is not None:
            poll.job = None
            self.reattach(job)

    def reattach(self, job: Job) -> None:
        """The job could not be handed over."""
        if self.core.running.get(job.token) is job:
            self.workers.server.advance()
            self.set_credit(1)
            self.workers.forget(job.token)
            self.broker.report_unknown(self.core, job.token)

    # What it says about an attempt; False: superseded

    def partial(self, token: bytes, body: bytes) -> bool:
        """One of several answers."""
        self.workers.server.advance()
        return self.broker.partial(self.core, token, body) == ANSWERED

    def stream(self, token: bytes, body: bytes) -> bool:
        """A piece of data."""
        self.workers.server.advance()
        return self.broker.stream(self.core, token, body) == ANSWERED

    def event(self, token: bytes, kind: str, body: bytes) -> bool:
        """How it goes on; `body` is one frame as it is."""
        self.workers.server.advance()
        return bool(token) and self.broker.event(self.core, token, kind, body) == ANSWERED

    def heartbeat(self, token: bytes) -> bool:
        """It is at it. From now on silence means something."""
        self.workers.server.advance()
        self.broker.seen(self.core)
        if token not in self.core.running:
            return False
        self.core.beats_busy = True
        return True

    def result(self, token: bytes, body: bytes) -> bool:
        """The answer."""
        self._ends(token)
        return self.broker.final(self.core, token, body) == ANSWERED

    def failure(self, token: bytes, failure: Failure) -> bool:
        """It could not do it."""
        self._ends(token)
        return self.broker.fail(self.core, token, failure) == ANSWERED

    def leave(self, reason: str = "said goodbye") -> None:
        """It does not come again; what it holds goes to others."""
        self.workers.server.advance()
        self._end()
        self.broker.leave(self.core, reason)

    @property
    def polls(self) -> int:
        """Open ones."""
        return len(self._polls)

    # From the core

    def dispatch(self, job: Job) -> None:
        self.workers.note(job.token, self)
        for poll in self._polls:
            del self._polls[poll]
            poll.job = job
            if not poll.future.done():
                poll.future.set_result(None)
            break
        else:  # nobody asked for it
            self.workers.loop.call_soon(self.reattach, job)
            return
        if not self._polls:
            self.core.set_deaf(False)

    def dismiss(self, reason: str) -> None:
        """Expired, or the broker stops."""
        self._end()

    # Inside

    def _ends(self, token: bytes) -> None:
        """This attempt ends with what is said next: it makes room for no other job."""
        self.workers.server.advance()
        self.set_credit(1 if token in self.core.running or token in self.core.late else 0)
        self.workers.forget(token)

    def set_credit(self, less: int = 0) -> None:
        """It may hold what it has, and one more for each open poll; `less` of them are about to end."""
        core = self.core
        self.broker.set_credit(core, len(core.running) + len(core.late) + len(self._polls) - less)

    def _after(self) -> None:
        """A poll has ended."""
        self.set_credit()
        if not self._polls:
            self.core.set_deaf(False)

    def _end(self) -> None:
        self.gone = True
        self.workers.drop(self)
        polls = list(self._polls)
        self._polls.clear()
        self.core.set_deaf(False)
        for poll in polls:
            if not poll.future.done():
                poll.future.set_result(None)


class PollingWorkers:
    """All of a server."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self.loop = server.loop
        self.attempts: dict[bytes, PollingWorker] = {}  # by token
        self._workers: dict[tuple[bytes, str], PollingWorker] = {}
        self._made_up = 0

    def get(
        self, name: bytes, services: list[bytes], dialect: str = "http", anonymous: bool = False
    ) -> PollingWorker:
        """The worker of this name, which offers these services from now on. `anonymous`: the name is made up, and
        nobody comes back under it. Raises Unwilling."""
        self.server.advance()
        services = list(dict.fromkeys(services))
        if not services or len(services) > MOST_SERVICES:
            raise Unwilling(f"a worker offers 1 to {MOST_SERVICES} services, not {len(services)}")
        worker = self._workers.get((name, dialect))
        if worker is not None and worker.gone:
            worker = None
        if worker is not None:
            offered = {service.name for service in worker.core.services}
            if not offered.issubset(services):
                if worker.core.running or worker.polls:
                    raise Unwilling(
                        f"worker {shown(name)} holds jobs or has other polls open, and cannot take services back"
                    )
                worker.leave("offers other services now")
                worker = None
            else:
                services = [service for service in services if service not in offered]
        made = worker is None
        if worker is None:
            worker = PollingWorker(self, name, dialect)
            worker.core.anonymous = anonymous
        for service in services:
            if not self.server.broker.may_register(worker.core, service):
                raise Unwilling(f"{shown(service)} is not a name that a worker may offer")
        if made:
            self._workers[(name, dialect)] = worker
        for service in services:
            self.server.broker.register(worker.core, service)
        return worker

    def new_name(self) -> bytes:
        """For a worker that has none."""
        while True:
            self._made_up += 1
            name = b"http-%d" % self._made_up
            if (name, "http") not in self._workers:
                return name

    def named(self, name: bytes, dialect: str = "http") -> PollingWorker | None:
        """Who has this name."""
        return self._workers.get((name, dialect))

    def holder(self, token: bytes) -> PollingWorker | None:
        """Who was given this attempt. One of before the broker's restart is taken up again, if it comes in time."""
        worker = self.attempts.get(token)
        if worker is not None:
            return worker
        job = self.server.broker.lifecycle.orphans.get(token)
        if job is None or job.extra is None:
            return None
        self.server.advance()
        name = job.extra.holder
        worker = self._workers.get((name, "http"))
        if worker is None or job.service not in worker.core.services:
            offered = [] if worker is None else [service.name for service in worker.core.services]
            worker = self.get(name, [*offered, job.service.name])
        if self.server.broker.lifecycle.claim(token) is None:
            return None
        self.note(token, worker)
        self.server.broker.reattach(worker.core, job)
        worker.set_credit()
        return worker

    def note(self, token: bytes, worker: PollingWorker) -> None:
        """The worker has this attempt."""
        self.attempts[token] = worker
        worker.tokens[token] = None

    def forget(self, token: bytes) -> None:
        """The attempt is over."""
        worker = self.attempts.pop(token, None)
        if worker is not None:
            worker.tokens.pop(token, None)

    def tidy(self, worker: PollingWorker) -> None:
        """Attempts that were taken from it are not its own any more."""
        if len(worker.tokens) > len(worker.core.running):
            for token in [token for token in worker.tokens if token not in worker.core.running]:
                self.forget(token)

    def drop(self, worker: PollingWorker) -> None:
        """It is gone."""
        if self._workers.get(worker.key) is worker:
            del self._workers[worker.key]
        for token in list(worker.tokens):
            self.forget(token)

    def close(self) -> None:
        """The broker stops, and has dismissed them: who came since is told, too."""
        for worker in list(self._workers.values()):
            worker.dismiss("the broker stops")

    def __len__(self) -> int:
        return len(self._workers)
