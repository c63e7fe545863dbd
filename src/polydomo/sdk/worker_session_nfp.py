"""A worker's session with an NFP broker: one service, several jobs at once, and jobs that survive a connection.

A job is known by the client's UUID. With a store, the worker records it before it is run and its result before it is
sent, and answers a job that was done before from the store. A job that is running when the broker comes back after a
restart is answered under the token by which the broker then knows it. Replies that could not be sent are sent as soon
as the same broker is back; it accepts them for its grace time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from time import monotonic
from typing import Any, Final, NamedTuple

import msgspec

from polydomo.core.failure import CANCELLED
from polydomo.dialects.nfp.messages import DELETE, ERROR, GET, MMI, OK, PENDING, POST, PUT, UNKNOWN
from polydomo.dialects.nfp.worker import NfpRequest, NfpWorkerProtocol
from polydomo.errors import JobFailed
from polydomo.sdk import failures
from polydomo.sdk.failures import FailureInfo
from polydomo.sdk.options import without_options
from polydomo.sdk.persistence import NfpResult, NotKept, RecentResults, WorkerStore
from polydomo.sdk.url import Address
from polydomo.sdk.worker_connection import RunningJob, WorkerConnection
from polydomo.sdk.worker_session import MakeProtocol, SessionSettings, SingleBrokerSession
from polydomo.wire.frames import frame

log = logging.getLogger("polydomo.sdk")

ResultStore = WorkerStore | RecentResults

# How long, and how many, replies that could not be sent are kept.
UNSENT_SECONDS: Final = 600.0
UNSENT_MOST: Final = 1000

# The tokens of attempts are eight hex digits; the token of a query that the broker passes on begins with this letter.
QUERY_TOKEN: Final = b"g"

# A management task's status, its JSON, and a function to call after the response is sent.
ManagementReply = tuple[bytes, bytes, Callable[[], None] | None]


class UnsentReply(NamedTuple):
    """A reply that could not be sent."""

    since: float
    broker: Address
    token: bytes
    uuid: bytes
    result: NfpResult


class NfpJob(RunningJob):
    """One job on NFP."""

    def __init__(self, session: NfpWorkerSession, connection: WorkerConnection, request: NfpRequest) -> None:
        super().__init__(request.uuid)
        self.request = request
        # The tokens of the replies, and their connections. One execution has several if the broker assigned the job to
        # this worker again or was restarted.
        self.tokens: dict[bytes, WorkerConnection] = {request.address: connection}
        self.result: NfpResult | None = None
        self._session = session
        self._cancelled = False
        self._inputs: asyncio.Queue[bytes | None] = asyncio.Queue()

    @property
    def address(self) -> Address:
        return self._latest()[1].address

    @property
    def resources(self) -> list[str]:
        return self._session.resources

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def partial(self, request: Any, body: bytes) -> None:
        token, connection = self._latest()
        connection.send_nfp(lambda protocol, now: protocol.stream(token, self.request.uuid, body, now))

    def event(self, kind: str, body: bytes) -> None:
        token, connection = self._latest()
        uuid = self.request.uuid
        connection.send_nfp(lambda protocol, now: protocol.event(token, uuid, kind.encode(), body, now))

    def final(self, request: Any, body: bytes) -> None:
        self.result = NfpResult(OK.decode(), body)

    def failed(self, request: Any, info: FailureInfo) -> None:
        """Set the failure as the result, followed by a plain body for clients whose protocol has no failures."""
        body = frame(msgspec.json.encode(info), True) + failures.plain_body(info)
        self.result = NfpResult(ERROR.decode(), body)

    async def input(self) -> bytes:
        body = None if self._cancelled else await self._inputs.get()
        if body is None:
            self._inputs.put_nowait(None)  # for the next call
            raise JobFailed("the job was cancelled", reason=CANCELLED)
        return body

    def add_input(self, body: bytes) -> None:
        """Queue the body of a PUT."""
        self._inputs.put_nowait(body)

    def cancel(self) -> None:
        """Cancel the job after a DELETE."""
        self._cancelled = True
        self._inputs.put_nowait(None)
        self.interrupt()

    def add_token(self, token: bytes, connection: WorkerConnection) -> None:
        """Answer the job under this token, too, and send its events there."""
        self.tokens.pop(token, None)
        self.tokens[token] = connection

    def _latest(self) -> tuple[bytes, WorkerConnection]:
        return next(reversed(self.tokens.items()))


class NfpWorkerSession(SingleBrokerSession):
    """A session of one service. `resources` returns the worker's own; `manage` runs a management task."""

    def __init__(
        self,
        settings: SessionSettings,
        make_protocol: MakeProtocol,
        service: bytes,
        results: ResultStore,
        resources: Callable[[], list[str]],
        manage: Callable[[NfpWorkerSession, NfpRequest], Awaitable[ManagementReply]],
    ) -> None:
        super().__init__(settings, make_protocol)
        self.service = service
        self.assigned: list[str] = []  # resources that the broker has assigned to this worker for now
        self.done = 0
        self.failed = 0
        self._own_resources = resources
        self._results = results
        self._manage = manage
        self._nfp_jobs: dict[bytes, NfpJob] = {}  # by the client's UUID
        self._unsent: list[UnsentReply] = []
        self._query_tasks: set[asyncio.Task[None]] = set()
        self._last_broker: Address | None = None
        self._restarting = False  # jobs not yet begun are left to other workers

    @property
    def resources(self) -> list[str]:
        """The worker's own resources and those that the broker has assigned to it."""
        return list(dict.fromkeys([*self._own_resources(), *self.assigned]))

    @property
    def running(self) -> list[str]:
        """The UUIDs of the running jobs."""
        return [job.id for job in self._nfp_jobs.values()]

    def send(self, send: Callable[[NfpWorkerProtocol, float], None]) -> None:
        """Let `send` make an NFP command and send it, if there is a connection."""
        if self.connection is not None:
            self.connection.send_nfp(send)

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            for task in self._query_tasks:
                task.cancel()

    async def restart(self, grace: float) -> None:
        """Finish the running jobs without beginning others, drop all state, and register again."""
        self._restarting = True
        tasks = list(self._jobs)
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        for task in self._jobs:
            task.cancel()
        self._unsent.clear()
        self.done = self.failed = 0
        if isinstance(self._results, RecentResults):
            self._results.clear()
        self.reconnect("the worker was told to restart")
        self._restarting = False

    async def _wait_for_slot(self) -> None:
        """Do not wait for the last broker, which asks for the running jobs as soon as it is back; only to another one
        a busy slot must not be offered."""
        self.assigned = []
        if self._selector.current != self._last_broker:
            await super()._wait_for_slot()

    def _begun(self, connection: WorkerConnection) -> None:
        """Send the replies that could not be sent before."""
        self._last_broker = connection.address
        unsent, self._unsent = self._unsent, []
        for reply in unsent:
            if reply.broker != connection.address or not _respond(
                connection, reply.token, reply.uuid, reply.result.status.encode(), reply.result.body
            ):
                self._unsent.append(reply)

    def _received(self, connection: WorkerConnection, request: Any) -> None:
        """Process a command from the broker."""
        command = request.command
        job = self._nfp_jobs.get(request.uuid)
        if command == POST and job is None:
            job = self._nfp_jobs[request.uuid] = NfpJob(self, connection, request)
            job.task = self._start_job(self._run_job(job), connection)
        elif command == POST and job is not None:
            job.add_token(request.address, connection)  # assigned to this worker again while it is running
        elif command == GET:
            self._start_query(self._get(connection, request))
        elif command == DELETE and job is not None:
            job.cancel()
        elif command == DELETE:
            _respond_unknown(connection, request)
        elif command == PUT and job is not None:
            job.add_input(request.body)
        elif command == MMI:
            self._start_query(self._mmi(connection, request))

    async def _run_job(self, job: NfpJob) -> None:
        try:
            async with self._slots:
                if self._stopping or self._restarting:  # it goes to another worker when this one disconnects
                    return
                try:
                    result = await self._known_or_run(job)
                except asyncio.CancelledError:
                    if not job.cancelled:
                        raise
                if job.cancelled:
                    info = FailureInfo(CANCELLED, "the job was cancelled")
                    result = NfpResult(ERROR.decode(), frame(msgspec.json.encode(info)))
                self.done += 1
                self.failed += result.status != "200"
                self._reply(job, result)
        finally:
            del self._nfp_jobs[job.request.uuid]

    async def _known_or_run(self, job: NfpJob) -> NfpResult:
        """Return the recorded result of a job that was done before; run and record any other."""
        request = job.request
        known = await self._try_store(self._results.begin(self._service_name, job.id, request.body))
        if known is not None:
            return known
        request.body = without_options(request.body)
        await self._perform(job, request)
        result = job.result
        assert result is not None
        await self._try_store(self._results.finish(self._service_name, job.id, result))
        return result

    async def _try_store(self, work: Awaitable[NfpResult | None]) -> NfpResult | None:
        """Log a failing disk instead of stopping the work: NFP says that workers SHOULD keep jobs."""
        try:
            return await work
        except NotKept as error:
            log.error("%s", error)
            return None

    @property
    def _service_name(self) -> str:
        return self.service.decode(errors="replace")

    def _reply(self, job: NfpJob, result: NfpResult) -> None:
        """Send the result under all tokens; keep it for brokers that are away."""
        uuid, status = job.request.uuid, result.status.encode()
        current = self.connection
        for token, connection in job.tokens.items():
            sent = _respond(connection, token, uuid, status, result.body)
            if not sent and current is not None and current.address == connection.address:
                sent = _respond(current, token, uuid, status, result.body)
            if not sent:
                recent = [reply for reply in self._unsent if reply.since > monotonic() - UNSENT_SECONDS]
                reply = UnsentReply(monotonic(), connection.address, token, uuid, result)
                self._unsent = [*recent[-UNSENT_MOST + 1 :], reply]

    async def _get(self, connection: WorkerConnection, request: NfpRequest) -> None:
        """Respond to GET: 300 while the job runs, its result if that is known, else 400."""
        job = self._nfp_jobs.get(request.uuid)
        if job is not None:
            if not request.address.startswith(QUERY_TOKEN):
                job.add_token(request.address, connection)
            body = _message("running", "it is running")
            _respond(connection, request.address, request.uuid, PENDING, body)
            return
        uid = request.uuid.decode(errors="replace")
        found = await self._try_store(self._results.find(self._service_name, uid))
        if found is None:
            _respond_unknown(connection, request)
        else:
            _respond(connection, request.address, request.uuid, found.status.encode(), found.body)

    async def _mmi(self, connection: WorkerConnection, request: NfpRequest) -> None:
        status, body, after = await self._manage(self, request)
        _respond(connection, request.address, request.uuid, status, frame(body))
        if after is not None:
            after()

    def _start_query(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._query_tasks.add(task)
        task.add_done_callback(self._query_tasks.discard)


def _respond(connection: WorkerConnection, token: bytes, uuid: bytes, status: bytes, body: bytes) -> bool:
    """Send a RESPONSE. Return False if the connection is over."""
    return connection.send_nfp(lambda protocol, now: protocol.respond(token, uuid, status, body, now))


def _respond_unknown(connection: WorkerConnection, request: NfpRequest) -> None:
    body = _message("unknown", "this worker has no such job")
    _respond(connection, request.address, request.uuid, UNKNOWN, body)


def _message(reason: str, message: str) -> bytes:
    return frame(msgspec.json.encode({"reason": reason, "message": message}))
