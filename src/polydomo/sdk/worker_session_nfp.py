"""A worker's place at an NFP broker: one service, several jobs at once, and jobs that outlive a conversation.

A job is known by the client's UUID. It is recorded before it is run and its result before it is sent (if the worker has
a store), one that was done before is answered from there, and one that is running when the broker comes back after a
restart is answered under whatever token the broker now knows it by. Answers that nobody could be told are sent as soon
as the same broker is there again; it still wants them for its grace time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Final, NamedTuple

import msgspec

from polydomo.core.job import CANCELLED
from polydomo.dialects.nfp.messages import DELETE, ERROR, GET, MMI, OK, PENDING, POST, PUT, UNKNOWN
from polydomo.dialects.nfp.worker import NfpRequest, NfpWorkerProtocol
from polydomo.errors import JobFailed
from polydomo.sdk.failures import Account
from polydomo.sdk.options import without_options
from polydomo.sdk.persistence import Memory, NotKept, Outcome, WorkerStore
from polydomo.sdk.url import Address
from polydomo.sdk.worker_connection import JobPort, WorkerConnection
from polydomo.sdk.worker_session import WorkerSession
from polydomo.wire.frames import frame

log = logging.getLogger("polydomo.sdk")

Records = WorkerStore | Memory

# An answer that could not be sent is kept so long, and so many of them.
UNSENT_SECONDS: Final = 600.0
UNSENT_MOST: Final = 1000

# Tokens of attempts are eight hex digits; a question passed on from a client has one that begins so.
QUESTION: Final = b"g"

# What a worker's management says, and what is to be done behind its answer.
Managed = tuple[bytes, bytes, Callable[[], None] | None]


class Unsent(NamedTuple):
    """An answer that nobody could be told."""

    since: float
    place: Address
    address: bytes
    uuid: bytes
    outcome: Outcome


class NfpJob(JobPort):
    """One job in hand: where its answer goes (`Outlet`), and what its function can do beside answering."""

    def __init__(
        self, station: NfpWorkerSession, conversation: WorkerConnection, request: NfpRequest
    ) -> None:
        self.request = request
        # Under which tokens it is to be answered, and where. There may be several for one execution: the broker gave
        # it to us again, or came back from a restart.
        self.addresses: dict[bytes, WorkerConnection] = {request.address: conversation}
        self.id = request.uuid.decode(errors="replace")
        self.in_thread = False
        self.task: asyncio.Task[None] | None = None
        self.outcome: Outcome | None = None
        self._station = station
        self._cancelled = False
        self._inputs: asyncio.Queue[bytes | None] = asyncio.Queue()

    @property
    def place(self) -> Address:
        return self._latest()[1].place

    @property
    def forwards(self) -> bool:
        return False

    @property
    def line(self) -> JobPort | None:
        return self

    @property
    def resources(self) -> list[str]:
        return self._station.resources

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def partial(self, request: Any, body: bytes) -> None:
        address, conversation = self._latest()
        conversation.tell(lambda side, now: side.stream(address, self.request.uuid, body, now))

    def event(self, kind: str, body: bytes) -> None:
        address, conversation = self._latest()
        conversation.tell(lambda side, now: side.event(address, self.request.uuid, kind.encode(), body, now))

    def final(self, request: Any, body: bytes) -> None:
        self.outcome = Outcome(OK.decode(), body)

    def failed(self, request: Any, account: Account) -> None:
        """The account, and behind it a plain body for clients whose protocol has no word for failure."""
        plain = msgspec.json.encode({"error": account.message or account.kind})
        self.outcome = Outcome(ERROR.decode(), frame(msgspec.json.encode(account), True) + frame(plain))

    def forward(self, request: Any, service: bytes, body: bytes) -> None:
        raise NotImplementedError("NFP hands no job over")

    async def input(self) -> bytes:
        """The next PUT."""
        body = None if self._cancelled else await self._inputs.get()
        if body is None:
            self._inputs.put_nowait(None)  # for the next who asks
            raise JobFailed("the job is not wanted any more", reason=CANCELLED)
        return body

    def add_input(self, body: bytes) -> None:
        """From the broker."""
        self._inputs.put_nowait(body)

    def cancel(self) -> None:
        """From the broker: DELETE. A function in a thread is only told."""
        self._cancelled = True
        self._inputs.put_nowait(None)
        if self.task is not None and not self.in_thread:
            self.task.cancel()

    def known_as(self, address: bytes, conversation: WorkerConnection) -> None:
        """The broker knows it by this token now."""
        self.addresses.pop(address, None)
        self.addresses[address] = conversation

    def _latest(self) -> tuple[bytes, WorkerConnection]:
        return next(reversed(self.addresses.items()))


class NfpWorkerSession(WorkerSession):
    """See the module's text."""

    def furnish(
        self,
        service: bytes,
        records: Records,
        resources: Callable[[], list[str]],
        manage: Callable[[NfpWorkerSession, NfpRequest], Awaitable[Managed]],
    ) -> None:
        """What an NFP station has beside the usual; `resources` and `manage` are the worker's."""
        self.service = service
        self.shared: list[str] = []  # resources that the broker shares out, and has given to us for now
        self.done = 0
        self.failed = 0
        self._declared = resources
        self._records = records
        self._manage = manage
        self._postings: dict[bytes, NfpJob] = {}  # by the client's UUID
        self._unsent: list[Unsent] = []
        self._asides: set[asyncio.Task[None]] = set()
        self._home: Address | None = None  # of the last conversation
        self._renewing = False  # what has not begun is left to others

    @property
    def conversation(self) -> WorkerConnection | None:
        """The one that is held now."""
        return self._conversation

    @property
    def resources(self) -> list[str]:
        """What it looks after: what the worker says, and what the broker has given it."""
        return list(dict.fromkeys([*self._declared(), *self.shared]))

    @property
    def running(self) -> list[str]:
        """The jobs in hand."""
        return [posting.id for posting in self._postings.values()]

    def say(self, speak: Callable[[NfpWorkerProtocol, float], None]) -> bool:
        """To the broker of the moment, if there is one."""
        return self._conversation is not None and self._conversation.tell(speak)

    async def run(self) -> None:
        """Until `stop`."""
        try:
            await super().run()
        finally:
            for task in self._asides:
                task.cancel()

    async def renew(self, grace: float) -> None:
        """Finish the jobs in hand, begin nothing new, forget everything, and begin anew."""
        self._renewing = True
        jobs = list(self._jobs)
        if jobs:
            await asyncio.wait(jobs, timeout=grace)
        for job in self._jobs:
            job.cancel()
        self._unsent.clear()
        self.done = self.failed = 0
        if isinstance(self._records, Memory):
            self._records.clear()
        self.hang_up("the worker was told to restart")
        self._renewing = False

    async def _until_free(self) -> None:
        """What is in hand is still the old broker's, and it asks for it when it is back: be there at once. To another
        one a busy slot is not offered."""
        self.shared = []
        if self._roster.current != self._home:
            await super()._until_free()

    def _begun(self, conversation: WorkerConnection) -> None:
        """Tell it what could not be told."""
        self._home = conversation.place
        unsent, self._unsent = self._unsent, []
        for late in unsent:
            if late.place != conversation.place or not _respond(
                conversation, late.address, late.uuid, late.outcome.status.encode(), late.outcome.body
            ):
                self._unsent.append(late)

    def _job_came(self, conversation: WorkerConnection, request: Any) -> None:
        """Everything the broker asks."""
        command = request.command
        posting = self._postings.get(request.uuid)
        if command == POST and posting is None:
            self._post(conversation, request)
        elif command == POST and posting is not None:
            posting.known_as(request.address, conversation)  # given to us again while we are at it
        elif command == GET:
            self._aside(self._get(conversation, request))
        elif command == DELETE and posting is not None:
            posting.cancel()
        elif command == DELETE:
            _respond(
                conversation, request.address, request.uuid, UNKNOWN, _said("this worker has no such job")
            )
        elif command == PUT and posting is not None:
            posting.add_input(request.body)
        elif command == MMI:
            self._aside(self._mmi(conversation, request))

    def _post(self, conversation: WorkerConnection, request: NfpRequest) -> None:
        posting = self._postings[request.uuid] = NfpJob(self, conversation, request)
        job = posting.task = asyncio.create_task(self._run_job(posting))
        self._jobs[job] = conversation
        job.add_done_callback(self._job_ended)

    async def _run_job(self, posting: NfpJob) -> None:
        try:
            async with self._room:
                if self._stopping or self._renewing:  # it goes to another worker when we say goodbye
                    return
                try:
                    outcome = await self._known_or_run(posting)
                except asyncio.CancelledError:
                    if not posting.cancelled:
                        raise
                    outcome = _cancelled()
                if posting.cancelled:
                    outcome = _cancelled()
                self.done += 1
                self.failed += outcome.status != "200"
                self._answer(posting, outcome)
        finally:
            del self._postings[posting.request.uuid]

    async def _known_or_run(self, posting: NfpJob) -> Outcome:
        """From the records, if it was done before; else it is run, and recorded."""
        request = posting.request
        known = await self._keep(self._records.begin(self._name, posting.id, request.body))
        if known is not None:
            return known
        request.body = without_options(request.body)
        await self._perform(posting, request)
        outcome = posting.outcome
        assert outcome is not None
        await self._keep(self._records.finish(self._name, posting.id, outcome))
        return outcome

    async def _keep(self, work: Awaitable[Outcome | None]) -> Outcome | None:
        """A disk in trouble must not stop the work: NFP says that workers SHOULD keep it."""
        try:
            return await work
        except NotKept as error:
            log.error("%s", error)
            return None

    @property
    def _name(self) -> str:
        return self.service.decode(errors="replace")

    def _answer(self, posting: NfpJob, outcome: Outcome) -> None:
        """To whoever knows the job, now or when they are there again."""
        uuid, status = posting.request.uuid, outcome.status.encode()
        current = self._conversation
        for address, conversation in posting.addresses.items():
            told = _respond(conversation, address, uuid, status, outcome.body)
            if not told and current is not None and current.place == conversation.place:
                told = _respond(current, address, uuid, status, outcome.body)
            if not told:
                recent = [late for late in self._unsent if late.since > monotonic() - UNSENT_SECONDS]
                late = Unsent(monotonic(), conversation.place, address, uuid, outcome)
                self._unsent = [*recent[-UNSENT_MOST + 1 :], late]

    async def _get(self, conversation: WorkerConnection, request: NfpRequest) -> None:
        """What became of a job? 300 while it runs, its end if that is known, else 400."""
        posting = self._postings.get(request.uuid)
        if posting is not None:
            if not request.address.startswith(QUESTION):
                posting.known_as(request.address, conversation)
            _respond(conversation, request.address, request.uuid, PENDING, _said("it is running", "running"))
            return
        found = await self._keep(self._records.find(self._name, request.uuid.decode(errors="replace")))
        if found is None:
            _respond(
                conversation, request.address, request.uuid, UNKNOWN, _said("this worker has no such job")
            )
        else:
            _respond(conversation, request.address, request.uuid, found.status.encode(), found.body)

    async def _mmi(self, conversation: WorkerConnection, request: NfpRequest) -> None:
        status, body, behind = await self._manage(self, request)
        _respond(conversation, request.address, request.uuid, status, frame(body))
        if behind is not None:
            behind()

    def _aside(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._asides.add(task)
        task.add_done_callback(self._asides.discard)


def _respond(conversation: WorkerConnection, address: bytes, uuid: bytes, status: bytes, body: bytes) -> bool:
    """False: nobody hears it any more."""
    return conversation.tell(lambda side, now: side.respond(address, uuid, status, body, now))


def _said(message: str, reason: str = "unknown") -> bytes:
    return frame(msgspec.json.encode({"reason": reason, "message": message}))


def _cancelled() -> Outcome:
    account = Account(CANCELLED, "the job was cancelled")
    return Outcome(ERROR.decode(), frame(msgspec.json.encode(account)))
