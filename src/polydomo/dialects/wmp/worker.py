"""Worker side of WMP, without a socket and without a clock: callers pass the time.

A worker has any number of managers, each on a link of its own, and `slots` for jobs of all of them together. A slot is
free, locked (GIVE was sent, and TAKE or NO is awaited, for LOCK seconds at most), or occupied by a job.

A manager gets a READY when it has none left: at first, after it gave a job, and after a WAKE that came while no slot
was free. When a slot becomes free and several managers lack a READY, it goes first to those that have waited longest,
then to twice as many each time that no WAKE has come for BATCH_INTERVAL: so no manager starves, and a job does not cost
a message to each of a hundred managers. READY is also repeated in case a manager has lost it, at growing intervals with
a random part (WMP §Exceptional cases).

Output is collected by link; the owner takes it with `take_output` after every call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from polydomo.dialects.wmp import messages
from polydomo.errors import ProtocolError
from polydomo.wire import cbor
from polydomo.wire.frames import DELIMITER, EMPTY_BODY, Message, frame, head

NEVER: Final = float("inf")

# Seconds for which a slot is locked while TAKE or NO is awaited.
LOCK: Final = 5.0

# Seconds before a READY is repeated, at first and at last. The last one is also the announced heartbeat interval.
FIRST_REPEAT: Final = 1.0
LONGEST_REPEAT: Final = 10.0

# Managers that get a READY at once when a slot becomes free; twice as many follow after each BATCH_INTERVAL.
FIRST_BATCH: Final = 2
BATCH_INTERVAL: Final = 0.02

# The last jobs that ended are remembered, so that a repeated TAKE is not executed again.
ENDED_JOBS: Final = 1000

# The beginning of each READY.
_READY_HEAD: Final = messages.HEADS[messages.READY] + DELIMITER

# Headers of a READY that offers nothing.
_NO_ROLES: Final = cbor.encode({"roles": []})


class WmpRequest:
    """A job. Its replies go to the link and the path that it came from."""

    __slots__ = ("address", "body", "cancelled", "headers", "job", "link", "manager", "path", "service")

    def __init__(
        self,
        link: int,
        path: list[bytes],
        headers: dict[str, object],
        manager: bytes,
        job: bytes,
        service: bytes,
        body: bytes,
    ) -> None:
        self.link = link
        self.path = path
        self.headers = headers
        self.manager = manager  # its name (WMP §Routing: from the headers, not from the path)
        self.job = job
        self.address = manager + b"\0" + job
        self.service = service
        self.body = body  # canonical (wire.frames)
        self.cancelled = False


class _Manager:
    """One link, to a manager, or to a device below several."""

    __slots__ = ("announced_slots", "backoff", "id", "introduced", "repeat_at")

    def __init__(self, id: int) -> None:
        self.id = id
        self.backoff = FIRST_REPEAT
        self.introduced = False  # it has had a READY with roles
        self.announced_slots = 0  # by the last READY, and jobs since
        self.repeat_at = NEVER


@mypyc_attr(allow_interpreted_subclasses=True)
class WmpWorkerProtocol:
    """One worker and its managers. `random` returns numbers from 0 up to 1."""

    def __init__(
        self,
        roles: list[bytes],
        random: Callable[[], float],
        slots: int = 1,
        labels: dict[str, object] | None = None,
    ) -> None:
        self.roles = roles
        self.slots = slots
        self.labels: dict[str, object] = {} if labels is None else labels
        self.random = random
        self.held: dict[bytes, WmpRequest] = {}  # jobs in hand, by address
        self.locks: OrderedDict[tuple[int, tuple[bytes, ...], int], float] = OrderedDict()  # with their end
        self.stopping = False  # it takes no more jobs
        self.refusal = ""  # why our own broker has refused a role, in its last NO
        self.due = NEVER  # when to call `tick` next
        self.relay = False  # it is a broker, which must not get jobs of other brokers
        self._managers: dict[int, _Manager] = {}
        self._without_ready: OrderedDict[int, None] = OrderedDict()  # links without a READY, longest first
        self._batch = FIRST_BATCH
        self._batch_at = NEVER  # when the next batch of them gets one
        self._repeat_at = NEVER  # when the next READY is repeated
        self._ready_slots = 0  # free slots in the message below
        self._ready_message = b""
        self._heartbeat_at = NEVER  # when STATUS is sent for the jobs held
        self._ended: OrderedDict[bytes, None] = OrderedDict()
        self._out: list[tuple[int, bytes]] = []

    @property
    def free(self) -> int:
        """Number of slots that are neither locked nor occupied."""
        return self.slots - len(self.held) - len(self.locks)

    # Called by the owner

    def connected(self, link: int, now: float) -> None:
        """Add a manager, and send it READY if a slot is free."""
        manager = self._managers[link] = _Manager(link)
        if self._can_take_jobs():
            self._ready(manager, now)
        else:
            self._without_ready[link] = None
        self._schedule(now)

    def disconnected(self, link: int, now: float) -> None:
        """Remove a manager and its locks. Its jobs continue, but their results are dropped."""
        self._managers.pop(link, None)
        self._without_ready.pop(link, None)
        for key in [key for key in self.locks if key[0] == link]:
            del self.locks[key]
        self._announce(now)

    def offer(self, roles: list[bytes], slots: int, now: float) -> None:
        """Change the roles and the number of slots, and tell all managers."""
        if roles == self.roles and slots == self.slots:
            return
        self.roles = roles
        self.slots = slots
        self._ready_slots = 0
        for link, manager in self._managers.items():
            manager.introduced = False
            self._without_ready[link] = None
        self._batch = len(self._managers)
        if self._can_take_jobs():
            self._announce(now)
        else:
            self._send_all(self._introduction(0) if roles else _NO_ROLES)
            self._schedule(now)

    def stop(self, now: float) -> None:
        """Tell all managers that no more jobs are taken."""
        self.stopping = True
        self._send_all(_NO_ROLES)
        self._schedule(now)

    def receive(self, link: int, message: Message, now: float) -> WmpRequest | None:
        """Handle a manager's message; return a new job, or one that was cancelled (`cancelled`). An invalid message is
        dropped."""
        try:
            return self._receive(link, message, now)
        except ProtocolError:
            return None

    def final(self, request: WmpRequest, body: bytes, now: float) -> None:
        """Send the result of a job."""
        self._finish(request, messages.done_headers(request.job), body, now)

    def failed(
        self, request: WmpRequest, status: int, account: dict[str, object], body: bytes, now: float
    ) -> None:
        """Send the failure of a job."""
        headers: dict[str, object] = {"job": messages.name_value(request.job), "status": status}
        if account:
            headers["error"] = account
        self._finish(request, cbor.encode(headers), body, now)

    def partial(self, request: WmpRequest, body: bytes, now: float) -> None:
        """Send a partial reply."""
        self._status(request, messages.only_job(request.job), body or EMPTY_BODY)

    def event(self, request: WmpRequest, kind: str, body: bytes, now: float) -> None:
        """Send an event of a job; `body` is the content of one frame."""
        headers = cbor.encode({"job": messages.name_value(request.job), "event": kind})
        self._status(request, headers, frame(body))

    def tick(self, now: float) -> None:
        """Expire locks, repeat READYs and send heartbeats. Called at `due`."""
        while self.locks:
            key, until = next(iter(self.locks.items()))
            if until > now:
                break
            del self.locks[key]
            self._owe_ready(key[0])
        if self._repeat_at <= now:
            self._repeat_all(now)
        if self._heartbeat_at <= now:
            for request in self.held.values():
                self._status(request, messages.only_job(request.job), b"")
            self._heartbeat_at = now + LONGEST_REPEAT / 2
        if self._batch_at <= now:
            self._batch *= 2
        self._announce(now)

    def take_output(self) -> list[tuple[int, bytes]]:
        """Return and clear the collected output: links and wire bytes."""
        out = self._out
        if out:
            self._out = []
        return out

    def has_room(self, roles: list[bytes]) -> bool:
        """Return whether a job of one of these services could begin now."""
        return self.free > 0

    def drop(self, request: WmpRequest, now: float) -> None:
        """End a job without sending a result."""
        if self.held.pop(request.address, None) is not None and not self.held:
            self._heartbeat_at = NEVER
        self._announce(now)

    # Inside

    def _receive(self, link: int, message: Message, now: float) -> WmpRequest | None:
        manager = self._managers.get(link)
        if manager is None:
            return None
        if message.take() != b"" or message.take() != messages.PROTOCOL:
            raise ProtocolError("a WMP message for a device, or none at all")
        command = message.take()
        kind = command[0] if command is not None and len(command) == 1 else 0
        path = messages.path(message, messages.HOPS)
        headers = message.take()
        if kind not in messages.FROM_MANAGERS or headers is None:
            raise ProtocolError(f"the WMP command {messages.command_name(kind)} is not for workers")
        if kind == messages.NO:
            self.refusal = messages.refusal_in(headers)
            if self.refusal:
                return None
        manager.backoff = FIRST_REPEAT
        if kind == messages.WAKE:
            self._on_wake(manager, path, headers, now)
        elif kind == messages.NO:
            self._on_no(link, path, headers, now)
        elif kind == messages.TAKE:
            return self._on_take(manager, path, headers, message.rest(), now)
        elif kind == messages.CANCEL:
            return self._on_cancel(link, path, headers)
        return None

    def _on_wake(self, manager: _Manager, path: list[bytes], headers: bytes, now: float) -> None:
        """WMP §Description, 4: ignore a WAKE without a free slot; otherwise lock one and ask for the job."""
        decoded = cbor.decode_map(headers)
        wake = messages.whole(decoded, "wake")
        key = (manager.id, tuple(path), wake)
        if key in self.locks:
            return  # a duplicate
        if self.stopping or not self.has_room(messages.tokens(decoded, "roles")):
            self._owe_ready(manager.id)
            return
        self.locks[key] = now + LOCK
        self._batch = FIRST_BATCH
        self._send(manager.id, path, messages.GIVE, messages.only_wake(wake), b"")
        self._schedule(now)

    def _on_no(self, link: int, path: list[bytes], headers: bytes, now: float) -> None:
        """WMP §Description, 7: release the slot."""
        self._unlock(link, path, messages.wake_in(headers, 0))
        self._owe_ready(link)
        self._announce(now)

    def _on_take(
        self, manager: _Manager, path: list[bytes], headers: bytes, body: bytes, now: float
    ) -> WmpRequest | None:
        decoded = cbor.decode_map(headers)
        origin = messages.token(decoded, "manager") or (path[-1] if path else b"")
        job = messages.token(decoded, "job")
        if not job:
            raise ProtocolError("a TAKE without a job")
        request = WmpRequest(
            manager.id, path, decoded, origin, job, messages.token(decoded, "role"), body or EMPTY_BODY
        )
        locked = self._unlock(manager.id, path, messages.whole(decoded, "wake"))
        if request.address in self.held or request.address in self._ended:
            return None  # a duplicate
        if self.stopping or (not locked and self.free <= 0):
            # The lock has expired, or the worker stops: another worker may have the job.
            refusal = cbor.encode({"job": messages.name_value(job), "status": messages.NOT_BEGUN})
            self._send(manager.id, path, messages.DONE, refusal, EMPTY_BODY)
            return None
        self.held[request.address] = request
        if len(self.held) == 1:
            self._heartbeat_at = now + LONGEST_REPEAT / 2
        manager.announced_slots = max(manager.announced_slots - 1, 0)
        self._owe_ready(manager.id)
        self._batch = FIRST_BATCH
        # WMP §Multiple jobs: with room for more, READY right after TAKE, before the job is begun.
        self._announce(now)
        return request

    def _on_cancel(self, link: int, path: list[bytes], headers: bytes) -> WmpRequest | None:
        job = messages.token(cbor.decode_map(headers), "job")
        for request in self.held.values():
            if request.link == link and request.job == job and request.path == path:
                request.cancelled = True
                return request
        return None

    def _unlock(self, link: int, path: list[bytes], wake: int) -> bool:
        return self.locks.pop((link, tuple(path), wake), None) is not None

    def _finish(self, request: WmpRequest, headers: bytes, body: bytes, now: float) -> None:
        if self.held.pop(request.address, None) is None:
            return
        self._ended[request.address] = None
        if len(self._ended) > ENDED_JOBS:
            self._ended.popitem(False)
        manager = self._managers.get(request.link)
        if manager is not None:
            self._send(request.link, request.path, messages.DONE, headers, body or EMPTY_BODY)
            if manager.announced_slots * 2 <= self.free:  # much more is free than it knows
                self._owe_ready(request.link)
        if not self.held:
            self._heartbeat_at = NEVER
        self._announce(now)

    def _status(self, request: WmpRequest, headers: bytes, body: bytes) -> None:
        if request.address in self.held and request.link in self._managers:
            self._send(request.link, request.path, messages.STATUS, headers, body)

    def _owe_ready(self, link: int) -> None:
        """Note that a manager has no READY, or may have none."""
        if link in self._managers and link not in self._without_ready:
            self._without_ready[link] = None

    def _announce(self, now: float) -> None:
        """Send READY to the next batch of managers without one, if a slot is free."""
        if self._can_take_jobs():
            number = 0
            while self._without_ready and number < self._batch:
                link = self._without_ready.popitem(False)[0]
                self._ready(self._managers[link], now)
                number += 1
        self._schedule(now)

    def _can_take_jobs(self) -> bool:
        return self.free > 0 and not self.stopping and len(self.roles) > 0

    def _ready(self, manager: _Manager, now: float) -> None:
        """Send READY: with roles at first and when it is repeated, otherwise only with the free slots."""
        free = self.free
        if manager.introduced:
            data = _READY_HEAD + frame(messages.only_slots(free))
        else:
            manager.introduced = True
            if free != self._ready_slots:
                self._ready_slots = free
                self._ready_message = _READY_HEAD + frame(self._introduction(free))
            data = self._ready_message
        manager.announced_slots = free
        self._out.append((manager.id, data))
        self._repeat(manager, now)

    def _introduction(self, free: int) -> bytes:
        """Encode the headers of a READY with roles."""
        decoded: dict[str, object] = {
            "roles": [messages.name_value(role) for role in self.roles],
            "beat": round(LONGEST_REPEAT * 1000),
        }
        if free != 1:
            decoded["slots"] = free
        if self.labels:
            decoded["labels"] = self.labels
        if self.relay:
            decoded["relay"] = True
        return cbor.encode(decoded)

    def _repeat(self, manager: _Manager, now: float) -> None:
        """Schedule the repetition of a READY; up to half of the interval is random."""
        manager.repeat_at = now + manager.backoff * (0.5 + self.random() / 2)
        self._repeat_at = min(self._repeat_at, manager.repeat_at)

    def _repeat_all(self, now: float) -> None:
        """Repeat the READYs that are due."""
        self._repeat_at = NEVER
        for manager in self._managers.values():
            if manager.repeat_at > now:
                self._repeat_at = min(self._repeat_at, manager.repeat_at)
                continue
            manager.backoff = min(manager.backoff * 2, LONGEST_REPEAT)
            manager.introduced = False
            if self._can_take_jobs():
                self._ready(manager, now)
            else:
                self._repeat(manager, now)

    def _send_all(self, headers: bytes) -> None:
        """Send all managers a READY without room, or without roles."""
        data = _READY_HEAD + frame(headers)
        for link in self._managers:
            self._out.append((link, data))

    def _send(self, link: int, path: list[bytes], command: int, headers: bytes, body: bytes) -> None:
        route = head(*path) if path else b""
        self._out.append(
            (link, route + messages.HEADS[command] + DELIMITER + frame(headers, bool(body)) + body)
        )

    def _schedule(self, now: float) -> None:
        """Set the time of the next `tick`."""
        due = self._heartbeat_at
        if self.locks:
            due = min(due, next(iter(self.locks.values())))
        if not self.stopping:
            due = min(due, self._repeat_at)
        if not self._without_ready or not self._can_take_jobs():
            self._batch_at = NEVER
        elif self._batch_at <= now or self._batch_at == NEVER:
            self._batch_at = now + BATCH_INTERVAL
        due = min(due, self._batch_at)
        self.due = due
