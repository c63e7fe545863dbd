"""The broker's side of MemoDB workers, which are identified by the ID they were assigned, on any connection of their
principal. Whoever has the ID is the worker, so its name, which everybody may see, has nothing to do with it.

A worker always has one request open or one job in hand. The broker replies to the open request with a JOB when there is
one, with a HEARTBEAT after a while, or with DISCONNECT if the worker is out of step. For the core, a worker has credit
for one job while its request is open, and none otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from polydomo.core.broker import Broker
from polydomo.core.model import Job, WorkerPort
from polydomo.core.policy import FOREVER, Heartbeat
from polydomo.dialects.memo import messages
from polydomo.dialects.memo.connection import MemoPeerConnection
from polydomo.dialects.memo.messages import (
    DIALECT,
    ID_SIZE,
    READY,
    RESULT,
    TIMEOUT_MAX,
    body_of,
    payload_of,
)

# Random bytes in the name of a worker.
NAME_SIZE: Final = 4

# States of a worker.
WAITING: Final = 0  # its request is open
BUSY: Final = 1  # it was sent a JOB
PROBED: Final = 2  # it was sent a HEARTBEAT
GONE: Final = 3


class MemoWorkers:
    """All workers of the broker. `random` returns that many random bytes, for IDs."""

    def __init__(self, broker: Broker, random: Callable[[int], bytes]) -> None:
        self.broker = broker
        self.random = random
        self.by_id: dict[bytes, MemoWorker] = {}
        # Workers of broken connections whose last request was READY, which has no ID, by that request's stack.
        self.by_ready: dict[bytes, MemoWorker] = {}
        self.limit = 10_000
        self.set_heartbeat(10.0, 10.0)

    def set_heartbeat(self, interval: float, reply: float) -> None:
        """Set the seconds before a HEARTBEAT and those allowed for its reply, for workers that register later."""
        self.beat = Heartbeat(interval, (interval + reply) / interval)

    def new_id(self) -> bytes:
        """Return an ID that no worker has."""
        while True:
            id = self.random(ID_SIZE)
            if id not in self.by_id:
                return id

    def find(self, id: bytes, connection: MemoPeerConnection) -> MemoWorker | None:
        """Return the worker with this ID, if its principal is that of the connection."""
        worker = self.by_id.get(id)
        return worker if worker is not None and worker.core.principal.name == connection.principal else None


class MemoWorker(WorkerPort):
    """One worker.

    `connection` and `stack` identify its last request, `kind` and `digest` describe it: request IDs are chosen by the
    peer, so another request may have the ID of the last one.
    """

    def __init__(self, workers: MemoWorkers, connection: MemoPeerConnection) -> None:
        self.workers = workers
        self.broker = workers.broker
        self.connection = connection
        self.id = workers.new_id()
        name = b"memo-" + workers.random(NAME_SIZE).hex().encode()
        self.core = self.broker.make_worker(name, DIALECT, self, workers.beat, connection.principal)
        self.core.anonymous = True
        self.core.must_beat = False  # MemoDB §Worker: nothing is sent between a JOB and its RESULT
        self.core.base_credit = self.core.credit = 0
        self.stack = b""
        self.kind = READY
        self.digest = 0  # of a RESULT's payload
        self.state = PROBED
        self.services: list[bytes] = []  # names in READY, while that is its last request
        self._token = b""
        self._late_until = 0.0  # until when it may still work on a job that was taken from it
        self._service = b""  # service and timeout of the JOB header below
        self._timeout = -1
        self._job_header = b""

    # WorkerPort

    def dispatch(self, job: Job) -> None:
        self._token = job.token
        self.state = BUSY
        self._reply(self._job_message(job))

    def heartbeat(self) -> None:
        """Reply with HEARTBEAT: no job was found for a while (MemoDB §Worker)."""
        if self.state == WAITING and not self.connection.lost:
            self.state = PROBED
            self._reply(messages.heartbeat(self.id))
            self.broker.set_credit(self.core, 0)
        elif self._late_until > self.broker.now:
            self.core.last_seen = self.broker.now

    def is_alive(self) -> bool:
        return not self.connection.lost

    def cancel(self, job: Job) -> None:
        """Note that the job was taken from the worker: memo01 has no message for it. A late RESULT is dropped."""
        self._late_until = job.attempt_deadline

    def dismiss(self, reason: str) -> None:
        """Reply with DISCONNECT if a request is open: the worker expired, or the broker stops."""
        if self.state == WAITING and not self.connection.lost:
            self._reply(messages.disconnect(self.id))
        self._forget()

    # Requests

    def leave(self, reason: str) -> None:
        """Remove the worker, whose job is requeued."""
        if self.state != GONE:
            self._forget()
            self.broker.leave(self.core, reason)

    def wait_for_job(self, connection: MemoPeerConnection, stack: bytes, kind: int) -> None:
        """Handle READY or HEARTBEAT: the worker waits for the next job."""
        self._open_request(connection, stack)
        self.kind = kind
        self.core.last_seen = self.broker.now
        self.broker.set_credit(self.core, 1)

    def finish(self, connection: MemoPeerConnection, stack: bytes, payload: bytes) -> bool:
        """Handle RESULT, which is the worker's next request as well; False if it has no job, or not any more."""
        token = self._token
        core = self.core
        if self.state != BUSY or (token not in core.running and not self._late_until):
            return False
        self._late_until = 0.0
        self._open_request(connection, stack)
        self.kind = RESULT
        self.digest = hash(payload)
        self.broker.final(core, token, body_of(payload))
        return True

    def finish_and_leave(self, payload: bytes) -> None:
        """Handle a RESULT after which the worker wants no more jobs."""
        if self.state == BUSY and (self._token in self.core.running or self._late_until):
            self.core.base_credit = self.core.credit = 0
            self.broker.final(self.core, self._token, body_of(payload))
        self.leave("sent its last RESULT")

    def is_last_request(self, stack: bytes, kind: int, payload: bytes) -> bool:
        """Return whether this is a repeat of the worker's last request."""
        return self.stack == stack and self.kind == kind and (kind != RESULT or self.digest == hash(payload))

    def repeat(self, connection: MemoPeerConnection) -> bool:
        """Reply again to the last request, repeated on another connection; False if its job was given to another."""
        self._move_to(connection)
        self.core.last_seen = self.broker.now
        if self.state == WAITING:
            connection.waiting.add(self.stack)
            self.broker.set_credit(self.core, 1)
        elif self.state == PROBED:
            connection.send(self.stack, messages.heartbeat(self.id))
        elif self._token in self.core.running:
            connection.send(self.stack, self._job_message(self.core.running[self._token]))
        elif self._late_until:  # it never received the job that was taken from it
            self._late_until = 0.0
            self._open_request(connection, self.stack)
            self.broker.final(self.core, self._token, b"")
        else:
            return False
        return True

    def disconnected(self) -> None:
        """Dispatch nothing to the worker until it continues on another connection."""
        if self.state == WAITING:
            self.broker.set_credit(self.core, 0)
        if self.services:
            self.workers.by_ready[self.stack] = self

    def _open_request(self, connection: MemoPeerConnection, stack: bytes) -> None:
        if self.connection is not connection:
            self._move_to(connection)
        elif self.state == WAITING:  # the worker has given up its last request
            connection.waiting.discard(self.stack)
        if self.services:  # READY is not the last request any more
            self.services = []
        self.stack = stack
        self.state = WAITING
        self.core.last_sent = self.broker.now  # the next HEARTBEAT is due one interval later
        connection.waiting.add(stack)

    def _reply(self, content: bytes) -> None:
        """Close the open request with a reply."""
        self.connection.waiting.discard(self.stack)
        self.connection.send(self.stack, content)

    def _move_to(self, connection: MemoPeerConnection) -> None:
        self._detach()
        self.connection = connection
        connection.workers[self.id] = None

    def _detach(self) -> None:
        if self.state == WAITING:
            self.connection.waiting.discard(self.stack)
        self.connection.workers.pop(self.id, None)
        if self.workers.by_ready.get(self.stack) is self:
            del self.workers.by_ready[self.stack]

    def _forget(self) -> None:
        self._detach()
        self.services = []
        self.state = GONE
        self.workers.by_id.pop(self.id, None)

    def _job_message(self, job: Job) -> bytes:
        seconds = job.attempt_timeout or job.service.policy.timeout
        timeout = TIMEOUT_MAX if seconds == FOREVER else min(round(seconds * 1000), TIMEOUT_MAX)
        service = job.service.name
        if service is not self._service or timeout != self._timeout:
            self._service = service
            self._timeout = timeout
            self._job_header = messages.job(self.id, service, timeout)
        return self._job_header + payload_of(job.body)
