"""The three kinds of NFP clients, which differ in what they are told:

- plain: the specification's strict dialog. One RESPONSE for each command; a job's result is asked for with GET.
- push: the specification's form, and its OPEN asked for more: events, pieces and the end of a job come by themselves.
- norfab's: 202 when it is known who will do the job, 201 from each of them, EVENTs, then 200 with `{worker: result}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polydomo.core.gather import Piece, pack, unpack
from polydomo.core.job import Failure, Job
from polydomo.core.result_history import JobResult
from polydomo.core.targets import RESOURCES
from polydomo.dialects import targets
from polydomo.dialects.nfp import json_bodies
from polydomo.dialects.nfp.broker_client import NfpClient, state_of, target_of, uuid_frame, uuid_of
from polydomo.dialects.nfp.broker_worker import RESULT_READY
from polydomo.dialects.nfp.messages import ACCEPTED, CREATED, GET, NO_JOB, OK, OK_FRAME, PENDING, Form
from polydomo.dialects.nfp.worker_queries import WorkerQuery
from polydomo.wire.frames import EMPTY_BODY, frame, head

if TYPE_CHECKING:
    from polydomo.dialects.nfp.session import NfpSession


class PlainClient(NfpClient):
    """Speaks, and is answered. It cannot be kept waiting for its own jobs' end: too many are refused."""

    def __init__(self, session: NfpSession, form: Form) -> None:
        super().__init__(session, form)
        self._pending: dict[Job, None] = {}  # told 202; what comes later is not said unasked

    def hold(self) -> None:
        self._full = True

    def release(self) -> None:
        self._full = False

    def stall(self) -> None:
        self.link.pause()

    def go_on(self, held: bool) -> None:
        self.link.resume()
        super().go_on(held)

    def accepted(self, job: Job) -> None:
        names = None if job.extra is None else job.extra.names
        self._tell(job, ACCEPTED, frame(self._told(job, b"QUEUED", names)))
        if job.extra is not None and job.extra.durable and job.extra.leader is None:
            self.broker.lifecycle.detach(job)  # it is safe, and there may be any number of them
        else:
            self._pending[job] = None

    def partial(self, job: Job, body: bytes) -> None:
        """One RESPONSE for each command: there is no place for it."""

    def final(self, job: Job, body: bytes) -> None:
        if job.extra is None:
            self._tell(job, OK, body)
        elif job in self._pending:
            del self._pending[job]
        else:  # it ended before it was even taken: the answer to its POST
            self._tell(job, OK, self._shape(body, job.extra.several()))

    def failed(self, job: Job, failure: Failure) -> None:
        if job in self._pending:
            del self._pending[job]
        else:
            self._tell_failure(job, failure)


class PushClient(NfpClient):
    """Told everything about its jobs as it happens."""

    def accepted(self, job: Job) -> None:
        names = None if job.extra is None else job.extra.names
        self._tell(job, ACCEPTED, frame(self._told(job, b"QUEUED", names)))

    def assigned(self, job: Job, names: list[bytes]) -> None:
        """Said where the client could not know: who has the one resource it asked for."""
        target = None if job.extra is None else job.extra.target
        if target is not None and target.kind == RESOURCES and target.single:
            self._tell(job, ACCEPTED, frame(self._told(job, b"DISPATCHED", names)))

    def partial(self, job: Job, body: bytes) -> None:
        self.stream(job, b"" if job.worker is None else job.worker.name, body)

    def final(self, job: Job, body: bytes) -> None:
        self._tell(job, OK, body)

    def failed(self, job: Job, failure: Failure) -> None:
        self._tell_failure(job, failure)

    def event(self, job: Job, name: bytes, kind: str, body: bytes) -> None:
        start = self.form.to_client_event + frame(job.asked, True) + uuid_frame(job) + OK_FRAME
        self.link.answer(start + head(name, kind.encode()) + frame(body))

    def stream(self, job: Job, name: bytes, body: bytes) -> None:
        start = self.form.to_client_stream + frame(job.asked, True) + uuid_frame(job) + OK_FRAME
        self.link.answer(start + frame(name, True) + (body or EMPTY_BODY))

    def gathered(self, job: Job, name: bytes, body: bytes | None, failure: Failure | None) -> None:
        if failure is not None:
            piece = Piece(name, failure.body, failure.reason, failure.message, failure.detail)
        else:
            piece = Piece(name, body, "", "", b"")
        self.event(job, name, "gathered", pack([piece]))


class NorfabClient(NfpClient):
    """norfab's own. It waits for exactly the workers that its 202 names, so that comes when they are known."""

    def __init__(self, session: NfpSession, form: Form) -> None:
        super().__init__(session, form)
        self._workers_of: dict[Job, list[bytes]] = {}  # whom its 202 named
        self._ready: dict[Job, dict[bytes, bytes]] = {}  # `result_ready` events that wait for their results
        self._tail_service = b""  # of the last 202, whose end is mostly the same
        self._tail_target = b""
        self._tail = b""
        self._shown: dict[Job, dict[bytes, None]] = {}  # whose results it has got of several

    def resumes(self) -> bool:
        return True

    def accepted(self, job: Job) -> None:
        """Nobody is known yet."""

    def assigned(self, job: Job, names: list[bytes]) -> None:
        if names:
            self._dispatched(job, names)

    def taken(self, job: Job, name: bytes, body: bytes) -> None:
        said = b'{"worker":%b,"uuid":%b,"status":"ACCEPTED","service":%b}' % (
            json_bodies.quoted(self._called(job, name)),
            json_bodies.echoed(uuid_of(job)),
            json_bodies.quoted(job.asked),
        )
        self._tell(job, CREATED, frame(said))

    def event(self, job: Job, name: bytes, kind: str, body: bytes) -> None:
        called = self._called(job, name)
        if not body.startswith(b'{"worker":'):
            uuid = uuid_of(job)
            body = json_bodies.norfab_event(
                called, kind, body, uuid, job.asked, json_bodies.task_in(job.body)
            )
        elif called != name:
            body = json_bodies.renamed(body, called)
        if kind == RESULT_READY:
            # It would ask for the result at once, which may not be safe yet.
            self._ready.setdefault(job, {})[name] = body
        else:
            self._event(job, body)

    def partial(self, job: Job, body: bytes) -> None:
        name = b"" if job.worker is None else job.worker.name
        self.event(job, name, "partial", json_bodies.value(body))

    def stream(self, job: Job, name: bytes, body: bytes) -> None:
        start = self.form.to_client_stream + frame(job.asked, True) + uuid_frame(job) + OK_FRAME
        self.link.answer(start + (body or EMPTY_BODY))

    def gathered(self, job: Job, name: bytes, body: bytes | None, failure: Failure | None) -> None:
        self._shown.setdefault(job, {})[name] = None
        self._announce(job, name)
        self._result(job, name, body, failure)

    def final(self, job: Job, body: bytes) -> None:
        extra = job.extra
        if extra is None:
            self._tell(job, OK, body)
            return
        if extra.several():
            pieces = unpack(body)
            if job not in self._workers_of:
                self._dispatched(job, [piece.name for piece in pieces])
            shown = self._shown.get(job, {})
            for piece in pieces:
                if piece.name not in shown:
                    self._announce(job, piece.name)
                    self._result(job, piece.name, piece.body, piece.failure())
        else:
            if job.worker is not None:
                name = job.worker.name
            else:  # it followed another with its id, or that one ended long ago: the 202 says who did it
                names = self._workers_of.get(job)
                name = names[0] if names else b"worker"
            if job not in self._workers_of:
                self._dispatched(job, [name])
            self._announce(job, name)
            self._result(job, name, body, None)
        self._forget(job)

    def failed(self, job: Job, failure: Failure) -> None:
        self._forget(job)
        self._tell_failure(job, failure)

    def relayed(self, relay: WorkerQuery) -> None:
        if relay.asked == GET and not relay.pieces and not relay.running:
            self._unknown(relay.command, relay.service, relay.uuid, PENDING if relay.silent else NO_JOB)
        else:
            super().relayed(relay)

    def _found(self, relay: WorkerQuery) -> bytes:
        return frame(json_bodies.norfab_pieces(relay.pieces, relay.uuid, relay.service))

    def _get(self, service: bytes, target: bytes, uuid: bytes, body: bytes) -> None:
        """First 202, as always with norfab; it ignores that one if it knows whom it waits for."""
        names = targets.names_in(target)
        job = self.broker.find(uuid.decode())
        if not names and job is not None and job.extra is not None and job.extra.names:
            names = job.extra.names
        if names:
            said = json_bodies.told(uuid, service, target, b"DISPATCHED", names)
            self._answer(GET, service, uuid, ACCEPTED, frame(said))
        super()._get(service, target, uuid, body)

    def _still(self, job: Job, service: bytes, target: bytes, uuid: bytes) -> None:
        said = b'{"uuid":%b,"service":%b,"status":"%b"}' % (
            json_bodies.echoed(uuid),
            json_bodies.quoted(service),
            state_of(job),
        )
        self._answer(GET, service, uuid, PENDING, frame(said))

    def _recalled(self, ended: JobResult, service: bytes, target: bytes, uuid: bytes) -> None:
        if ended.failure is not None:
            super()._recalled(ended, service, target, uuid)
            return
        body = ended.body or EMPTY_BODY
        if ended.gathered:
            said = json_bodies.norfab_pieces(unpack(body), uuid, service)
        else:
            names = targets.names_in(target)
            name = ended.worker or b"worker"
            called = names[0] if len(names) == 1 else name
            said = json_bodies.norfab_result(name, called, body, uuid, service)
        self._answer(GET, service, uuid, OK, frame(said))

    def _ask_about(self, service: bytes, target: bytes, uuid: bytes, body: bytes) -> None:
        """A worker that is away for a moment must not make its job fail: 300 then."""
        if not self._relay(WorkerQuery(self, GET, GET, service, uuid, target), body):
            self._unknown(GET, service, uuid, PENDING)

    def _put(self, service: bytes, target: bytes, uuid: bytes, body: bytes) -> None:
        """Not answered: norfab's client would take a refusal for the job's failure. It names the worker of its 202,
        which need not be the one that has the job now."""
        job = self.broker.find(uuid.decode())
        if job is not None and job.extra is not None:
            self.broker.put(job, targets.names_in(target) if job.extra.several() else [], body)

    def _dispatched(self, job: Job, names: list[bytes]) -> None:
        self._workers_of[job] = names
        target = target_of(job)
        if job.asked is not self._tail_service or target != self._tail_target:
            self._tail_service = job.asked
            self._tail_target = target
            self._tail = json_bodies.told_tail(job.asked, target, b"DISPATCHED")
        said = b'{"workers":%b,"uuid":%b%b' % (
            json_bodies.listed(names),
            json_bodies.echoed(uuid_of(job)),
            self._tail,
        )
        self._tell(job, ACCEPTED, frame(said))

    def _called(self, job: Job, name: bytes) -> bytes:
        """As whom a worker is shown: a job for anybody may have moved since the 202."""
        names = self._workers_of.get(job)
        if names is None or len(names) != 1 or job.extra is None or job.extra.several():
            return name
        return names[0]

    def _announce(self, job: Job, name: bytes) -> None:
        """The `result_ready` that was held back."""
        waiting = self._ready.get(job)
        if waiting is not None:
            event = waiting.pop(name, None)
            if event is not None:
                self._event(job, event)

    def _event(self, job: Job, body: bytes) -> None:
        start = self.form.to_client_event + frame(job.asked, True) + uuid_frame(job) + OK_FRAME
        self.link.answer(start + frame(body))

    def _result(self, job: Job, name: bytes, body: bytes | None, failure: Failure | None) -> None:
        called = self._called(job, name)
        uuid = uuid_of(job)
        if failure is not None or body is None:
            failure = failure or Failure("", "the worker gave no result")
            said = json_bodies.norfab_failure(called, failure, uuid, job.asked)
        else:
            said = json_bodies.norfab_result(name, called, body, uuid, job.asked, job.body)
        self._tell(job, OK, frame(said))

    def _forget(self, job: Job) -> None:
        self._workers_of.pop(job, None)
        self._ready.pop(job, None)
        self._shown.pop(job, None)
