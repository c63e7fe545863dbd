"""NFP workers, as the broker sees them.

A job goes out as POST under the token of its attempt. The specification's workers answer RESPONSE 200 with the result.
norfab's say 201 when they have it, then EVENTs, the last of them `result_ready`; the broker then fetches the result
with GET and only then passes that event on, so that nobody is told of a result that is not safe yet. norfab's workers
swallow a UUID they have seen, so theirs has the token added to it; in all that goes back it is taken off again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polydomo.core.answers import ANSWERED, STRAY
from polydomo.core.broker import Broker
from polydomo.core.job import WORKER_ERROR, Failure, Job
from polydomo.core.ports import WorkerPort
from polydomo.core.worker import Worker
from polydomo.dialects.nfp import json_bodies, worker_info
from polydomo.dialects.nfp.messages import (
    ACCEPTED,
    BROKER,
    COMMANDS,
    CREATED,
    DELETE,
    DISCONNECT,
    EVENT,
    GET,
    KEEPALIVE,
    MMI,
    NO_JOB,
    OK,
    OK_FRAME,
    OPEN,
    PENDING,
    PUT,
    READY,
    RESPONSE,
    STREAM,
    TOKEN_FRAME,
    UNKNOWN,
    WAITING_INPUT,
    Form,
    status_of,
)
from polydomo.dialects.session import NAME_TAKEN
from polydomo.dialects.targets import EVERY_SERVICE
from polydomo.wire.frames import DELIMITER, EMPTY_BODY, Message, frame, join, shown, split

if TYPE_CHECKING:
    from polydomo.dialects.nfp.session import NfpSession
    from polydomo.dialects.nfp.worker_queries import WorkerQuery

RESULT_READY: Final = "result_ready"


class NfpWorker(WorkerPort):
    """Unregistered (`core` is None) until READY, and again after any DISCONNECT."""

    def __init__(self, session: NfpSession, form: Form) -> None:
        self.session = session
        self.broker = session.broker
        self.link = session.link
        self.form = form
        self.usual = form.from_worker_response  # how nearly all it sends begins, up to a token
        self.core: Worker | None = None
        self.service = b""
        self.opened = False
        self.name = session.link.name("nfp")
        self.anonymous = not session.link.named
        self.credit = session.context.nfp_credit if form.norfab else 1
        self.resources: list[bytes] = []
        self._over = False  # DISCONNECT was said, by either side: only a new beginning is answered after it
        self._token = b""  # of the job whose answer the link was told to expect
        self._keepalive = b""
        self._questions: dict[bytes, WorkerQuery] = {}
        self._number = 0  # of its last question
        self._ready: dict[bytes, bytes] = {}  # token → `result_ready` events whose results are being fetched
        self._reclaimed: dict[bytes, None] = {}  # tokens of jobs it was asked about after a restart
        self._refused: list[bytes] = []  # tokens of jobs that it must not see
        self._refusing = False

    # From the core

    def dispatch(self, job: Job) -> None:
        form = self.form
        token = job.token
        body = job.body or EMPTY_BODY
        uuid = uid_of(self.broker, job)
        if form.norfab:
            if not json_bodies.task_like(body):
                self._refuse(token)
                return
            uuid = uuid + b"." + token
        address = token + DELIMITER + frame(uuid, True)
        if not self._token and self.core is not None and len(self.core.running) == 1:
            self._token = token
            self.session.answer_next = True
            self.link.expect(self.session, form.from_worker_response + address + OK_FRAME)
        self.link.send(form.to_worker_post + TOKEN_FRAME + address + body)

    def beat(self) -> None:
        self.link.send(self._keepalive)

    def cancel(self, job: Job) -> None:
        """NFP §DELETE: passed on to the worker that has it."""
        self._unexpect(job.token)
        self._ready.pop(job.token, None)
        self._say(DELETE, job, EMPTY_BODY)

    def put(self, job: Job, body: bytes) -> bool:
        if self.form.norfab and json_bodies.only_frame(body) is None:
            return False
        self._say(PUT, job, body)
        return True

    def share(self, resources: list[bytes]) -> None:
        """Told as a task of its management, where it can be; its answer does not matter."""
        if self.answers() and not self.form.norfab:
            kwargs = b'{"resources":%b}' % json_bodies.listed(resources)
            task = frame(b'{"task":"set_resources","args":[],"kwargs":%b}' % kwargs)
            self.link.send(self.form.head(BROKER, MMI) + self._question(b"resources") + task)

    def reclaim(self, job: Job) -> bool:
        if not self.answers():
            return False
        self._reclaimed[job.token] = None
        self._say(GET, job, EMPTY_BODY if not self.form.norfab else frame(b"{}"))
        return True

    def dismiss(self, reason: str) -> None:
        """NFP §Opening and Closing: nothing follows a DISCONNECT."""
        self._forget()
        self._disconnect(reason)

    # From relays

    def answers(self) -> bool:
        """Can it be asked anything but to do a job? A bare worker that never said OPEN may take it for one."""
        return self.core is not None and (self.form.norfab or self.opened)

    def ask(self, relay: WorkerQuery, body: bytes) -> bytes:
        """A question of a client. The token its answer will carry."""
        address = self._question(relay.uuid)
        token = b"g%07x" % self._number
        self._questions[token] = relay
        self.link.send(self.form.head(BROKER, relay.asked) + address + body)
        return token

    def unask(self, token: bytes) -> None:
        """Nobody waits for that answer any more."""
        self._questions.pop(token, None)

    # From the session

    def answered(self, body: bytes) -> None:
        """The RESPONSE that was expected."""
        token = self._token
        self._unexpect(token)
        core = self.core
        if core is not None:
            self._final(core, token, body)

    def usual_answer(self, message: Message) -> bool:
        """RESPONSE 200 for one of several jobs it has; the message begins with `usual`. False: it is something else,
        and untouched."""
        data = message.data
        at = message.pos + len(self.usual)
        token = data[at : at + 8]
        core = self.core
        if core is None or token not in core.running or data[at + 8 : at + 11] != b"\x01\x00\x01":
            return False
        at += 12 + data[at + 11]  # behind the UUID
        if data[at : at + 5] != OK_FRAME or at + 5 >= message.end:
            return False
        self._unexpect(token)
        self._final(core, token, data[at + 5 : message.end])
        return True

    def leave(self, reason: str) -> None:
        """Gone, nothing more is sent to it."""
        core = self.core
        self._forget()
        if core is not None:
            self.broker.leave(core, reason)

    def command(self, code: int, message: Message) -> None:
        """Any message but the expected RESPONSE."""
        if code == DISCONNECT:
            # NFP §Opening and Closing: may come at any time, even before READY; send nothing more.
            self.leave("said goodbye")
            self._over = True
        elif code == OPEN:
            self._open(message)
        elif code == READY:
            self._register(message)
        elif self._over:
            self.link.complain(f"an NFP worker's {COMMANDS[code]} after DISCONNECT")
        elif code == KEEPALIVE:
            self._heartbeat(message)
        elif code in (RESPONSE, EVENT, STREAM, MMI):
            self._answer(code, message)
        else:
            self.invalid(f"NFP command {COMMANDS[code]} is not a worker's")

    def invalid(self, reason: str) -> None:
        """NFP §Opening and Closing: an invalid message is dropped and its sender treated as invalid. A registered
        worker is told, so that it can start anew; its jobs go to others."""
        self.link.complain(reason)
        if self.core is not None:
            self.leave(reason)
            self._disconnect(reason)

    # Inside

    def _open(self, message: Message) -> None:
        body = message.take()
        if body is None or message.take() is not None:
            return self.invalid("NFP OPEN without exactly one body")
        if self.core is not None:
            return self._unexpected("OPEN after READY")
        try:
            self._agree(body)
        except ValueError as error:
            return self.link.complain(f"NFP OPEN: {error}")
        self._over = False
        self.opened = True
        self.link.send(self.form.bare(BROKER, OPEN, self.session.greeting()))
        return None

    def _agree(self, body: bytes) -> None:
        """What it says about itself. Raises ValueError."""
        members = json_bodies.object_in(body) if body else None
        if members is None:
            return  # NFP §OPEN: an opaque body; one that says nothing to us is fine
        name = json_bodies.member(members, "name")
        if name is not None:
            if not isinstance(name, str) or not worker_info.good_name(name.encode()):
                raise ValueError(f"{name!r} is no name for a worker")
            self.name = name.encode()
            self.anonymous = False
        credit = json_bodies.member(members, "credit")
        if credit is not None:
            if isinstance(credit, bool) or not isinstance(credit, int) or credit < 1:
                raise ValueError(f"credit {credit!r} is no number of jobs")
            self.credit = min(credit, self.session.context.credit_max)
        if "resources" in members:
            self.resources = worker_info.names_of(json_bodies.member(members, "resources"))

    def _register(self, message: Message) -> None:
        service = message.take()
        if not service or message.take() is not None:
            return self.invalid("NFP READY without exactly one service name")
        if self.core is not None:
            # NFP §Opening and Closing: MUST NOT send a further READY.
            return self._unexpected("READY twice")
        self.service = service
        core = Worker(self.broker, self.name, self.form.name, self, self.session.context.beat)
        core.base_credit = core.credit = self.credit
        core.steady = self.form.norfab  # it counts nothing but KEEPALIVE
        core.anonymous = self.anonymous
        core.parallel = True  # its credit says how many it can have at once
        self.core = core
        self._over = False
        self._keepalive = self.form.bare(BROKER, KEEPALIVE, service)
        if service == EVERY_SERVICE or not self.broker.may_register(core, service):
            self.core = None
            return self._unexpected(f"READY for {shown(service)}, a name that is not for workers")
        if not self._take_over(service):
            self.core = None
            self.link.complain(f"NFP READY as {shown(self.name)} for {shown(service)}: {NAME_TAKEN}")
            return self._disconnect(NAME_TAKEN)
        if self.resources:
            self.broker.set_resources(core, self.resources)
        self.broker.register(core, service)
        return None

    def _take_over(self, service: bytes) -> bool:
        """A worker that comes back under its name may be faster than the end of its old connection: the newest counts,
        unless the older is known to be another worker, and there. (A socket's identity is seen to by whoever owns the
        connections.)"""
        known = self.broker.services.get(service)
        former = None if known is None else known.names.get(self.name)
        if former is not None and isinstance(former.port, NfpWorker):
            if former.port.link.keeps_name(self.link):
                return False
            former.port.leave("another connection has its name now")
            former.port.dismiss("another connection has its name now")
        return True

    def _heartbeat(self, message: Message) -> None:
        service = message.take()
        if service is None or message.take() is not None:
            return self.invalid("NFP KEEPALIVE without exactly one service name")
        if self.core is None:
            self.service = service
            return self._unexpected("KEEPALIVE before READY")
        self.broker.seen(self.core)
        return None

    def _answer(self, code: int, message: Message) -> None:
        token = message.take()
        delimiter = message.take()
        uuid = message.take()
        if token is None or delimiter != b"" or uuid is None:
            # NFP §POST and RESPONSE Processing: precisely one address frame, then an empty one.
            return self.invalid(f"NFP {COMMANDS[code]} without address, empty frame and UUID")
        core = self.core
        if core is None:
            return self._unexpected(f"{COMMANDS[code]} before READY")
        if code == MMI and not token:
            return self._own_task(core, uuid, message)
        status = status_of(message.take() or b"")
        if not status:
            return self.invalid(f"NFP {COMMANDS[code]} without a status of three digits")
        relay = self._questions.pop(token, None)
        if relay is not None:
            self.broker.seen(core)
            if relay.uuid == uuid:
                relay.answered(self, status, message.rest())
        elif token[:1] == b"g":
            self.broker.seen(core)  # nobody waits for this answer, or not any more
        elif code == EVENT:
            self._event(core, token, message)
        elif code == STREAM:
            self.broker.stream(core, token, message.rest() or EMPTY_BODY)
        elif code == RESPONSE:
            self._response(core, token, status, message)
        return None

    def _response(self, core: Worker, token: bytes, status: bytes, message: Message) -> None:
        """About a job it has: its result, its failure, or a sign that it is at work."""
        body = message.rest()
        self._unexpect(token)
        known = ANSWERED
        if status == OK:
            known = self._final(core, token, body)
        elif status in (CREATED, ACCEPTED):
            known = self.broker.taken(core, token, _first(body))
            self._reclaimed.pop(token, None)
        elif status in (PENDING, WAITING_INPUT):
            self.broker.seen(core)
        elif status in (UNKNOWN, NO_JOB) and token in self._reclaimed:
            del self._reclaimed[token]
            self.broker.report_unknown(core, token)
        elif status[:1] in (b"4", b"5"):
            self._reclaimed.pop(token, None)
            self._ready.pop(token, None)
            known = self.broker.fail(core, token, worker_info.failure_from(status, body))
        else:
            self.invalid(f"NFP status {status.decode()} is none of a worker's")
        if known == STRAY and not self.form.norfab and not self.link.native:
            # norfab's workers, and our own, may come back with something they were given before.
            self._unexpected("an answer to a job it was not given")

    def _final(self, core: Worker, token: bytes, body: bytes) -> int:
        self._reclaimed.pop(token, None)
        if self.form.norfab:
            body = self._cleaned(core, token, body)
            event = self._ready.pop(token, None)
            if event is not None:
                self.broker.event(core, token, RESULT_READY, event)
        return self.broker.final(core, token, body)

    def _event(self, core: Worker, token: bytes, message: Message) -> None:
        kind, body = json_bodies.event_in(message.frames())
        if self.form.norfab and kind == RESULT_READY and token:
            job = core.running.get(token)
            if job is not None:
                self.broker.seen(core)
                self._ready[token] = self._clean(job, body)
                self._say(GET, job, frame(b"{}"))
            elif token in core.late:
                # Its job was taken from it; that it has ended is all that was waited for.
                self.broker.fail(core, token, Failure(WORKER_ERROR, "it came too late"))
            return
        if token:
            job = core.running.get(token)
            if job is not None and self.form.norfab:
                body = self._clean(job, body)
        self.broker.event(core, token, kind, body)

    def _question(self, uuid: bytes) -> bytes:
        """The address of something it is asked beside its jobs."""
        self._number = (self._number + 1) & 0xFFFFFFF
        return TOKEN_FRAME + b"g%07x" % self._number + DELIMITER + frame(uuid, True)

    def _own_task(self, core: Worker, uuid: bytes, message: Message) -> None:
        """MMI without an address: it has something to say about itself. So far: which resources it has now."""
        status_of(message.take() or b"")
        body = message.take() or b""
        self.broker.seen(core)
        try:
            self.resources = worker_info.names_of(worker_info.resources_in(body))
        except ValueError as error:
            return self.link.complain(f"NFP MMI of a worker: {error}")
        self.broker.set_resources(core, self.resources)
        answer = b'{"resources":%b}' % json_bodies.listed(self.resources)
        address = DELIMITER + DELIMITER + frame(uuid, True)
        self.link.send(self.form.head(BROKER, MMI) + address + OK_FRAME + frame(answer))
        return None

    def _say(self, command: int, job: Job, body: bytes) -> None:
        """Something about a job that it has."""
        uuid = uid_of(self.broker, job)
        if self.form.norfab:
            uuid = uuid + b"." + job.token
        address = TOKEN_FRAME + job.token + DELIMITER + frame(uuid, True)
        self.link.send(self.form.head(BROKER, command) + address + (body or EMPTY_BODY))

    def _cleaned(self, core: Worker, token: bytes, body: bytes) -> bytes:
        """A result without our token in the job's UUID."""
        job = core.running.get(token)
        if job is None or b"." + token not in body:
            return body
        data = json_bodies.only_frame(body)
        if data is not None:
            return frame(self._clean(job, data))
        return join([self._clean(job, data) for data in split(body)])

    def _clean(self, job: Job, data: bytes) -> bytes:
        uuid = uid_of(self.broker, job)
        return data.replace(uuid + b"." + job.token, uuid)

    def _refuse(self, token: bytes) -> None:
        """It would not survive this job. Its place is free again at once, and the next job may be as bad: no deeper."""
        self._refused.append(token)
        if self._refusing:
            return
        self._refusing = True
        message = "a worker of norfab's takes one JSON object as a job, as in {'task': …, 'kwargs': …}"
        while self._refused and self.core is not None:
            account = json_bodies.account(UNKNOWN, message)
            self.broker.fail(
                self.core, self._refused.pop(), Failure(WORKER_ERROR, message, frame(account), account)
            )
        self._refused.clear()
        self._refusing = False

    def _unexpected(self, reason: str) -> None:
        """NFP §Opening and Closing: a valid but unexpected command is answered with DISCONNECT and nothing after it."""
        self.link.complain(reason)
        self.leave(reason)
        self._disconnect(reason)

    def _unexpect(self, token: bytes) -> None:
        """The next message of this connection may be anything again."""
        if self._token and token == self._token:
            self._token = b""
            self.session.answer_next = False
            self.link.expect(self.session, b"")

    def _forget(self) -> None:
        """What was going on with it is over."""
        self.core = None
        self._unexpect(self._token)
        self._ready.clear()
        self._reclaimed.clear()
        questions = list(self._questions.values())
        self._questions.clear()
        for relay in questions:
            relay.lost(self)

    def _disconnect(self, reason: str) -> None:
        self._over = True
        self.link.send(self.form.disconnect(BROKER, self.service, reason.encode()))


def uid_of(broker: Broker, job: Job) -> bytes:
    """A job's UUID towards workers: its client's, or one made up for clients whose dialect has none."""
    if job.extra is not None:
        return job.extra.uid.encode()
    return b"%x-%x" % (broker.era, job.id)


def _first(body: bytes) -> bytes:
    return Message(body, 0, len(body)).take() or b""
