"""Workers that use MemoDB's REST API, for jobs of all clients.

A worker polls with a link to its functions, `{"funcs": [...]}`, and is given a call: a function and CIDs. The worker
reads the values, evaluates the call, stores the result's value, and records it as the call's result. Workers have no
names: those of one principal and host with the same functions are one worker with several polls. A job is identified
by its call: recording the result of a call ends all jobs of this call.

Workers cannot report failures and send no heartbeats: the job's timeout applies.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from polydomo.core import failure as reasons
from polydomo.core.failure import Failure
from polydomo.core.model import Job
from polydomo.core.tracked_job import TrackedJob
from polydomo.web.api.problems import HttpProblem, problem
from polydomo.web.api.workers import open_poll
from polydomo.web.memodb.cid import Cid
from polydomo.web.memodb.content_store import ContentStore, FunctionCall
from polydomo.web.memodb.evaluations import DIALECT, cids_of
from polydomo.web.memodb.values import Value, argument_values, run_aside
from polydomo.web.polling import OfferDenied, OfferRefused, Poll, PollingWorker
from polydomo.wire.frames import frame

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer
    from polydomo.web.connection import HttpConnection
    from polydomo.web.polling import PollingWorkers

# Prefix of a worker's name, which is followed by its host and a hash of its functions.
PREFIX: Final = b"memodb-"

# Number of calls above which those without attempts are removed.
PRUNE_MIN: Final = 256


class RestWorkers:
    """All such workers of a server."""

    def __init__(self, server: BrokerServer, workers: PollingWorkers, content: ContentStore) -> None:
        self.server = server
        self.workers = workers
        self.content = content
        self._attempts: dict[FunctionCall, list[bytes]] = {}  # tokens, by call
        self._prune_at = PRUNE_MIN

    def worker(self, host: bytes, site: str, principal: str, info: Cid, funcs: list[str]) -> PollingWorker:
        """Return a principal's worker with these functions at this host, whose requests come from this site."""
        digest = blake2b(principal.encode() + b"\0" + info.bytes, digest_size=6).hexdigest()
        name = PREFIX + host[:100] + b"-" + digest.encode()
        try:
            return self.workers.get(name, [func.encode() for func in funcs], principal, DIALECT, site)
        except OfferDenied as error:
            raise problem(reasons.DENIED, str(error)) from None
        except OfferRefused as error:
            raise problem("invalid-worker-info", str(error)) from None

    async def next(
        self, worker: PollingWorker, wait: float, connection: HttpConnection
    ) -> FunctionCall | None:
        """Return a call to evaluate, or None after `wait` seconds.

        If the connection is lost before the response is sent, the job is dispatched again.
        """
        poll = open_poll(worker, connection)
        try:
            await worker.wait(poll, wait)
            return None if poll.job is None else await self._assign(worker, poll, poll.job)
        except BaseException:
            worker.withdraw(poll)
            raise

    async def _assign(self, worker: PollingWorker, poll: Poll, job: Job) -> FunctionCall | None:
        token = job.token
        try:
            call = await self._call(job)
        except HttpProblem as failed:
            # A retry would not help: the values of the arguments cannot be stored.
            reason = failed.detail or failed.title
            worker.failure(token, Failure(reasons.WORKER_ERROR, f"the arguments cannot be stored: {reason}"))
            raise
        if poll.job is None:  # withdrawn while the arguments were stored
            return None
        self._attempts.setdefault(call, []).append(token)
        if len(self._attempts) > self._prune_at:
            self._prune()
        return call

    def is_waiting(self, call: FunctionCall) -> bool:
        """Return whether a job waits for this call's result."""
        return bool(self._held(call)) or bool(self._orphans(call))

    def may_finish(self, call: FunctionCall, principal: str, site: str) -> bool:
        """Return whether a job waits for this call's result at a worker of this principal and site.

        MemoDB's workers have no credentials for their calls, so this is all that is known of them.
        """
        return any(
            worker.core.principal.name == principal and worker.site == site for _, worker in self._held(call)
        ) or any(job.holder_principal == principal for _, job in self._orphans(call))

    def finish(self, call: FunctionCall, value: Value, principal: str, site: str) -> None:
        """End all jobs of a call that workers of this principal have with its result, which `may_finish` allows."""
        body = frame(value.block)
        for token, worker in self._held(call):
            if worker.core.principal.name == principal:
                worker.result(token, body)
        for token, job in self._orphans(call):
            if job.holder_principal == principal:
                former = self.workers.reattach(token, job, DIALECT, site)
                if former is not None:
                    former.result(token, body)
        if not self._held(call):
            self._attempts.pop(call, None)

    def _held(self, call: FunctionCall) -> list[tuple[bytes, PollingWorker]]:
        """Return the attempts at a call with their workers."""
        attempts = self.workers.attempts
        return [(token, attempts[token]) for token in self._attempts.get(call, []) if token in attempts]

    async def _call(self, job: Job) -> FunctionCall:
        """Return the call that a job means, after storing its arguments."""
        func = job.service.name.decode()
        known = cids_of(job)
        if known is not None:
            return FunctionCall(func, tuple(known))
        values = await run_aside(len(job.body), argument_values, job.body)
        for value in values:
            await self.content.keep(value)
        return FunctionCall(func, tuple(value.cid for value in values))

    def _orphans(self, call: FunctionCall) -> list[tuple[bytes, TrackedJob]]:
        """Return jobs of this call that such a worker held before the broker's restart."""
        found = []
        for token, job in self.server.broker.orphans().items():
            if not job.holder.startswith(PREFIX) or job.service.name != call.func.encode():
                continue
            args = cids_of(job) or [value.cid for value in argument_values(job.body)]
            if tuple(args) == call.args:
                found.append((token, job))
        return found

    def _prune(self) -> None:
        """Remove calls whose attempts have ended."""
        active = self.workers.attempts
        left = {call: [one for one in tokens if one in active] for call, tokens in self._attempts.items()}
        self._attempts = {call: tokens for call, tokens in left.items() if tokens}
        self._prune_at = max(PRUNE_MIN, 2 * len(self._attempts))
