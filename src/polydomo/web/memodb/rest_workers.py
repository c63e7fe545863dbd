"""Workers that speak MemoDB's REST, and whose jobs may be anybody's.

A worker asks with a link to what it can do, `{"funcs": [...]}`, and is given a call: a function and CIDs. It reads the
values, works, writes the result's value, and records it as the call's result. It has no name: those of one host that
can do the same are one worker with several hands. A job has no name towards them either, but its call: the result of
a call ends all jobs that are this call.

There is no way to say that a call failed, and no sign of life while it runs: the job's own time decides.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from polydomo.core import job as jobs
from polydomo.core.job import Failure, Job
from polydomo.web.api.problems import Problem, problem
from polydomo.web.memodb.cid import Cid
from polydomo.web.memodb.content_store import Call, ContentStore
from polydomo.web.memodb.evaluations import DIALECT, cids_of
from polydomo.web.memodb.values import Value, arguments, aside
from polydomo.web.polling import Crowded, Poll, PollingWorker, Unwilling
from polydomo.wire.frames import frame

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer
    from polydomo.web.connection import Connection
    from polydomo.web.polling import PollingWorkers

# Before a worker's name; behind it come its host and what it can do.
PREFIX: Final = b"memodb-"

# So many calls are looked through for those whose jobs are over.
TIDY: Final = 256


class RestWorkers:
    """All of a server."""

    def __init__(self, server: BrokerServer, workers: PollingWorkers, library: ContentStore) -> None:
        self.server = server
        self.workers = workers
        self.library = library
        self._given: dict[Call, list[bytes]] = {}  # the attempts that a worker was given, by their call
        self._tidy = TIDY

    def worker(self, host: bytes, info: Cid, funcs: list[str]) -> PollingWorker:
        """Who can do this, at this host."""
        name = PREFIX + host[:100] + b"-" + blake2b(info.bytes, digest_size=6).hexdigest().encode()
        try:
            return self.workers.get(name, [func.encode() for func in funcs], DIALECT)
        except Unwilling as error:
            raise problem("invalid-worker-info", str(error)) from None

    async def next(self, worker: PollingWorker, wait: float, connection: Connection | None) -> Call | None:
        """A call to do, within `wait` seconds. If its connection breaks before it is told, another gets it."""
        try:
            poll = worker.open()
        except Crowded as error:
            raise problem("too-many-requests", str(error)) from None
        if connection is not None:
            connection.on_gone = lambda: worker.withdraw(poll)
        try:
            await worker.wait(poll, wait)
            return None if poll.job is None else await self._give(worker, poll, poll.job)
        except BaseException:
            worker.withdraw(poll)
            raise

    async def _give(self, worker: PollingWorker, poll: Poll, job: Job) -> Call | None:
        token = job.token
        try:
            call = await self._call(job)
        except Problem as failed:
            # Another try would be no better: the values of its arguments cannot be kept.
            why = failed.detail or failed.title
            worker.failure(token, Failure(jobs.WORKER_ERROR, f"its arguments cannot be kept: {why}"))
            raise
        if poll.job is None:  # taken back meanwhile
            return None
        self._given.setdefault(call, []).append(token)
        if len(self._given) > self._tidy:
            self._forget_old()
        return call

    def waiting(self, call: Call) -> bool:
        """Does a job wait for this call's result?"""
        return call in self._given or bool(self._orphans(call))

    def finish(self, call: Call, value: Value) -> None:
        """The call's result is known: the jobs that are this call have it for their answer."""
        body = frame(value.block)
        for token in self._given.pop(call, []):
            worker = self.workers.attempts.get(token)
            if worker is not None:
                worker.result(token, body)
        for token, job in self._orphans(call):
            self._take_up(token, job, body)

    async def _call(self, job: Job) -> Call:
        """What a job is to a worker of this kind; its arguments are in the store then."""
        func = job.service.name.decode()
        known = cids_of(job)
        if known is not None:
            return Call(func, tuple(known))
        values = await aside(len(job.body), arguments, job.body)
        for value in values:
            await self.library.keep(value)
        return Call(func, tuple(value.cid for value in values))

    def _orphans(self, call: Call) -> list[tuple[bytes, Job]]:
        """Jobs that such a worker had when the broker was stopped, and that are this call."""
        found = []
        for token, job in self.server.broker.lifecycle.orphans.items():
            if (
                job.extra is None
                or not job.extra.holder.startswith(PREFIX)
                or job.service.name != call.func.encode()
            ):
                continue
            args = cids_of(job) or [value.cid for value in arguments(job.body)]
            if tuple(args) == call.args:
                found.append((token, job))
        return found

    def _take_up(self, token: bytes, job: Job, body: bytes) -> None:
        """Its worker comes back with the answer."""
        self.server.advance()
        assert job.extra is not None
        holder = job.extra.holder
        known = self.workers.named(holder, DIALECT)
        services = [] if known is None else [service.name for service in known.core.services]
        worker = self.workers.get(holder, [*services, job.service.name], DIALECT)
        if self.server.broker.lifecycle.claim(token) is None:
            return
        self.workers.note(token, worker)
        self.server.broker.reattach(worker.core, job)
        worker.set_credit()
        worker.result(token, body)

    def _forget_old(self) -> None:
        for call, tokens in list(self._given.items()):
            left = [token for token in tokens if token in self.workers.attempts]
            if left:
                self._given[call] = left
            else:
                del self._given[call]
        self._tidy = max(TIDY, 2 * len(self._given))
