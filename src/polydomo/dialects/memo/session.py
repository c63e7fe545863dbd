"""The broker's side of memo01.

A connection carries many contexts: clients and workers in any mix, one request of each at a time. A request is known by
its connection and its stack of IDs. NNG sends it again, with the same ID, when no answer has come for a while; such a
repeat is ignored, while the first is open and for some time after its answer, which is on its way over the same stream.
What happens when the connection breaks is in keeping.py.

Two shortcuts carry nearly all traffic: a RESULT of a worker whose ID we gave out, and a JOB with the same header as the
last. Whatever does not match is read item by item, and only there can anything be refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from polydomo.core.job import Job
from polydomo.dialects.memo import messages
from polydomo.dialects.memo.broker_client import REMEMBERED, MemoClient
from polydomo.dialects.memo.broker_worker import ASKED, BUSY, PARKED, MemoWorker
from polydomo.dialects.memo.context import ID_SIZE, UNPLUGGED, MemoContext, SpTransport
from polydomo.dialects.memo.messages import (
    HEARTBEAT,
    JOB,
    NAMES,
    READY,
    RESULT,
    TIMEOUT_MAX,
    WORKER_RESULT,
    Header,
    body_of,
)
from polydomo.dialects.memo.reconnect import Answer, Astray, Grace
from polydomo.dialects.session import LARGE_WRITE, Flushable
from polydomo.errors import ProtocolError
from polydomo.wire.frames import shown
from polydomo.wire.sp.connection import Handler
from polydomo.wire.sp.requests import head

# Where the ID lies in a RESULT of a worker whose ID we gave out.
_ID: Final = len(WORKER_RESULT)
_RESULT_HEAD: Final = _ID + ID_SIZE

# A connection remembers the last requests it answered, in two generations of so many requests, and of so many bytes of
# answers; older ones are forgotten.
ANSWERED: Final = 4096
ANSWERED_BYTES: Final = 65536

# Headers up to this size are remembered, to know the next of the same kind at once.
USUAL_MAX: Final = 128


class MemoSession(Handler, Flushable):
    """One connection: its requests, and what is to be sent to it, which is collected until the outbox is flushed."""

    def __init__(
        self, memo: MemoContext, wire: SpTransport, write: Callable[[bytes], object], host: str, ipc: bool
    ) -> None:
        memo.connected += 1
        self.memo = memo
        self.broker = memo.broker
        self.outbox = memo.outbox
        self.wire = wire
        self.write = write
        self.write_large = write  # for more than LARGE_WRITE bytes
        self.host = host  # where its peer is, without the port
        self.ipc = ipc
        self.name = b"memo-connection-%d" % memo.connected
        self.live = True
        self.invalid = 0
        self.client: MemoClient | None = None
        self.jobs: dict[bytes, Job | None] = {}  # clients' open requests, by their IDs
        self.parked: dict[bytes, MemoWorker] = {}  # workers' open requests
        self.workers: dict[MemoWorker, None] = {}  # those that spoke here last
        self._recent: dict[bytes, Answer | None] = {}  # requests that were answered
        self._older: dict[bytes, Answer | None] = {}
        self._remembered = 0  # bytes of answers in _recent
        self._remembered_older = 0  # and in _older
        self._kept: list[Astray] = []  # when it is broken
        self._out: list[bytes] = []
        self._deferrable = False  # what is in _out may be held back for a few turns
        self._usual = b""  # the header of the last JOB
        self._usual_service = b""
        self._usual_limit = 0.0

    # The wire's side

    def transmit(self, data: bytes) -> None:
        self.wire.transmit(data)

    def peer_ready(self) -> None:
        self.wire.ready()
        self.memo.breaks.came(self.host, self.broker.now)

    def failed(self, error: ProtocolError) -> None:
        self.wire.failed(error)

    def dropped(self, reason: str) -> None:
        self.complain(reason)

    def buffered(self, size: int) -> None:
        self.wire.buffered(size)

    def message(self, stack: bytes, data: bytes, start: int, end: int) -> None:
        if stack in self.jobs or stack in self._recent or stack in self._older or stack in self.parked:
            self.memo.repeats += 1
            return
        rest = start + _RESULT_HEAD
        if rest <= end and data.startswith(WORKER_RESULT, start):
            worker = self.memo.workers.get(data[start + _ID : rest])
            if worker is not None and worker.stack != stack and worker.answered(self, stack, data[rest:end]):
                return
        rest = start + len(self._usual)
        if self._usual and rest <= end and data.startswith(self._usual, start):
            self._submit(stack, self._usual_service, self._usual_limit, data[rest:end])
            return
        try:
            header = messages.read(data, start, end)
        except ProtocolError as error:
            self._refuse(stack, error.message)
            return
        kind = header.kind
        if kind == JOB:
            self._job(stack, header, data, start, end)
        elif kind == RESULT:
            self._result(stack, header, data[header.end : end])
        elif kind == HEARTBEAT:
            self._heartbeat(stack, header)
        elif kind == READY:
            self._ready(stack, header)
        else:
            self._refuse(stack, f"a {NAMES[kind]}, which is not for a broker")

    # The outbox's side

    def flush(self) -> None:
        out = self._out
        if out:
            self._out = []
            data = b"".join(out)
            if len(data) > LARGE_WRITE:
                self.write_large(data)
            else:
                self.write(data)

    # The ports' side

    def send(self, stack: bytes, content: bytes) -> None:
        """The answer to a request, at the end of this turn."""
        out = self._out
        if not out or self._deferrable:
            self._deferrable = False
            self.outbox.add(self)
        out.append(head(stack, len(content), self.ipc))
        out.append(content)

    def answer(self, stack: bytes, content: bytes) -> None:
        """The same for a client's, which are worth collecting in busy turns."""
        out = self._out
        if not out:
            self._deferrable = True
            self.outbox.add_deferrable(self)
        out.append(head(stack, len(content), self.ipc))
        out.append(content)

    def remember(self, stack: bytes, answer: Answer | None) -> None:
        """The request was answered; if it comes again here it is ignored, over another connection answered again."""
        size = 0 if answer is None else len(answer.content)
        if len(self._recent) >= ANSWERED or self._remembered + size > ANSWERED_BYTES:
            self.age()
        self._remembered += size
        self._recent[stack] = answer

    def complain(self, reason: str) -> None:
        """The peer sent something that is not allowed; it was not answered."""
        self.invalid += 1
        self.wire.complain(reason)

    # The server side

    def is_worker(self) -> bool:
        """Do workers speak here?"""
        return len(self.workers) > 0

    def age(self) -> None:
        """Forget the older half of what was answered. Called every few seconds, too."""
        self._older = self._recent
        self._remembered_older = self._remembered
        self._recent = {}
        self._remembered = 0

    def remembered(self) -> int:
        """Return how many bytes of answers are kept in case their requests come again."""
        return self._remembered + self._remembered_older

    def lost(self) -> None:
        """The connection broke, or its peer went away: nobody can tell which."""
        if not self.live:
            return
        self.live = False
        self._out = []
        busy = False
        for worker in self.workers:
            busy = busy or worker.state != PARKED
            worker.adrift()
        for stack, job in self.jobs.items():
            if job is not None:
                self._stray(stack, job)
        for answers in (self._older, self._recent):
            for stack, answer in answers.items():
                if answer is not None:
                    self._keep(Astray(stack, None, None, answer))
        self.jobs = {}
        self._older = {}
        self._recent = {}
        self.wire = UNPLUGGED
        self.write = self.write_large = _discard
        if self.client is not None:
            self.client.reap()
        if self.workers or self._kept:
            grace = Grace(self)
            if busy:
                self.memo.breaks.broke(grace, self.broker.now)
            self.broker.timers.set(grace, self.broker.now + self.memo.grace)

    def over(self, replaced: bool) -> None:
        """The grace time is over. `replaced`: somebody came from the same address."""
        kept = self._kept
        self._kept = []
        for request in kept:
            if request.keeper is self and request.session is None:
                self.memo.kept.remove(request)
                client = request.client
                if client is not None:
                    client.give_up(request)
                    client.reap()
        for worker in list(self.workers):
            if worker.state == PARKED or not replaced:
                worker.leave("connection lost")

    # Clients

    def _job(self, stack: bytes, header: Header, data: bytes, start: int, end: int) -> None:
        """MemoDB §Simple client. The time-out's clock starts when a worker has the job; 0 leaves it to the service."""
        limit = min(header.timeout, TIMEOUT_MAX) / 1000
        if header.end - start <= USUAL_MAX:
            self._usual = data[start : header.end]
            self._usual_service = header.service
            self._usual_limit = limit
        self._submit(stack, header.service, limit, data[header.end : end])

    def _submit(self, stack: bytes, service: bytes, limit: float, payload: bytes) -> None:
        body = body_of(payload)
        if self.memo.kept.requests and self._returned(stack, service, limit, body):
            return
        client = self.client
        if client is None:
            client = self.client = MemoClient(self)
        self.jobs[stack] = None
        job = self.broker.submit(client.core, service, body, stack, None, limit)
        if job is not None and stack in self.jobs:
            self.jobs[stack] = job

    def _returned(self, stack: bytes, service: bytes, limit: float, body: bytes) -> bool:
        """Is it a request whose connection broke?"""
        request = self.memo.kept.find(stack, service, limit, body)
        if request is None:
            return False
        self.memo.returned += 1
        request.session = self
        if request.answer is not None:
            self.answer(stack, request.answer.content)
            self.remember(stack, request.answer if len(request.answer.content) <= REMEMBERED else None)
        else:
            self.jobs[stack] = request.job
        return True

    # Workers

    def _ready(self, stack: bytes, header: Header) -> None:
        """MemoDB §Worker: it gets an ID with the first answer."""
        names = list(dict.fromkeys(header.services))
        former = self.memo.kept.readies.get(stack)
        if former is not None and former.names == names and former.again(self):
            self.memo.returned += 1
            return None
        if not names:
            return self._refuse(stack, "a READY without a service")
        if len(self.memo.workers) >= self.memo.workers_max:
            return self._refuse(stack, "a READY of one worker too many")
        worker = MemoWorker(self, self.memo.new_id())
        for name in names:
            if not self.broker.may_register(worker.core, name):
                return self._refuse(stack, f"a READY for {shown(name)}, a name that is not for workers")
        self.memo.workers[worker.id] = worker
        self.workers[worker] = None
        for name in names:
            if not self.broker.register(worker.core, name):
                worker.leave("too many services")
                return self._refuse(stack, "a READY for one service too many")
        worker.park(self, stack, READY)
        worker.names = names
        return None

    def _result(self, stack: bytes, header: Header, payload: bytes) -> None:
        worker = self.memo.workers.get(header.id)
        if worker is None:
            self._disconnect(stack, header.id)
        elif worker.is_last(stack, RESULT, payload):
            self._again(worker, stack)
        elif header.leaving:
            worker.last_result(payload)
            worker.leave("said goodbye")
            self._disconnect(stack, header.id)
        elif not worker.answered(self, stack, payload):
            self._out_of_step(worker, stack)

    def _heartbeat(self, stack: bytes, header: Header) -> None:
        worker = self.memo.workers.get(header.id)
        if worker is None:
            self._disconnect(stack, header.id)
        elif worker.is_last(stack, HEARTBEAT, b""):
            self._again(worker, stack)
        elif worker.state == ASKED or worker.state == PARKED:
            worker.park(self, stack, HEARTBEAT)
        else:
            self._out_of_step(worker, stack)

    def _again(self, worker: MemoWorker, stack: bytes) -> None:
        """The last request of a worker came over another connection."""
        self.memo.returned += 1
        if not worker.again(self):
            self._out_of_step(worker, stack)

    def _out_of_step(self, worker: MemoWorker, stack: bytes) -> None:
        """MemoDB §Worker: the broker detects that it is out of sync with the worker. What it held is lost."""
        worker.leave("too late" if worker.state == BUSY else "out of step")
        self._disconnect(stack, worker.id)

    def _disconnect(self, stack: bytes, id: bytes) -> None:
        self.remember(stack, None)
        self.send(stack, messages.disconnect(id))

    def _refuse(self, stack: bytes, reason: str) -> None:
        """Not answered, and not complained about again when it comes again."""
        self.remember(stack, None)
        self.complain(reason)

    # When it breaks

    def _stray(self, stack: bytes, job: Job) -> None:
        """A client's request that has no answer. It may have come over yet another connection first."""
        port = job.client.port
        if isinstance(port, MemoClient):
            request = port.astray.get(job)
            if request is None:
                request = Astray(stack, job, port, None)
                port.astray[job] = request
            request.session = None
            self._keep(request)

    def _keep(self, request: Astray) -> None:
        request.keeper = self
        if self.memo.kept.add(request):
            self._kept.append(request)


def _discard(data: bytes) -> None:
    """Stands in for a socket that is gone."""
