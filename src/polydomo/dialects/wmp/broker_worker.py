"""The manager's side of one WMP worker: its path, its last READY, and the jobs it was given.

A worker is identified by its full path: the connection, and the hops after it (WMP §Description, 2). Its name is the
origin of that path, whatever devices are between (WMP §Intermediate devices). Only a connection proves an identity: if
the origin of a path is the name of a living worker already, perhaps the same one on another path, the worker's name is
its whole path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from polydomo.core.broker import ANSWERED, LATE
from polydomo.core.failure import WORKER_ERROR, Failure
from polydomo.core.model import Job, WorkerPort
from polydomo.core.policy import FOREVER, Heartbeat, label_texts
from polydomo.core.tracked_job import TrackedJob
from polydomo.core.workers import NAME_TAKEN
from polydomo.dialects.session import Session
from polydomo.dialects.wmp import messages
from polydomo.dialects.wmp.selection import scheduler_of, weight_of
from polydomo.dialects.wmp.wakeup import WakeableWorker
from polydomo.errors import ProtocolError
from polydomo.wire import cbor
from polydomo.wire.frames import DELIMITER, EMPTY_BODY, frame, head, shown

DIALECT: Final = "wmp"

# Of a worker that announces no heartbeat interval: its READY is forgotten after this.
SILENCE: Final = Heartbeat(600.0, 6)

# Heartbeats that a worker may miss.
LIVENESS: Final = 3

ROLES_MAX: Final = 10_000
SLOTS_MAX: Final = 100_000

# The beginning of messages from a worker without a device between.
_GIVE_HEAD: Final = messages.HEADS[messages.GIVE] + DELIMITER
_DONE_HEAD: Final = messages.HEADS[messages.DONE] + DELIMITER

# Header of a TAKE for a joined broker: the principal that owns the job.
_PRINCIPAL: Final = cbor.encode(messages.PRINCIPAL)


class WmpWorker(WorkerPort):
    """One worker of a session. `manager` is this broker's name, `forget` is called when the worker is gone.

    What a worker without a device between sends next can be predicted: GIVE after a WAKE, DONE after a TAKE. The bytes
    with which that begins are prepared (`PeerConnection.expect`), and its message comes to `receive_expected`.
    """

    def __init__(
        self, session: Session, manager: bytes, path: list[bytes], forget: Callable[[WmpWorker], object]
    ) -> None:
        link = session.link
        broker = session.broker
        origin = path[-1] if path else link.identity
        anonymous = origin[:1] == b"\0"
        self.session = session
        self.broker = broker
        self.link = link
        self.manager = manager
        self.path = tuple(path)
        name = f"wmp-{origin[1:].hex()}".encode() if anonymous else origin
        self.core = broker.make_worker(name, DIALECT, self, SILENCE, link.principal)
        self.core.anonymous = anonymous
        self.core.instance = b"" if path else link.peer_id()
        self.core.parallel = True
        self.core.base_credit = self.core.credit = 0  # it fetches its jobs
        self.wakeable = WakeableWorker(self.core, self._send_wake)
        self._forget_me = forget
        self._ready_slots = 1  # of its last READY
        self._ready_headers = b""  # of its last READY with roles
        self._answering = 0  # number of the WAKE that is being answered
        self._expected = 0  # GIVE or DONE
        self._token = b""  # of the job that was given last
        way = head(*path)
        self._wake_head = way + messages.HEADS[messages.WAKE] + DELIMITER
        self._take_head = way + messages.HEADS[messages.TAKE] + DELIMITER
        self._no_head = way + messages.HEADS[messages.NO] + DELIMITER
        self._cancel_head = way + messages.HEADS[messages.CANCEL] + DELIMITER
        self._service = b""  # service and timeout of the headers below
        self._timeout = -1.0
        self._role = b""
        self._take_tail = b""

    # WorkerPort

    def dispatch(self, job: Job) -> None:
        service = job.service.name
        seconds = job.attempt_timeout or job.service.policy.timeout
        if service is not self._service or seconds != self._timeout:
            self._service = service
            self._timeout = seconds
            self._role = messages.encode_name(service)
            self._take_tail = messages.take_tail(self.manager, seconds)
        tail = self._take_tail
        more = 1 if seconds == FOREVER else 2
        options = self._option_headers(job) if isinstance(job, TrackedJob) else []
        if self.core.relay:  # only to our own brokers, which decide whether to believe it
            options.append(_PRINCIPAL + cbor.encode(job.client.principal.name))
        if options:
            more += len(options)
            tail = b"".join([tail, *options])
        headers = messages.take_headers(job.token, self._role, self._answering, tail, more)
        self.link.send(self._take_head + frame(headers, True) + (job.body or EMPTY_BODY))
        if not self.path:
            self._token = job.token
            self._expected = messages.DONE
            self.link.expect(self.session, _DONE_HEAD + frame(messages.done_headers(job.token), True))

    def is_alive(self) -> bool:
        """Return whether the connection is alive. A device reports the peers that it has lost."""
        return self.link.transport.is_alive()

    def cancel(self, job: Job) -> None:
        """Send CANCEL (WMP §Extensions): no result is expected any more."""
        self.link.send(self._cancel_head + frame(messages.only_job(job.token)))

    def dismiss(self, reason: str) -> None:
        """Forget the worker, which expired, or the broker stops; WMP has no message for either."""
        self._forget()

    # Commands

    def is_new_ready(self, headers: bytes) -> bool:
        """Return whether the headers of a READY differ from the last ones."""
        return headers != self._ready_headers

    def ready(self, headers: bytes) -> None:
        """Handle READY. The same one again changes nothing, but is a heartbeat."""
        core = self.core
        core.last_seen = self.broker.now
        slots = messages.slots_in(headers)
        if 0 <= slots <= SLOTS_MAX:
            self._ready_slots = slots
            self.wakeable.slots = max(slots + len(core.running), self.wakeable.slots)
        elif headers != self._ready_headers or not core.services:
            self._introduce(cbor.decode_map(headers))
            self._ready_headers = headers
        if core.services:
            if not core.running:
                core.revoked.clear()
            self.wakeable.set_ready(self._ready_slots, self.broker.now)

    def give(self, headers: bytes) -> None:
        """Handle GIVE: the worker has room, and reserves it for this manager."""
        wakeable = self.wakeable
        self.core.last_seen = self.broker.now
        id = messages.wake_in(headers, -1)
        if id < 0:
            id = next(iter(wakeable.wakes), 0)
        wake = wakeable.answer(id)
        if wake is None:
            # From before a restart. Any other unknown one was answered, or is too late for an answer.
            if not 0 < id <= wakeable.last_wake:
                self._refuse(id)
            return
        self._answering = id
        broker = self.broker
        if broker.fetch(self.core, [wake.scheduler.service]) or (
            len(wakeable.schedulers) > 1 and broker.fetch(self.core, self.core.services)
        ):
            wakeable.ready_slots = max(wakeable.ready_slots - 1, 0)
        else:
            self._refuse(id)
            wake.scheduler.refused(wakeable)
        wakeable.update()

    def receive_expected(self, body: bytes) -> None:
        """Handle GIVE, from its headers on; or the payload of a successful DONE of the last job."""
        if self._expected == messages.GIVE:
            self.give(body[2:] if body[0] == 0 else messages.only_frame(body))
        else:
            self._check(self.broker.final(self.core, self._token, body), "DONE")
            self._leave_if_unused()

    def done(self, headers: bytes, body: bytes) -> None:
        """Handle DONE, successful or not."""
        broker = self.broker
        token = messages.job_done_well(headers)
        if token:
            known = broker.final(self.core, token, body or EMPTY_BODY)
        else:
            decoded = cbor.decode_map(headers)
            token = messages.token(decoded, "job")
            status = messages.whole(decoded, "status", messages.OK)
            if status == messages.OK:
                known = broker.final(self.core, token, body or EMPTY_BODY)
            elif status == messages.NOT_BEGUN:
                known = broker.decline(self.core, token)
            else:
                known = broker.fail(self.core, token, _failure(decoded, status, body))
        self._check(known, "DONE")
        self._leave_if_unused()

    def status(self, headers: bytes, body: bytes) -> None:
        """Handle STATUS: a partial reply, an event, or only a heartbeat."""
        decoded = cbor.decode_map(headers)
        token = messages.token(decoded, "job")
        broker = self.broker
        kind = messages.token(decoded, "event")
        broker.seen(self.core)
        if kind:
            payload = messages.only_frame(body)
            self._check(broker.event(self.core, token, kind.decode(errors="replace"), payload), "STATUS")
        elif body:
            self._check(broker.partial(self.core, token, body), "STATUS")

    def leave(self, reason: str) -> None:
        """Remove the worker, whose jobs are requeued."""
        self._forget()
        self.broker.leave(self.core, reason)

    # Inside

    def _introduce(self, decoded: dict[str, object]) -> None:
        """Handle a READY that differs from the last one: roles, labels, slots and heartbeat interval."""
        roles = messages.tokens(decoded, "roles")
        if len(roles) > ROLES_MAX:
            raise ProtocolError(f"a WMP READY with {len(roles)} roles; at most {ROLES_MAX} are allowed")
        labels = label_texts(messages.table(decoded, "labels"))
        slots = messages.whole(decoded, "slots", 1)
        beat = messages.whole(decoded, "beat", 0)
        if slots > SLOTS_MAX:
            raise ProtocolError(f"a WMP READY for {slots} jobs; at most {SLOTS_MAX} are allowed")
        self.wakeable.labels = labels
        self.wakeable.weight = weight_of(labels)
        self._ready_slots = slots
        self.wakeable.slots = max(slots + len(self.core.running), 1)
        self.core.heartbeat = Heartbeat(beat / 1000.0, LIVENESS) if beat else SILENCE
        self.core.beats_busy = beat > 0
        if not self.core.services:
            self.core.relay = bool(decoded.get("relay"))
        if decoded.get("roles") is not None:
            self._set_roles(roles)

    def _set_roles(self, roles: list[bytes]) -> None:
        """Register the worker for these services, and for no others."""
        broker = self.broker
        core = self.core
        wanted = dict.fromkeys(roles)
        for scheduler in list(self.wakeable.schedulers):
            if scheduler.service.name not in wanted:
                self.wakeable.withdraw(scheduler)
                broker.withdraw(core, scheduler.service)
        offered = {service.name for service in core.services}
        if not offered and broker.is_name_taken(core):
            if self.path:
                core.name = b"/".join([self.link.name("wmp"), *self.path])
            if broker.is_name_taken(core):
                raise ProtocolError(f"a WMP READY as {shown(core.name)}: {NAME_TAKEN}")
        for role in roles:
            if role in offered:
                continue
            if not broker.register(core, role):
                self._refuse_role(role)
                continue
            self.wakeable.join(scheduler_of(broker, broker.services[role]))
        if not core.services:
            self.wakeable.ready_slots = 0
            self._leave_if_unused()

    def _leave_if_unused(self) -> None:
        if not self.core.services and not self.core.running:
            self.leave("offers no service any more")

    def _send_wake(self, number: int, tail: bytes) -> None:
        self.link.send(self._wake_head + frame(messages.wake_headers(number, tail)))
        if not self.path:
            self._expected = messages.GIVE
            self.link.expect(self.session, _GIVE_HEAD)

    def _refuse_role(self, role: bytes) -> None:
        """Do not register a role. Our own SDK is told why, with a NO that answers no GIVE."""
        reason = self.broker.why_refused(self.core, role)
        self.link.report_violation(f"a WMP READY for {shown(role)}, {reason}")
        if self.link.native:
            self.link.send(self._no_head + frame(messages.refusal(reason)))

    def _refuse(self, wake: int) -> None:
        self.link.send(self._no_head + frame(messages.only_wake(wake)))

    def _check(self, known: int, command: str) -> None:
        if known != ANSWERED and known != LATE:
            self.link.report_violation(f"a WMP {command} for a job that the worker does not have")

    def _forget(self) -> None:
        self.wakeable.withdraw_all()
        self._forget_me(self)

    def _option_headers(self, job: TrackedJob) -> list[bytes]:
        """Return the headers that only some jobs have, in the order of their encoded names, all after `timeout`."""
        found: list[bytes] = []
        if job.deadline < FOREVER:
            left = max(round((job.deadline - self.broker.now) * 1000), 0)
            found.append(cbor.encode("deadline") + cbor.encode(left))
        if job.priority:
            found.append(cbor.encode("priority") + cbor.encode(job.priority))
        return found


def _failure(headers: dict[str, object], status: int, body: bytes) -> Failure:
    """Return the failure in a DONE: its header `error` is for programs, its payload for other clients."""
    error = headers.get("error")
    message = "the worker cancelled the job" if status == messages.CANCELLED else "the worker failed the job"
    detail = b""
    if isinstance(error, dict):
        detail = msgspec.json.encode(error)
        text = error.get("message")
        message = text if isinstance(text, str) else message
    elif isinstance(error, str):
        message = error
    return Failure(WORKER_ERROR, message, body or EMPTY_BODY, detail)
