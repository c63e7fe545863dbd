"""The three variants of NFP clients, which differ in what they are told about their jobs:

- plain: the specification's strict dialog. One RESPONSE per command; a job's result is fetched with GET.
- push: the specification's form, with `"push": true` in OPEN. Events, partial results and the end of a job are sent
  as they happen.
- norfab: 202 when the job's workers are known, 201 from each of them, EVENTs, then 200 with `{worker: result}`.
"""

from __future__ import annotations

from polydomo.core.failure import Failure
from polydomo.core.model import Job
from polydomo.core.pieces import Piece, pack, unpack
from polydomo.core.targets import RESOURCES
from polydomo.core.tracked_job import TrackedJob
from polydomo.dialects.client_base import ClientBase
from polydomo.dialects.nfp import json_bodies
from polydomo.dialects.nfp.broker_worker import RESULT_READY
from polydomo.dialects.nfp.messages import ACCEPTED, CREATED, OK
from polydomo.dialects.nfp.replies import Replies, merge_gathered, target_of, uuid_of
from polydomo.dialects.session import Session
from polydomo.wire.frames import EMPTY_BODY, frame, head


class PlainClient(ClientBase):
    """A client that is sent nothing but one RESPONSE per command. The end of its jobs need not interest it, so it is
    not paused when too many of them are unfinished: more are refused (see `NfpClient`)."""

    def __init__(self, session: Session, replies: Replies) -> None:
        super().__init__(session, replies.form.name)
        self._replies = replies
        self._accepted: dict[Job, None] = {}  # jobs with their reply: what happens later is not sent

    def hold(self) -> None:
        pass

    def release(self) -> None:
        pass

    def stall(self) -> None:
        self.link.pause()

    def go_on(self, held: bool) -> None:
        self.link.resume()

    def accepted(self, job: Job) -> None:
        self._replies.respond_accepted(job, b"QUEUED", job.names if isinstance(job, TrackedJob) else None)
        if isinstance(job, TrackedJob) and job.durable and job.leader is None:
            self.broker.jobs.detach(job)  # the store has the job, and there may be any number of them
        else:
            self._accepted[job] = None

    def final(self, job: Job, body: bytes) -> None:
        if not isinstance(job, TrackedJob):
            self._replies.respond(job, OK, body)
        elif job in self._accepted:
            del self._accepted[job]
        else:  # ended before it was accepted: the reply to its POST
            self._replies.respond(job, OK, merge_gathered(body) if job.is_gathered() else body)

    def failed(self, job: Job, failure: Failure) -> None:
        if job in self._accepted:
            del self._accepted[job]
        else:
            self._replies.respond_failure(job, failure)


class PushClient(ClientBase):
    """A client that is told everything about its jobs as it happens."""

    def __init__(self, session: Session, replies: Replies) -> None:
        super().__init__(session, replies.form.name)
        self._replies = replies

    def accepted(self, job: Job) -> None:
        self._replies.respond_accepted(job, b"QUEUED", job.names if isinstance(job, TrackedJob) else None)

    def assigned(self, job: Job, names: list[bytes]) -> None:
        """Send the worker's name if the client cannot know it: the worker that has the one requested resource."""
        target = job.target if isinstance(job, TrackedJob) else None
        if target is not None and target.kind == RESOURCES and target.single:
            self._replies.respond_accepted(job, b"DISPATCHED", names)

    def partial(self, job: Job, body: bytes) -> None:
        self.stream(job, b"" if job.worker is None else job.worker.name, body)

    def final(self, job: Job, body: bytes) -> None:
        self._replies.respond(job, OK, body)

    def failed(self, job: Job, failure: Failure) -> None:
        self._replies.respond_failure(job, failure)

    def event(self, job: Job, name: bytes, kind: str, body: bytes) -> None:
        replies = self._replies
        replies.notify(replies.form.to_client_event, job, head(name, kind.encode()) + frame(body))

    def stream(self, job: Job, name: bytes, body: bytes) -> None:
        replies = self._replies
        replies.notify(replies.form.to_client_stream, job, frame(name, True) + (body or EMPTY_BODY))

    def gathered(self, job: Job, name: bytes, body: bytes | None, failure: Failure | None) -> None:
        if failure is not None:
            piece = Piece(name, failure.body, failure.reason, failure.message, failure.detail)
        else:
            piece = Piece(name, body, "", "", b"")
        self.event(job, name, "gathered", pack([piece]))


class NorfabClient(ClientBase):
    """norfab's own client. It waits for exactly the workers in its 202, which is sent when they are known."""

    def __init__(self, session: Session, replies: Replies) -> None:
        super().__init__(session, replies.form.name, resumed=True)
        self._replies = replies
        self._workers: dict[Job, list[bytes]] = {}  # names in the job's 202
        self._result_ready: dict[Job, dict[bytes, bytes]] = {}  # held back `result_ready` events by worker
        self._tail_service = b""  # of the last 202, whose end is mostly the same
        self._tail_target = b""
        self._tail = b""
        self._gathered: dict[Job, dict[bytes, None]] = {}  # workers whose results were sent, of several

    def assigned(self, job: Job, names: list[bytes]) -> None:
        if names:
            self._send_workers(job, names)

    def acknowledged(self, job: Job, name: bytes, body: bytes) -> None:
        said = b'{"worker":%b,"uuid":%b,"status":"ACCEPTED","service":%b}' % (
            json_bodies.quote_name(self._announced_name(job, name)),
            json_bodies.quote_text(uuid_of(job)),
            json_bodies.quote_name(job.requested_service),
        )
        self._replies.respond(job, CREATED, frame(said))

    def event(self, job: Job, name: bytes, kind: str, body: bytes) -> None:
        announced = self._announced_name(job, name)
        if not body.startswith(b'{"worker":'):
            task = json_bodies.task_in(job.body)
            body = json_bodies.norfab_event(announced, kind, body, uuid_of(job), job.requested_service, task)
        elif announced != name:
            body = json_bodies.rename_worker(body, announced)
        if kind == RESULT_READY:
            # The client would fetch the result at once, which may not be stored yet.
            self._result_ready.setdefault(job, {})[name] = body
        else:
            self._send_event(job, body)

    def partial(self, job: Job, body: bytes) -> None:
        name = b"" if job.worker is None else job.worker.name
        self.event(job, name, "partial", json_bodies.value(body))

    def stream(self, job: Job, name: bytes, body: bytes) -> None:
        self._replies.notify(self._replies.form.to_client_stream, job, body or EMPTY_BODY)

    def gathered(self, job: Job, name: bytes, body: bytes | None, failure: Failure | None) -> None:
        self._gathered.setdefault(job, {})[name] = None
        self._send_result(job, name, body, failure)

    def final(self, job: Job, body: bytes) -> None:
        if not isinstance(job, TrackedJob):
            self._replies.respond(job, OK, body)
            return
        if job.is_gathered():
            pieces = unpack(body)
            if job not in self._workers:
                self._send_workers(job, [piece.name for piece in pieces])
            gathered = self._gathered.get(job, {})
            for piece in pieces:
                if piece.name not in gathered:
                    self._send_result(job, piece.name, piece.body, piece.failure())
        else:
            if job.worker is not None:
                name = job.worker.name
            else:  # the result of another job with the same id: its worker is the one in the 202
                names = self._workers.get(job)
                name = names[0] if names else b"worker"
            if job not in self._workers:
                self._send_workers(job, [name])
            self._send_result(job, name, body, None)
        self._drop(job)

    def failed(self, job: Job, failure: Failure) -> None:
        self._drop(job)
        self._replies.respond_failure(job, failure)

    def _send_workers(self, job: Job, names: list[bytes]) -> None:
        """Send 202 with the names of the job's workers."""
        self._workers[job] = names
        target = target_of(job)
        if job.requested_service is not self._tail_service or target != self._tail_target:
            self._tail_service = job.requested_service
            self._tail_target = target
            self._tail = json_bodies.job_status_tail(job.requested_service, target, b"DISPATCHED")
        said = b'{"workers":%b,"uuid":%b%b' % (
            json_bodies.name_list(names),
            json_bodies.quote_text(uuid_of(job)),
            self._tail,
        )
        self._replies.respond(job, ACCEPTED, frame(said))

    def _announced_name(self, job: Job, name: bytes) -> bytes:
        """Return the name in the job's 202 for the worker `name`: a job for any worker may have moved since."""
        names = self._workers.get(job)
        if names is None or len(names) != 1 or not isinstance(job, TrackedJob) or job.is_gathered():
            return name
        return names[0]

    def _send_event(self, job: Job, body: bytes) -> None:
        self._replies.notify(self._replies.form.to_client_event, job, frame(body))

    def _send_result(self, job: Job, name: bytes, body: bytes | None, failure: Failure | None) -> None:
        """Send the worker's `result_ready` event, if it was held back, and its result."""
        held = self._result_ready.get(job)
        event = None if held is None else held.pop(name, None)
        if event is not None:
            self._send_event(job, event)
        announced = self._announced_name(job, name)
        uuid = uuid_of(job)
        if failure is not None or body is None:
            failure = failure or Failure("", "the worker sent no result")
            said = json_bodies.norfab_failure(announced, failure, uuid, job.requested_service)
        else:
            said = json_bodies.norfab_result(name, announced, body, uuid, job.requested_service, job.body)
        self._replies.respond(job, OK, frame(said))

    def _drop(self, job: Job) -> None:
        self._workers.pop(job, None)
        self._result_ready.pop(job, None)
        self._gathered.pop(job, None)
