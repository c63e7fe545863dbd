"""A WMP worker as its manager sees it: one path, the READY that it holds there, and what it was given.

A worker is known by its full path: the link, and the hops behind it (WMP §Description, 2). Its name is the origin of
that path, whatever devices are between (WMP §Intermediate devices).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from polydomo.core.answers import ANSWERED, LATE
from polydomo.core.job import WORKER_ERROR, Failure, Job
from polydomo.core.policy import FOREVER, Heartbeat, label_texts
from polydomo.core.ports import WorkerPort
from polydomo.core.worker import Worker
from polydomo.dialects.wmp import messages
from polydomo.dialects.wmp.messages import CANCEL, CANCELLED, HEADS, NO, NOT_BEGUN, OK, TAKE, WAKE
from polydomo.dialects.wmp.selection import weight_of
from polydomo.dialects.wmp.wakeup import Wake, WakeScheduler
from polydomo.errors import ProtocolError
from polydomo.wire import cbor
from polydomo.wire.frames import DELIMITER, EMPTY_BODY, frame, head, shown

if TYPE_CHECKING:
    from polydomo.dialects.wmp.session import WmpSession

DIALECT: Final = "wmp"

# A GIVE that comes later than this after its WAKE is answered with NO: nobody remembers why.
REMEMBERED: Final = 30.0

# Of a worker that does not say how often it shows that it is alive: its READY is forgotten after this.
SILENCE: Final = Heartbeat(600.0, 6)

# Signs of life that may be missed by one that says so.
LIVENESS: Final = 3

ROLES_MAX: Final = 10_000
SLOTS_MAX: Final = 100_000


class WmpWorker(WorkerPort):
    """See the module's text."""

    def __init__(self, session: WmpSession, path: list[bytes]) -> None:
        link = session.link
        broker = session.broker
        origin = path[-1] if path else link.identity
        made_up = origin[:1] == b"\0"
        self.session = session
        self.broker = broker
        self.link = link
        self.path = tuple(path)
        self.labels: dict[str, str] = {}  # as they are compared
        self.weight = 1.0
        self.slots = 1  # that it has in all, as far as we have seen
        self.held = 0  # jobs that it is ready for, by its last READY and what it got since
        self.herds: list[WakeScheduler] = []
        self.wakes: dict[int, Wake] = {}  # not answered, oldest first
        self.core = Worker(
            broker, f"wmp-{origin[1:].hex()}".encode() if made_up else origin, DIALECT, self, SILENCE
        )
        self.core.anonymous = made_up
        self.core.parallel = True
        self.core.base_credit = self.core.credit = 0  # it fetches its jobs itself
        self._open: dict[int, Wake] = {}  # of these, those that are counted on
        self._wake = 0  # the last one's number
        self._slots_ready = 1  # what its last READY was for
        self.last_ready = 0.0
        self._ready = b""  # the headers of its last READY
        self._giving = 0  # which wake is being answered
        self._token = b""  # of the job that was given last
        way = head(*path)
        self._wake_head = way + HEADS[WAKE] + DELIMITER
        self._take_head = way + HEADS[TAKE] + DELIMITER
        self._no_head = way + HEADS[NO] + DELIMITER
        self._cancel_head = way + HEADS[CANCEL] + DELIMITER
        self._service = b""  # for which, and for how long, the tail below is
        self._timeout = -1.0
        self._role = b""
        self._tail = b""

    # The pools' side

    def may_be_woken(self) -> bool:
        """Is it ready for more than it is woken for?"""
        return self.held > len(self._open)

    def load(self) -> float:
        """How much of it is in use."""
        return (len(self.core.running) + len(self._open)) / self.slots

    def wake(self, herd: WakeScheduler, now: float, hopeful: bool) -> Wake:
        """There is something for it."""
        self._wake += 1
        wake = Wake(self._wake, herd, self, now, hopeful)
        if self.wakes:
            self._forget_old(now)
        self.wakes[wake.id] = wake
        if hopeful:
            self._open[wake.id] = wake
            if self.held <= len(self._open) and len(self.herds) > 1:
                for other in self.herds:
                    other.asleep(self)
        headers = messages.wake_headers(wake.id, herd.call_tail)
        self.link.send(self._wake_head + frame(headers))
        if not self.path:
            self.session.await_give()
        return wake

    def overslept(self, wake: Wake) -> None:
        """It is not counted on any more; whoever else has something may try."""
        herd = wake.herd
        self._close(wake)
        if self.may_be_woken():
            for other in self.herds:
                if other is not herd and self not in other.silent:
                    other.awake(self)

    # The core's side

    def dispatch(self, job: Job) -> None:
        service = job.service.name
        seconds = job.limit or job.service.policy.timeout
        if service is not self._service or seconds != self._timeout:
            self._service = service
            self._timeout = seconds
            self._role = messages.word(service)
            self._tail = messages.take_tail(self.session.manager, seconds)
        tail = self._tail
        more = 1 if seconds == FOREVER else 2
        if job.extra is not None:
            further = self._further(job)
            more += len(further)
            tail = b"".join([tail, *further])
        headers = messages.take_headers(job.token, self._role, self._giving, tail, more)
        body = job.body or EMPTY_BODY
        self.link.send(self._take_head + frame(headers, True) + body)
        if not self.path:
            self._token = job.token
            self.session.await_done(job.token)

    def cancel(self, job: Job) -> None:
        """WMP §Extensions: no result is expected any more."""
        self.link.send(self._cancel_head + frame(messages.only_job(job.token)))

    def dismiss(self, reason: str) -> None:
        """It was silent for too long, or the broker stops; there is no word for either."""
        self._forget()

    # The connection's side

    def is_news(self, headers: bytes) -> bool:
        """Is this READY another than the last?"""
        return headers != self._ready

    def ready(self, headers: bytes) -> None:
        """READY. The same again while one is held changes nothing, but it shows that the worker is there."""
        core = self.core
        core.last_seen = self.broker.now
        slots = messages.slots_in(headers)
        if 0 <= slots <= SLOTS_MAX:
            self._slots_ready = slots
            self.slots = max(slots + len(core.running), self.slots)
        elif headers != self._ready or not core.services:
            self._introduce(cbor.decode_map(headers))
            self._ready = headers
        if not core.services:
            return
        self.held = self._slots_ready
        self.last_ready = self.broker.now
        if self._open:
            for wake in list(self._open.values()):
                if wake.herd.ignored(wake):
                    self._close(wake)
        if not core.running:
            core.late.clear()
        self._settle()

    def give(self, headers: bytes) -> None:
        """GIVE: it has room, and keeps it for us."""
        self.core.last_seen = self.broker.now
        id = messages.wake_in(headers)
        if id < 0:
            said = cbor.decode_map(headers)
            id = messages.whole(said, "wake", next(iter(self.wakes), 0))
        wake = self.wakes.pop(id, None)
        if wake is None:
            if (
                not 0 < id <= self._wake
            ):  # of before our restart; others had their answer, or are too late for one
                self._no(id)
            return
        self._close(wake)
        while self._open and next(iter(self._open)) < id:
            # What is said comes in its order: it has seen that one, and had no room.
            missed = next(iter(self._open.values()))
            self._close(missed)
            missed.herd.missed(missed)
        herd = wake.herd
        herd.answered(wake)
        self._giving = id
        broker = self.broker
        if broker.fetch(self.core, [herd.service]) or (
            len(self.herds) > 1 and broker.fetch(self.core, self.core.services)
        ):
            self.held = max(self.held - 1, 0)
        else:
            self._no(id)
            herd.refused(self)
        self._settle()

    def done_well(self, body: bytes) -> None:
        """DONE, as it was expected: of the job that was given last, and all went well."""
        self._check(self.broker.final(self.core, self._token, body), "DONE")
        if not self.core.services:
            self._finished()

    def done(self, headers: bytes, body: bytes) -> None:
        """DONE."""
        broker = self.broker
        token = messages.job_done_well(headers)
        if token:
            known = broker.final(self.core, token, body or EMPTY_BODY)
        else:
            said = cbor.decode_map(headers)
            token = messages.token(said, "job")
            status = messages.whole(said, "status", OK)
            if status == OK:
                known = broker.final(self.core, token, body or EMPTY_BODY)
            elif status == NOT_BEGUN:
                known = broker.decline(self.core, token)
            else:
                known = broker.fail(self.core, token, _failure(said, status, body))
        self._check(known, "DONE")
        if not self.core.services:
            self._finished()

    def status(self, headers: bytes, body: bytes) -> None:
        """STATUS: one of several answers, an event, or nothing but a sign of life."""
        said = cbor.decode_map(headers)
        token = messages.token(said, "job")
        broker = self.broker
        kind = messages.token(said, "event")
        broker.seen(self.core)
        if kind:
            payload = messages.only_frame(body)
            self._check(broker.event(self.core, token, kind.decode(errors="replace"), payload), "STATUS")
        elif body:
            self._check(broker.partial(self.core, token, body), "STATUS")

    def leave(self, reason: str) -> None:
        """Gone."""
        self._forget()
        self.broker.leave(self.core, reason)

    # Inside

    def _introduce(self, said: dict[str, object]) -> None:
        """Who it is, what it can do: in a READY that is not the same as the last."""
        roles = messages.tokens(said, "roles")
        if len(roles) > ROLES_MAX:
            raise ProtocolError(f"a WMP READY with {len(roles)} roles; at most {ROLES_MAX} are allowed")
        labels = label_texts(messages.table(said, "labels"))
        slots = messages.whole(said, "slots", 1)
        beat = messages.whole(said, "beat", 0)
        if slots > SLOTS_MAX:
            raise ProtocolError(f"a WMP READY for {slots} jobs; at most {SLOTS_MAX} are allowed")
        self.labels = labels
        self.weight = weight_of(labels)
        self._slots_ready = slots
        self.slots = max(slots + len(self.core.running), 1)
        self.core.beat = Heartbeat(beat / 1000.0, LIVENESS) if beat else SILENCE
        self.core.beats_busy = beat > 0
        if not self.core.services:
            self.core.relay = bool(said.get("relay"))
        if said.get("roles") is not None:
            self._offer(roles)

    def _offer(self, roles: list[bytes]) -> None:
        """It offers these services, and no others."""
        broker = self.broker
        core = self.core
        wanted = dict.fromkeys(roles)
        for herd in list(self.herds):
            if herd.service.name not in wanted:
                self.herds.remove(herd)
                herd.leave(self)
                for wake in list(self._open.values()):
                    if wake.herd is herd:
                        self._close(wake)
                broker.withdraw(core, herd.service)
        offered = {service.name for service in core.services}
        for role in roles:
            if role in offered:
                continue
            if not broker.register(core, role):
                self.link.report_violation(f"a WMP READY for {shown(role)}, a name that is not for workers")
                continue
            herd = self.session.herd(broker.services[role])
            self.herds.append(herd)
            herd.join(self)
        if not core.services:
            self.held = 0
            self._finished()

    def _finished(self) -> None:
        """It offers nothing any more; is that all?"""
        if not self.core.running:
            self.leave("it offers nothing any more")

    def _settle(self) -> None:
        """After a READY or a GIVE: can it be woken again, and who must be?"""
        ready = self.may_be_woken()
        for herd in self.herds:
            if ready:
                herd.awake(self)
            else:
                herd.asleep(self)
        for herd in self.herds if len(self.herds) == 1 else list(self.herds):
            service = herd.service
            if service.named and self.core.name in service.named and self.may_be_woken():
                herd.call(self)
            if service.waiting > len(herd.open):
                herd.balance()

    def _close(self, wake: Wake) -> None:
        wake.open = False
        self._open.pop(wake.id, None)

    def _no(self, wake: int) -> None:
        self.link.send(self._no_head + frame(messages.only_wake(wake)))

    def _check(self, known: int, what: str) -> None:
        if known != ANSWERED and known != LATE:
            self.link.report_violation(f"a WMP {what} for a job it does not have")

    def _forget_old(self, now: float) -> None:
        while self.wakes:
            wake = next(iter(self.wakes.values()))
            if wake.open or wake.at > now - REMEMBERED:
                return
            del self.wakes[wake.id]

    def _forget(self) -> None:
        herds = self.herds
        self.herds = []
        self.held = 0
        for herd in herds:
            herd.leave(self)
        self.session.forget(self)

    def _further(self, job: Job) -> list[bytes]:
        """Headers that only some jobs have, in the order of their names' encodings, behind `timeout`."""
        found: list[bytes] = []
        extra = job.extra
        if extra is not None and extra.deadline < FOREVER:
            left = max(round((extra.deadline - self.broker.now) * 1000), 0)
            found.append(cbor.text("deadline") + cbor.head(cbor.UINT, left))
        if extra is not None and extra.priority:
            found.append(cbor.text("priority") + cbor.encode(extra.priority))
        return found


def _failure(said: dict[str, object], status: int, body: bytes) -> Failure:
    """What a worker says of its failure: `error` is an account for programs, the payload for everybody else."""
    account = said.get("error")
    message = "the worker was told to stop" if status == CANCELLED else "the worker failed the job"
    detail = b""
    if isinstance(account, dict):
        detail = msgspec.json.encode(account)
        told = account.get("message")
        message = told if isinstance(told, str) else message
    elif isinstance(account, str):
        message = account
    return Failure(WORKER_ERROR, message, body or EMPTY_BODY, detail)
