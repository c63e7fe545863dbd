"""Calls that are evaluated: each becomes a job of the core, and its result stays.

The function is the service, each argument's bytes are a frame of the body. Whoever asks for a call that is under way
joins it; whoever asks for one whose result is known needs no worker at all. The job goes on though nobody waits, and
its result is recorded when it has ended. A failure is told to the next one who asks, and after that the call can be
tried again.

The job has an idempotency key made from the call, so that the core, too, runs it once: also after a restart, when
nothing is known here. It has a letter for each argument's codec in it: by that, and the frames, a worker that
speaks MemoDB's REST is given exactly the CIDs that the client named.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from polydomo.core import job as jobs
from polydomo.core.extras import Options
from polydomo.core.job import Failure, Job
from polydomo.server.log import Log
from polydomo.web.api.problems import Problem, problem, problem_of
from polydomo.web.memodb.cid import DAG_CBOR, RAW, UNRESTRICTED, Cid
from polydomo.web.memodb.content_store import Call, ContentStore
from polydomo.web.memodb.values import answer, aside
from polydomo.wire.frames import join, split

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer
    from polydomo.web.clients import WebClients

log = Log()

DIALECT: Final = "memodb"

# How many failures that nobody has asked for are remembered, and how long, in seconds.
FAILURES: Final = 10_000
FAILURE_TIME: Final = 300.0
FAILURE_SIZE: Final = 4096

# Longer than any job is waited for at once: then it is looked at again.
LONG: Final = 3600.0

_PREFIX: Final = b"memodb:"
_LETTERS: Final = {RAW: b"r", DAG_CBOR: b"c", UNRESTRICTED: b"u"}
_CODECS: Final = {ord(letter): codec for codec, letter in _LETTERS.items()}


class Evaluation:
    """One call under way."""

    __slots__ = ("call", "over", "problem", "result", "started", "task")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.started = asyncio.Event()  # it is a job, and safe; or it is over
        self.over = asyncio.Event()
        self.result: Cid | None = None
        self.problem: Problem | None = None
        self.task: asyncio.Task[None] | None = None


class Evaluations:
    """All of a server."""

    def __init__(self, server: BrokerServer, clients: WebClients, library: ContentStore) -> None:
        self.server = server
        self.clients = clients
        self.library = library
        self._running: dict[Call, Evaluation] = {}
        self._failed: OrderedDict[Call, tuple[Problem, float]] = OrderedDict()

    async def evaluate(self, call: Call, client: bytes, wait: float, timeout: float = 0.0) -> Cid | None:
        """The call's result, within `wait` seconds; None: not yet. Raises what it failed with."""
        found = await self.library.result(call)
        if found is not None:
            return found
        self._raise_failure(call)
        one = self._running.get(call)
        if one is None:
            one = self._running[call] = Evaluation(call)
            one.task = self.clients.loop.create_task(self._run(one, client, timeout))
        await one.started.wait()
        if wait > 0 and not one.over.is_set():
            try:
                await asyncio.wait_for(one.over.wait(), wait)
            except TimeoutError:
                pass
        if one.problem is not None:
            self._failed.pop(call, None)
            raise one.problem
        return one.result

    async def settled(self, call: Call) -> None:
        """Its result was recorded by somebody: a job that was to find it out is not needed any more."""
        self._failed.pop(call, None)
        key = make_key(call, await self.library.epoch(call.func))
        self.server.advance()
        lifecycle = self.server.broker.lifecycle
        job = lifecycle.keys.get((call.func.encode(), key))
        if job is not None:
            lifecycle.cancel(job, Failure(jobs.CANCELLED, "its result was recorded by somebody else"))

    async def _run(self, one: Evaluation, client: bytes, timeout: float) -> None:
        try:
            one.result = await self._result(one, client, timeout)
        except Problem as failed:
            one.problem = failed
            self._remember_failure(one.call, failed)
        except Exception as error:
            log.error("a call failed", call=str(one.call)[:200], error=repr(error), exc_info=error)
            one.problem = problem("internal")
        finally:
            del self._running[one.call]
            one.over.set()
            one.started.set()

    async def _result(self, one: Evaluation, client: bytes, timeout: float) -> Cid | None:
        call = one.call
        recorded = await self.library.result(call)
        if recorded is not None:  # it was, between the question of whoever started this and now
            return recorded
        body = await self._body(call)
        key = make_key(call, await self.library.epoch(call.func))
        options = Options(key=key, durable=self.server.settings.http.durable, timeout=timeout)
        # Its users submit thousands before they come for the first result: those that are too many wait here.
        await self.clients.of(client, DIALECT).room(self.server.settings.http.patience)
        ticket = self.clients.of(client, DIALECT).submit(call.func.encode(), body, options)
        await ticket.acceptance(LONG)
        if ticket.ended is None:
            one.started.set()
        outcome = None
        while outcome is None and not self.clients.closing:
            outcome = await ticket.outcome(LONG)
        recorded = await self.library.result(call)
        if recorded is not None or outcome is None:
            return recorded
        if outcome.failure is not None:
            raise problem_of(outcome.failure)
        found = outcome.body or b""
        value = await aside(len(found), answer, found)
        await self.library.keep(value)
        await self.library.record(call, value.cid)
        return value.cid

    async def _body(self, call: Call) -> bytes:
        """The arguments, as frames."""
        frames = []
        size = 0
        most = self.server.settings.limits.message_bytes
        for cid in call.args:
            value = await self.library.value(cid)
            if value is None:
                raise problem("unknown-cid", f"the argument {cid} is not in the store")
            size += len(value.block)
            if size > most:
                raise problem("too-large", f"the arguments together have more than {most} bytes")
            frames.append(value.block)
        return join(frames)

    def _raise_failure(self, call: Call) -> None:
        failed = self._failed.pop(call, None)
        if failed is not None and failed[1] > self.clients.loop.time():
            raise failed[0]

    def _remember_failure(self, call: Call, failed: Problem) -> None:
        now = self.clients.loop.time()
        self._failed[call] = (_short(failed), now + FAILURE_TIME)
        while len(self._failed) > FAILURES or next(iter(self._failed.values()))[1] < now:
            self._failed.popitem(last=False)


def _short(failed: Problem) -> Problem:
    """To be remembered: without what its worker said, if that is long."""
    if len(repr(failed.members)) <= FAILURE_SIZE:
        return failed
    members = {name: value for name, value in failed.members.items() if name == "reason"}
    return Problem(failed.status, failed.title, failed.detail[:1000], failed.type, failed.headers, **members)


def make_key(call: Call, epoch: bytes) -> bytes:
    """The job's idempotency key, see the module's text."""
    letters = b"".join(_LETTERS[cid.codec] for cid in call.args)
    digest = blake2b(call.joined, digest_size=24, key=epoch).digest()
    if len(letters) > 128:
        letters = b""
    return _PREFIX + letters + b":" + urlsafe_b64encode(digest)


def cids_of(job: Job) -> list[Cid] | None:
    """The arguments of the call that a job was made from; None: it was not."""
    if job.extra is None or not job.extra.key.startswith(_PREFIX):
        return None
    letters = job.extra.key[len(_PREFIX) :].partition(b":")[0]
    frames = split(job.body)
    if len(letters) != len(frames) or any(letter not in _CODECS for letter in letters):
        return None
    return [Cid.of(_CODECS[letter], frame) for letter, frame in zip(letters, frames, strict=True)]
