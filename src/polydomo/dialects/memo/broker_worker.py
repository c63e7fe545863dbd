"""MemoDB's workers: known by the ID they were given, wherever they speak from.

A worker always has one request open or one job in hand. Its request is answered with a JOB when there is one, with a
HEARTBEAT after a while, or with DISCONNECT when it cannot be what it says. To the core it has room for one job while a
request of its is open, and for none otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polydomo.core.job import Job
from polydomo.core.policy import FOREVER
from polydomo.core.ports import WorkerPort
from polydomo.core.worker import Worker
from polydomo.dialects.memo import messages
from polydomo.dialects.memo.broker_client import DIALECT
from polydomo.dialects.memo.messages import READY, RESULT, TIMEOUT_MAX, body_of, payload_of

if TYPE_CHECKING:
    from polydomo.dialects.memo.session import MemoSession

PARKED: Final = 0  # its request is open
BUSY: Final = 1  # it was given a job
ASKED: Final = 2  # it was given a HEARTBEAT
GONE: Final = 3


class MemoWorker(WorkerPort):
    """One worker. `session` and `stack` are where its last request came from, `kind` and `print` what it said: request
    IDs are a peer's own choice, so another request may have the ID of the last."""

    def __init__(self, session: MemoSession, id: bytes) -> None:
        memo = session.memo
        self.memo = memo
        self.broker = memo.broker
        self.id = id
        self.core = Worker(memo.broker, b"memo-" + id.hex().encode(), DIALECT, self, memo.beat)
        self.core.anonymous = True
        self.core.must_beat = False  # MemoDB §Worker: between a JOB and its RESULT there is nothing to say
        self.core.base_credit = self.core.credit = 0
        self.session = session
        self.stack = b""
        self.kind = READY
        self.print = 0  # of a RESULT's payload
        self.state = ASKED
        self.names: list[bytes] = []  # as READY had them, while that is its last request; then empty
        self._token = b""
        self._owes = 0.0  # until when it may be at a job that was taken from it
        self._service = b""  # for which, and for how many milliseconds, the head below is
        self._timeout = -1
        self._head = b""

    # The core's side

    def dispatch(self, job: Job) -> None:
        self._token = job.token
        self.state = BUSY
        self._close()
        self.session.send(self.stack, self._job(job))

    def beat(self) -> None:
        """MemoDB §Worker: nothing was found for it for a while."""
        if self.state == PARKED and self.session.live:
            self.state = ASKED
            self._close()
            self.session.send(self.stack, messages.heartbeat(self.id))
            self.broker.set_credit(self.core, 0)
        elif self._owes > self.broker.now:
            self.core.last_seen = self.broker.now

    def cancel(self, job: Job) -> None:
        """There is no word for it; what it says about the job is dropped when it comes. It has until then."""
        self._owes = job.due

    def dismiss(self, reason: str) -> None:
        """Expired, or the broker stops: it hears so if it waits for an answer."""
        if self.state == PARKED and self.session.live:
            self._close()
            self.session.send(self.stack, messages.disconnect(self.id))
        self._forget()

    # The connection's side

    def leave(self, reason: str) -> None:
        """Gone."""
        if self.state != GONE:
            self._forget()
            self.broker.leave(self.core, reason)

    def park(self, session: MemoSession, stack: bytes, kind: int) -> None:
        """Its READY or HEARTBEAT: it waits for what is next."""
        self._settle(session, stack)
        self.kind = kind
        self.core.last_seen = self.broker.now
        self.broker.set_credit(self.core, 1)

    def answered(self, session: MemoSession, stack: bytes, payload: bytes) -> bool:
        """Its RESULT, which is its next request as well. False: it had no job, or no time for it any more."""
        token = self._token
        core = self.core
        if self.state != BUSY or (token not in core.running and not self._owes):
            return False
        self._owes = 0.0
        self._settle(session, stack)
        self.kind = RESULT
        self.print = hash(payload)
        self.broker.final(core, token, body_of(payload))
        return True

    def last_result(self, payload: bytes) -> bool:
        """Its RESULT, after which it wants no more. False: as above."""
        if self.state != BUSY or (self._token not in self.core.running and not self._owes):
            return False
        self.core.base_credit = self.core.credit = 0
        self.broker.final(self.core, self._token, body_of(payload))
        return True

    def is_last(self, stack: bytes, kind: int, payload: bytes) -> bool:
        """Is this its last request, sent again?"""
        return self.stack == stack and self.kind == kind and (kind != RESULT or self.print == hash(payload))

    def again(self, session: MemoSession) -> bool:
        """The last request again, over another connection: it has not got what it was answered. False: it is too late
        for that."""
        self._move(session)
        self.core.last_seen = self.broker.now
        if self.state == PARKED:
            session.parked[self.stack] = self
            self.broker.set_credit(self.core, 1)
        elif self.state == ASKED:
            session.remember(self.stack, None)
            session.send(self.stack, messages.heartbeat(self.id))
        elif self._token in self.core.running:
            session.remember(self.stack, None)
            session.send(self.stack, self._job(self.core.running[self._token]))
        elif self._owes:  # it never had the job that was taken from it
            self._owes = 0.0
            self._settle(session, self.stack)
            self.broker.final(self.core, self._token, b"")
        else:
            return False
        return True

    def adrift(self) -> None:
        """Its connection broke."""
        if self.state == PARKED:
            self.broker.set_credit(self.core, 0)
        if self.names:
            self.memo.kept.readies[self.stack] = self

    def _settle(self, session: MemoSession, stack: bytes) -> None:
        """Its open request is this one now."""
        if self.session is not session:
            self._move(session)
        if self.state == PARKED:  # it no longer waits for the answer to its last
            self.session.parked.pop(self.stack, None)
        if self.names:
            self._renamed()
        self.stack = stack
        self.state = PARKED
        self.core.last_sent = self.broker.now  # its next HEARTBEAT is due an interval after this
        session.parked[stack] = self

    def _renamed(self) -> None:
        """READY is not its last request any more."""
        if self.memo.kept.readies.get(self.stack) is self:
            del self.memo.kept.readies[self.stack]
        self.names = []

    def _move(self, session: MemoSession) -> None:
        if self.state == PARKED:
            self.session.parked.pop(self.stack, None)
        self.session.workers.pop(self, None)
        if self.memo.kept.readies.get(self.stack) is self:
            del self.memo.kept.readies[self.stack]
        self.session = session
        session.workers[self] = None

    def _close(self) -> None:
        """Its open request is being answered."""
        self.session.parked.pop(self.stack, None)
        self.session.remember(self.stack, None)

    def _forget(self) -> None:
        if self.state == PARKED:
            self.session.parked.pop(self.stack, None)
        self.state = GONE
        self._renamed()
        self.session.workers.pop(self, None)
        self.memo.workers.pop(self.id, None)

    def _job(self, job: Job) -> bytes:
        """A job as a message to it."""
        seconds = job.limit or job.service.policy.timeout
        timeout = TIMEOUT_MAX if seconds == FOREVER else min(round(seconds * 1000), TIMEOUT_MAX)
        service = job.service.name
        if service is not self._service or timeout != self._timeout:
            self._service = service
            self._timeout = timeout
            self._head = messages.job(self.id, service, timeout)
        return self._head + payload_of(job.body)
