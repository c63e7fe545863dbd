"""Evaluation of calls: each becomes a job of the core, and its result is stored.

The function is the service, each argument's bytes are a frame of the body. Requests for a call that is being evaluated
join it; a known result needs no worker. The job continues without waiting requests, and its result is recorded when it
ends. A failure is returned to the next request, after which the call can be evaluated again.

The job has an idempotency key derived from the call, so that the core runs it once even after a restart, when the
evaluations here are lost. The key contains a letter for each argument's codec: with that and the frames, a worker that
uses MemoDB's REST API is given exactly the CIDs that the client named.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from polydomo.core import failure as reasons
from polydomo.core.failure import Failure
from polydomo.core.model import Job
from polydomo.core.tracked_job import Options, TrackedJob
from polydomo.server.log import Log
from polydomo.web.api.problems import HttpProblem, problem, problem_of
from polydomo.web.memodb.cid import DAG_CBOR, RAW, UNRESTRICTED, Cid
from polydomo.web.memodb.content_store import ContentStore, FunctionCall
from polydomo.web.memodb.values import result_value, run_aside
from polydomo.wire.frames import join, split

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer
    from polydomo.web.clients import WebClients

log = Log()

DIALECT: Final = "memodb"

# Unreported failures: their number, seconds to keep them, and the size of one.
FAILURES_MAX: Final = 10_000
FAILURE_TIME: Final = 300.0
FAILURE_SIZE: Final = 4096

# Seconds of one wait for a job; then the wait is repeated.
LONG: Final = 3600.0

_PREFIX: Final = b"memodb:"
_LETTERS: Final = {RAW: b"r", DAG_CBOR: b"c", UNRESTRICTED: b"u"}
_CODECS: Final = {ord(letter): codec for codec, letter in _LETTERS.items()}


class Evaluation(NamedTuple):
    """One call that is being evaluated."""

    started: asyncio.Event  # the job is accepted, or has ended
    task: asyncio.Task[Cid | HttpProblem | None]


class Evaluations:
    """All evaluations of a server."""

    def __init__(self, server: BrokerServer, clients: WebClients, content: ContentStore) -> None:
        self.server = server
        self.clients = clients
        self.content = content
        self._running: dict[FunctionCall, Evaluation] = {}
        self._failed: OrderedDict[FunctionCall, tuple[HttpProblem, float]] = OrderedDict()

    async def evaluate(
        self, call: FunctionCall, client: bytes, principal: str, wait: float, timeout: float = 0.0
    ) -> Cid | None:
        """Return the call's result; None if there is none within `wait` seconds; raise HttpProblem if it failed."""
        found = await self.content.result(call)
        if found is not None:
            return found
        failed = self._failed.pop(call, None)
        if failed is not None and failed[1] > self.clients.loop.time():
            raise failed[0]
        one = self._running.get(call)
        if one is None:
            started = asyncio.Event()
            task = self.clients.loop.create_task(self._run(call, client, principal, timeout, started))
            one = self._running[call] = Evaluation(started, task)
        await one.started.wait()
        if wait > 0:
            await asyncio.wait([one.task], timeout=wait)
        outcome = one.task.result() if one.task.done() else None
        if isinstance(outcome, HttpProblem):
            self._failed.pop(call, None)
            raise outcome
        return outcome

    async def cancel_job(self, call: FunctionCall) -> None:
        """Cancel the job of a call whose result was recorded by another request."""
        self._failed.pop(call, None)
        key = make_key(call, await self.content.epoch(call.func))
        self.server.advance()
        broker = self.server.broker
        for job in broker.jobs.find_by_key(call.func.encode(), key):
            broker.cancel(job, Failure(reasons.CANCELLED, "the result was recorded by another request"))

    async def _run(
        self, call: FunctionCall, client: bytes, principal: str, timeout: float, started: asyncio.Event
    ) -> Cid | HttpProblem | None:
        try:
            return await self._result(call, client, principal, timeout, started)
        except HttpProblem as failed:
            self._remember_failure(call, failed)
            return failed
        except Exception as error:
            log.error("evaluation failed", call=str(call)[:200], error=repr(error), exc_info=error)
            return problem("internal")
        finally:
            del self._running[call]
            started.set()

    async def _result(
        self, call: FunctionCall, client: bytes, principal: str, timeout: float, started: asyncio.Event
    ) -> Cid | None:
        recorded = await self.content.result(call)
        if recorded is not None:  # since `evaluate` looked for it
            return recorded
        body = await self._body(call)
        key = make_key(call, await self.content.epoch(call.func))
        options = Options(key=key, durable=self.server.settings.http.durable, timeout=timeout)
        # Clients submit thousands of calls before they request the first result: calls beyond the limit wait here.
        await self.clients.get(client, principal, DIALECT).wait_for_room(self.server.settings.http.patience)
        pending = self.clients.get(client, principal, DIALECT).submit(call.func.encode(), body, options)
        await pending.acceptance(LONG)
        if pending.ended is None:
            started.set()
        outcome = None
        while outcome is None and not self.clients.closing:
            outcome = await pending.outcome(LONG)
        recorded = await self.content.result(call)
        if recorded is not None or outcome is None:
            return recorded
        if outcome.failure is not None:
            raise problem_of(outcome.failure)
        found = outcome.body or b""
        value = await run_aside(len(found), result_value, found)
        await self.content.keep(value)
        await self.content.record(call, value.cid)
        return value.cid

    async def _body(self, call: FunctionCall) -> bytes:
        """Return the arguments as frames."""
        frames = []
        size = 0
        most = self.server.settings.limits.message_bytes
        for cid in call.args:
            value = await self.content.value(cid)
            if value is None:
                raise problem("unknown-cid", f"the argument {cid} is not in the store")
            size += len(value.block)
            if size > most:
                raise problem("too-large", f"the arguments together have more than {most} bytes")
            frames.append(value.block)
        return join(frames)

    def _remember_failure(self, call: FunctionCall, failed: HttpProblem) -> None:
        now = self.clients.loop.time()
        self._failed[call] = (_short(failed), now + FAILURE_TIME)
        while len(self._failed) > FAILURES_MAX or next(iter(self._failed.values()))[1] < now:
            self._failed.popitem(last=False)


def _short(failed: HttpProblem) -> HttpProblem:
    """Return a problem to be remembered, without the worker's details if they are long."""
    if len(repr(failed.members)) <= FAILURE_SIZE:
        return failed
    members = {name: value for name, value in failed.members.items() if name == "reason"}
    return HttpProblem(
        failed.status, failed.title, failed.detail[:1000], failed.type, failed.headers, **members
    )


def make_key(call: FunctionCall, epoch: bytes) -> bytes:
    """Return the idempotency key of a call's job."""
    letters = b"".join(_LETTERS[cid.codec] for cid in call.args)
    digest = blake2b(call.joined, digest_size=24, key=epoch).digest()
    if len(letters) > 128:
        letters = b""
    return _PREFIX + letters + b":" + urlsafe_b64encode(digest)


def cids_of(job: Job) -> list[Cid] | None:
    """Return the arguments of the call that a job was made from; None if it was submitted otherwise."""
    if not isinstance(job, TrackedJob) or not job.key.startswith(_PREFIX):
        return None
    letters = job.key[len(_PREFIX) :].partition(b":")[0]
    frames = split(job.body)
    if len(letters) != len(frames) or any(letter not in _CODECS for letter in letters):
        return None
    return [Cid.of(_CODECS[letter], frame) for letter, frame in zip(letters, frames, strict=True)]
