"""NFP workers on the broker's side.

A job is sent as POST with the token of its attempt. The specification's workers reply with RESPONSE 200 and the result.
norfab's workers send 201 when they have the job, then EVENTs, the last of them `result_ready`; the broker then fetches
the result with GET and passes that event on only afterwards, so that no client is told of a result that is not safe
yet. norfab's workers ignore a UUID that they have seen before, so the token is appended to the UUID that they get, and
removed from everything that comes back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from polydomo.core.broker import ANSWERED, STRAY, Broker
from polydomo.core.failure import WORKER_ERROR, Failure
from polydomo.core.model import Job, Service, Worker
from polydomo.core.tracked_job import TrackedJob
from polydomo.core.workers import NAME_TAKEN, REPLACED
from polydomo.dialects.nfp import json_bodies, messages, worker_info
from polydomo.dialects.nfp.messages import BROKER, COMMANDS, OK_FRAME, TOKEN_FRAME, Form, status_of
from polydomo.dialects.session import Session
from polydomo.dialects.targets import EVERY_SERVICE
from polydomo.dialects.worker_base import WorkerBase
from polydomo.wire.frames import DELIMITER, EMPTY_BODY, Message, frame, join, shown, split

RESULT_READY: Final = "result_ready"

QueryReply = Callable[["NfpWorker", bytes, bytes], None]


class NfpWorker(WorkerBase):
    """A worker that speaks one form of NFP, registered between READY and DISCONNECT."""

    def __init__(self, session: Session, form: Form) -> None:
        super().__init__(session)
        self.form = form
        self.response_head = form.from_worker_response  # start of nearly all its messages, up to a token
        self.service = b""
        self.opened = False
        self.name = session.link.name("nfp")
        self.anonymous = not session.link.named
        self.credit = session.context.nfp_credit if form.norfab else 1
        self.resources: list[bytes] = []
        self._closed = False  # after a DISCONNECT of either side, when only OPEN and READY are valid
        self._token = b""  # of the job whose response the link expects
        self._keepalive = b""
        self._queries: dict[bytes, tuple[bytes, QueryReply]] = {}  # token → UUID and callback
        self._query_number = 0  # of the last query
        self._result_ready: dict[
            bytes, bytes
        ] = {}  # token → `result_ready` event whose result is being fetched
        self._reclaimed: dict[
            bytes, None
        ] = {}  # tokens of jobs from before the restart that it was asked about
        self._rejected: list[bytes] = []  # tokens of jobs that this worker must not get
        self._rejecting = False

    # From the core

    def dispatch(self, job: Job) -> None:
        form = self.form
        token = job.token
        body = job.body or EMPTY_BODY
        uuid = uid_of(self.broker, job)
        if form.norfab:
            if not json_bodies.is_task(body):
                self._reject_job(token)
                return
            uuid = uuid + b"." + token
        address = token + DELIMITER + frame(uuid, True)
        if not self._token and self.core is not None and len(self.core.running) == 1:
            self._token = token
            self.link.expect(self.session, form.from_worker_response + address + OK_FRAME)
        self.link.send(form.to_worker_post + TOKEN_FRAME + address + body)

    def heartbeat(self) -> None:
        self.link.send(self._keepalive)

    def cancel(self, job: Job) -> None:
        """Send DELETE to the worker that has the job (NFP §DELETE)."""
        self._stop_expecting(job.token)
        self._result_ready.pop(job.token, None)
        self._send_about(messages.DELETE, job, EMPTY_BODY)

    def put(self, job: Job, body: bytes) -> bool:
        if self.form.norfab and json_bodies.only_frame(body) is None:
            return False
        self._send_about(messages.PUT, job, body)
        return True

    def share(self, resources: list[bytes]) -> None:
        """Send a task of the worker's management, if it has any; its reply is ignored."""
        if self.is_queryable() and not self.form.norfab:
            kwargs = b'{"resources":%b}' % json_bodies.name_list(resources)
            task = frame(b'{"task":"set_resources","args":[],"kwargs":%b}' % kwargs)
            self._send_query(messages.MMI, b"resources", task)

    def reclaim(self, job: Job) -> bool:
        if not self.is_queryable():
            return False
        self._reclaimed[job.token] = None
        self._send_about(messages.GET, job, EMPTY_BODY if not self.form.norfab else frame(b"{}"))
        return True

    def reset(self) -> None:
        self.core = None
        self._stop_expecting(self._token)
        self._result_ready.clear()
        self._reclaimed.clear()
        queries = list(self._queries.values())
        self._queries.clear()
        for _, reply in queries:
            reply(self, b"", b"")

    def disconnect(self, reason: str) -> None:
        self._closed = True
        self.link.send(self.form.disconnect(BROKER, self.service, reason.encode()))

    # From worker queries

    def is_queryable(self) -> bool:
        """Return whether the worker can be sent anything but jobs. One that never sent OPEN may take it for a job."""
        return self.core is not None and (self.form.norfab or self.opened)

    def query(self, command: int, uuid: bytes, body: bytes, reply: QueryReply) -> bytes:
        """Send a client's query and return its token. `reply` gets the status and body, or `b""` as the status if the
        worker leaves before."""
        token = self._send_query(command, uuid, body)
        self._queries[token] = (uuid, reply)
        return token

    def drop_query(self, token: bytes) -> None:
        """Ignore the reply to this query."""
        self._queries.pop(token, None)

    # From the session

    def receive_expected(self, body: bytes) -> None:
        """Process the RESPONSE that was expected."""
        token = self._token
        self._stop_expecting(token)
        core = self.core
        if core is not None:
            self._final(core, token, body)

    def receive_result(self, message: Message) -> bool:
        """Process RESPONSE 200 for one of the worker's jobs, in a message that begins with `response_head`. Return
        False and leave the message untouched if it is anything else."""
        data = message.data
        at = message.pos + len(self.response_head)
        token = data[at : at + 8]
        core = self.core
        if core is None or token not in core.running or data[at + 8 : at + 11] != b"\x01\x00\x01":
            return False
        at += 12 + data[at + 11]  # after the UUID
        if data[at : at + 5] != OK_FRAME or at + 5 >= message.end:
            return False
        self._stop_expecting(token)
        self._final(core, token, data[at + 5 : message.end])
        return True

    def receive(self, code: int, message: Message) -> None:
        """Process any command but the expected RESPONSE; the message is read up to the command."""
        if code == messages.DISCONNECT:
            # NFP §Opening and Closing: may come at any time, even before READY; send nothing more.
            self.leave("sent DISCONNECT")
            self._closed = True
        elif code == messages.OPEN:
            self._open(message)
        elif code == messages.READY:
            self._register(message)
        elif self._closed:
            self.link.report_violation(f"NFP worker command {COMMANDS[code]} after DISCONNECT")
        elif code == messages.KEEPALIVE:
            self._receive_keepalive(message)
        elif code in (messages.RESPONSE, messages.EVENT, messages.STREAM, messages.MMI):
            self._reply(code, message)
        else:
            self.reject_invalid(f"NFP command {COMMANDS[code]} is not a worker's")

    def _open(self, message: Message) -> None:
        body = message.take()
        if body is None or message.take() is not None:
            return self.reject_invalid("NFP OPEN without exactly one body")
        if self.core is not None:
            return self.reject_unexpected("NFP OPEN after READY")
        try:
            self._read_open(body)
        except ValueError as error:
            return self.link.report_violation(f"NFP OPEN: {error}")
        self._closed = False
        self.opened = True
        self.link.send(self.form.short(BROKER, messages.OPEN, json_bodies.greeting(self.session.context)))
        return None

    def _read_open(self, body: bytes) -> None:
        """Apply the name, credit and resources in OPEN's body. Raises ValueError."""
        members = json_bodies.object_in(body) if body else None
        if members is None:
            return  # NFP §OPEN: the body is opaque
        name = json_bodies.member(members, "name")
        if name is not None:
            if not isinstance(name, str) or not worker_info.is_valid_name(name.encode()):
                raise ValueError(f"{name!r} is not a valid worker name")
            self.name = name.encode()
            self.anonymous = False
        credit = json_bodies.member(members, "credit")
        if credit is not None:
            if isinstance(credit, bool) or not isinstance(credit, int) or credit < 1:
                raise ValueError(f"credit must be a number of jobs, not {credit!r}")
            self.credit = min(credit, self.session.context.credit_max)
        if "resources" in members:
            self.resources = worker_info.resource_names(json_bodies.member(members, "resources"))

    def _register(self, message: Message) -> None:
        service = message.take()
        if not service or message.take() is not None:
            return self.reject_invalid("NFP READY without exactly one service name")
        if self.core is not None:
            # NFP §Opening and Closing: MUST NOT send a further READY.
            return self.reject_unexpected("NFP READY from a registered worker")
        self.service = service
        beat = self.session.context.beat
        core = self.make_core(self.name, self.form.name, self.anonymous, beat)
        core.base_credit = core.credit = self.credit
        core.steady = self.form.norfab  # norfab counts nothing but KEEPALIVE as a heartbeat
        core.parallel = True  # the credit is the number of jobs that it runs at once
        self.core = core
        self._closed = False
        self._keepalive = self.form.short(BROKER, messages.KEEPALIVE, service)
        if self.broker.is_name_taken(core):
            self.core = None
            self.link.report_violation(f"NFP READY as {shown(self.name)} for {shown(service)}: {NAME_TAKEN}")
            return self.disconnect(NAME_TAKEN)
        if service == EVERY_SERVICE or not self.broker.may_register(core, service):
            self.core = None
            return self.reject_unexpected(
                f"NFP READY for {shown(service)}, {self.broker.why_refused(core, service)}"
            )
        _replace_former(core, self.broker.services.get(service))
        if self.resources:
            self.broker.set_resources(core, self.resources)
        self.broker.register(core, service)
        return None

    def _receive_keepalive(self, message: Message) -> None:
        service = message.take()
        if service is None or message.take() is not None:
            return self.reject_invalid("NFP KEEPALIVE without exactly one service name")
        if self.core is None:
            self.service = service
            return self.reject_unexpected("NFP KEEPALIVE before READY")
        self.broker.seen(self.core)
        return None

    def _reply(self, code: int, message: Message) -> None:
        token = message.take()
        delimiter = message.take()
        uuid = message.take()
        if token is None or delimiter != b"" or uuid is None:
            # NFP §POST and RESPONSE Processing: precisely one address frame, then an empty one.
            return self.reject_invalid(f"NFP {COMMANDS[code]} without address, empty frame and UUID")
        core = self.core
        if core is None:
            return self.reject_unexpected(f"NFP {COMMANDS[code]} before READY")
        if code == messages.MMI and not token:
            return self._worker_task(core, uuid, message)
        status = status_of(message.take() or b"")
        if not status:
            return self.reject_invalid(f"NFP {COMMANDS[code]} without a status of three digits")
        query = self._queries.pop(token, None)
        if query is not None:
            self.broker.seen(core)
            if query[0] == uuid:
                query[1](self, status, message.rest())
        elif token[:1] == b"g":
            self.broker.seen(core)  # the reply to a query that has been dropped
        elif code == messages.EVENT:
            self._event(core, token, message)
        elif code == messages.STREAM:
            self.broker.stream(core, token, message.rest() or EMPTY_BODY)
        elif code == messages.RESPONSE:
            self._response(core, token, status, message)
        return None

    def _response(self, core: Worker, token: bytes, status: bytes, message: Message) -> None:
        """Process a RESPONSE about a job: a result, a failure, or a progress status."""
        body = message.rest()
        self._stop_expecting(token)
        known = ANSWERED
        if status == messages.OK:
            known = self._final(core, token, body)
        elif status in (messages.CREATED, messages.ACCEPTED):
            known = self.broker.acknowledged(core, token, Message(body, 0, len(body)).take() or b"")
            self._reclaimed.pop(token, None)
        elif status in (messages.PENDING, messages.WAITING_INPUT):
            self.broker.seen(core)
        elif status in (messages.UNKNOWN, messages.NO_JOB) and token in self._reclaimed:
            del self._reclaimed[token]
            self.broker.report_unknown(core, token)
        elif status[:1] in (b"4", b"5"):
            self._reclaimed.pop(token, None)
            self._result_ready.pop(token, None)
            known = self.broker.fail(core, token, worker_info.failure_from(status, body))
        else:
            self.reject_invalid(f"NFP status {status.decode()} is not a worker's")
        if known == STRAY and not self.form.norfab and not self.link.native:
            # norfab's workers, and our own, may reply after a reconnect to a job from before it.
            self.reject_unexpected("NFP response to a job that the worker was not given")

    def _final(self, core: Worker, token: bytes, body: bytes) -> int:
        self._reclaimed.pop(token, None)
        if self.form.norfab:
            body = _with_own_uuid(self.broker, core.running.get(token), body)
            event = self._result_ready.pop(token, None)
            if event is not None:
                self.broker.event(core, token, RESULT_READY, event)
        return self.broker.final(core, token, body)

    def _event(self, core: Worker, token: bytes, message: Message) -> None:
        kind, body = json_bodies.event_in(message.frames())
        if self.form.norfab and kind == RESULT_READY and token:
            job = core.running.get(token)
            if job is not None:
                self.broker.seen(core)
                self._result_ready[token] = _without_token(self.broker, job, body)
                self._send_about(messages.GET, job, frame(b"{}"))
            elif token in core.revoked:
                # The job was revoked; only the end of the attempt was waited for.
                self.broker.fail(core, token, Failure(WORKER_ERROR, "the result came too late"))
            return
        if token:
            job = core.running.get(token)
            if job is not None and self.form.norfab:
                body = _without_token(self.broker, job, body)
        self.broker.event(core, token, kind, body)

    def _send_query(self, command: int, uuid: bytes, body: bytes) -> bytes:
        """Send something that is not about a job of this worker, and return its token (see worker_queries.py)."""
        self._query_number = (self._query_number + 1) & 0xFFFFFFF
        token = b"g%07x" % self._query_number
        address = TOKEN_FRAME + token + DELIMITER + frame(uuid, True)
        self.link.send(self.form.head(BROKER, command) + address + body)
        return token

    def _worker_task(self, core: Worker, uuid: bytes, message: Message) -> None:
        """Perform a worker's own task, an MMI without an address. There is one: set_resources."""
        message.take()  # the status
        body = message.take() or b""
        self.broker.seen(core)
        try:
            self.resources = worker_info.resource_names(worker_info.resources_in(body))
        except ValueError as error:
            return self.link.report_violation(f"NFP MMI of a worker: {error}")
        self.broker.set_resources(core, self.resources)
        answer = b'{"resources":%b}' % json_bodies.name_list(self.resources)
        address = DELIMITER + DELIMITER + frame(uuid, True)
        self.link.send(self.form.head(BROKER, messages.MMI) + address + OK_FRAME + frame(answer))
        return None

    def _send_about(self, command: int, job: Job, body: bytes) -> None:
        """Send a command about a job of this worker."""
        uuid = uid_of(self.broker, job)
        if self.form.norfab:
            uuid = uuid + b"." + job.token
        address = TOKEN_FRAME + job.token + DELIMITER + frame(uuid, True)
        self.link.send(self.form.head(BROKER, command) + address + (body or EMPTY_BODY))

    def _reject_job(self, token: bytes) -> None:
        """Fail a job that would end the worker's thread. That frees the worker for the next job, which may be rejected
        too: a loop, so that the calls do not nest."""
        self._rejected.append(token)
        if self._rejecting:
            return
        self._rejecting = True
        message = "a norfab worker takes one JSON object as a job, as in {'task': …, 'kwargs': …}"
        while self._rejected and self.core is not None:
            detail = json_bodies.failure_detail(messages.UNKNOWN, message)
            failure = Failure(WORKER_ERROR, message, frame(detail), detail)
            self.broker.fail(self.core, self._rejected.pop(), failure)
        self._rejected.clear()
        self._rejecting = False

    def _stop_expecting(self, token: bytes) -> None:
        if self._token and token == self._token:
            self._token = b""
            self.link.expect(self.session, b"")


def _with_own_uuid(broker: Broker, job: Job | None, body: bytes) -> bytes:
    """Return the body of a result in which the job has its own UUID again."""
    if job is None or b"." + job.token not in body:
        return body
    data = json_bodies.only_frame(body)
    if data is not None:
        return frame(_without_token(broker, job, data))
    return join([_without_token(broker, job, data) for data in split(body)])


def _without_token(broker: Broker, job: Job, data: bytes) -> bytes:
    uuid = uid_of(broker, job)
    return data.replace(uuid + b"." + job.token, uuid)


def _replace_former(worker: Worker, service: Service | None) -> None:
    """Remove the same worker's former connection: a worker that reconnects may be faster than the end of that."""
    former = None if service is None else service.names.get(worker.name)
    if former is not None and isinstance(former.port, NfpWorker) and former.instance == worker.instance:
        former.port.leave(REPLACED)
        former.port.disconnect(REPLACED)


def uid_of(broker: Broker, job: Job) -> bytes:
    """Return a job's UUID for workers: the client's, or a generated one if the client's dialect has none."""
    if isinstance(job, TrackedJob):
        return job.uid.encode()
    return b"%x-%x" % (broker.start_id, job.id)
