"""A worker's side of WMP, without a socket and without a clock: time is handed in.

It has any number of managers at once, each behind a link of its own, and `slots` for jobs of all of them together. A
slot is free, locked (GIVE was sent, and TAKE or NO is awaited, for `lock` seconds at most), or taken by a job.

READY goes to a manager when it has none of ours left: at first, when it gave us a job, and when it woke us while we had
no room. When a slot becomes free and many are owed one, the one that was served longest ago is asked first, then a few
more each moment that nobody has anything: so none starves, and a job does not cost a message to each of a hundred
managers. Beside that READY is repeated now and then, in case a manager has forgotten it, at longer and longer intervals
with a random part (WMP §Exceptional cases).

What is to be sent collects here, by link; the owner takes it with `take_output` after every call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from polydomo.dialects.wmp import messages
from polydomo.dialects.wmp.messages import (
    CANCEL,
    DONE,
    FROM_MANAGERS,
    GIVE,
    HEADS,
    NAMES,
    NO,
    NOT_BEGUN,
    PROTOCOL,
    READY,
    STATUS,
    TAKE,
    WAKE,
)
from polydomo.errors import ProtocolError
from polydomo.wire import cbor
from polydomo.wire.frames import DELIMITER, EMPTY_BODY, Message, frame, head

NEVER: Final = float("inf")

# How many of those that are owed a READY get one at once, when a slot becomes free; and twice as many after each
# MOMENT in which nobody had anything for it.
AT_ONCE: Final = 2
MOMENT: Final = 0.02

# Jobs that ended here are remembered, so that a repeated TAKE is not a second execution.
REMEMBERED: Final = 1000

# READY's headers of one that is ready for nothing any more.
NOTHING: Final = cbor.encode({"roles": []})


class WmpRequest:
    """A job. Its answers go back to the link and the path that it came from."""

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
        self.manager = manager  # who gave it (WMP §Routing: by its own word, not by the path)
        self.job = job
        self.address = manager + b"\0" + job
        self.service = service
        self.body = body  # canonical (wire.frames)
        self.cancelled = False


class _Manager:
    """One link, and what is at its other end: a manager, or a device before several."""

    __slots__ = ("backoff", "id", "introduced", "repeat_at", "told")

    def __init__(self, id: int, backoff: float) -> None:
        self.id = id
        self.backoff = backoff
        self.introduced = False  # it knows what we offer
        self.told = 0  # how many jobs it may believe that we could begin
        self.repeat_at = NEVER


@mypyc_attr(allow_interpreted_subclasses=True)
class WmpWorkerProtocol:
    """See the module's text. `random` gives numbers from 0 up to 1."""

    def __init__(
        self,
        roles: list[bytes],
        random: Callable[[], float],
        slots: int = 1,
        labels: dict[str, object] | None = None,
        lock: float = 5.0,
        first_repeat: float = 1.0,
        longest_repeat: float = 10.0,
    ) -> None:
        self.roles = roles
        self.slots = slots
        self.labels: dict[str, object] = {} if labels is None else labels
        self.lock = lock
        self.first_repeat = first_repeat
        self.longest_repeat = longest_repeat
        self.random = random
        self.held: dict[bytes, WmpRequest] = {}  # jobs in hand, by address
        self.locks: OrderedDict[tuple[int, tuple[bytes, ...], int], float] = OrderedDict()  # until when
        self.stopping = False  # no more jobs
        self.invalid = 0  # messages that no manager should have sent
        self.due = NEVER  # when to call `tick` next
        self.relay = False  # a broker, which must not get what another broker was given
        self._managers: dict[int, _Manager] = {}
        self._owed: OrderedDict[int, None] = OrderedDict()  # links without a READY of ours, longest ago first
        self._few = AT_ONCE
        self._few_at = NEVER  # when the next few of them get one
        self._repeat_at = NEVER  # no READY is to be repeated before
        self._ready_for = 0  # of how many free slots the READY below speaks
        self._ready_message = b""
        self._signs_at = NEVER  # when jobs in hand are to be mentioned
        self._ended: OrderedDict[bytes, None] = OrderedDict()
        self._out: list[tuple[int, bytes]] = []

    @property
    def free(self) -> int:
        """Slots that nobody has a claim on."""
        return self.slots - len(self.held) - len(self.locks)

    # The owner's side

    def connected(self, link: int, now: float) -> None:
        """There is somebody at the other end."""
        manager = self._managers[link] = _Manager(link, self.first_repeat)
        if self._may_ask():
            self._ready(manager, now)
        else:
            self._owed[link] = None
        self._plan(now)

    def disconnected(self, link: int, now: float) -> None:
        """No longer: what was locked for it is free. Jobs of its go on; nobody will hear how they end."""
        self._managers.pop(link, None)
        self._owed.pop(link, None)
        for key in [key for key in self.locks if key[0] == link]:
            del self.locks[key]
        self._announce(now)

    def offer(self, roles: list[bytes], slots: int, now: float) -> None:
        """It can do other things, or more or fewer of them, from now on."""
        if roles == self.roles and slots == self.slots:
            return
        self.roles = roles
        self.slots = slots
        self._ready_for = 0
        for link, manager in self._managers.items():
            manager.introduced = False
            self._owed[link] = None
        self._few = len(self._managers)
        if self._may_ask():
            self._announce(now)
        else:
            self._tell_all(self._introduction(0) if roles else NOTHING)
            self._plan(now)

    def stop(self, now: float) -> None:
        """Take no more jobs."""
        self.stopping = True
        self._tell_all(NOTHING)
        self._plan(now)

    def receive(self, link: int, message: Message, now: float) -> WmpRequest | None:
        """A message of a manager; gives a new job, or one that is not wanted any more (`cancelled`)."""
        try:
            return self._receive(link, message, now)
        except ProtocolError:
            self.invalid += 1
            return None

    def final(self, request: WmpRequest, body: bytes, now: float) -> None:
        """A job's answer."""
        self._finish(request, messages.done_headers(request.job), body, now)

    def failed(
        self, request: WmpRequest, status: int, account: dict[str, object], body: bytes, now: float
    ) -> None:
        """There is none, and why."""
        headers: dict[str, object] = {"job": _text(request.job), "status": status}
        if account:
            headers["error"] = account
        self._finish(request, cbor.encode(headers), body, now)

    def partial(self, request: WmpRequest, body: bytes, now: float) -> None:
        """One of several answers."""
        self._status(request, messages.only_job(request.job), body or EMPTY_BODY)

    def event(self, request: WmpRequest, kind: str, body: bytes, now: float) -> None:
        """How it goes; `body` is one frame's content."""
        headers = cbor.encode({"job": _text(request.job), "event": kind})
        self._status(request, headers, frame(body))

    def tick(self, now: float) -> None:
        """Called at `due`."""
        while self.locks:
            key, until = next(iter(self.locks.items()))
            if until > now:
                break
            del self.locks[key]
            self._owe(key[0])
        if self._repeat_at <= now:
            self._repeat_all(now)
        if self._signs_at <= now:
            for request in self.held.values():
                self._status(request, messages.only_job(request.job), b"")
            self._signs_at = now + self._sign_interval()
        if self._few_at <= now:
            self._few *= 2
        self._announce(now)

    def take_output(self) -> list[tuple[int, bytes]]:
        """What is to be sent now: links, and wire bytes."""
        out = self._out
        if out:
            self._out = []
        return out

    def has_room(self, roles: list[bytes]) -> bool:
        """Could it begin a job of one of these services now?"""
        return self.free > 0

    def drop(self, request: WmpRequest, now: float) -> None:
        """A job in hand is over, and nobody is to be told."""
        if self.held.pop(request.address, None) is not None and not self.held:
            self._signs_at = NEVER
        self._announce(now)

    # Inside

    def _receive(self, link: int, message: Message, now: float) -> WmpRequest | None:
        manager = self._managers.get(link)
        if manager is None:
            return None
        if message.take() != b"" or message.take() != PROTOCOL:
            raise ProtocolError("no WMP message for an end")
        command = message.take()
        kind = command[0] if command is not None and len(command) == 1 else 0
        path = messages.path(message, messages.HOPS)
        headers = message.take()
        if kind not in FROM_MANAGERS or headers is None:
            raise ProtocolError(f"{NAMES[kind] if kind < len(NAMES) else kind} is not a manager's command")
        manager.backoff = self.first_repeat
        if kind == WAKE:
            self._woken(manager, path, headers, now)
        elif kind == NO:
            self._refused(link, path, headers, now)
        elif kind == TAKE:
            return self._taken(manager, path, headers, message.rest(), now)
        elif kind == CANCEL:
            return self._cancelled(link, path, headers)
        return None

    def _woken(self, manager: _Manager, path: list[bytes], headers: bytes, now: float) -> None:
        """WMP §Description, 4: without room it is ignored; else a place is locked, and the job asked for."""
        said = cbor.decode_map(headers)
        wake = messages.whole(said, "wake")
        key = (manager.id, tuple(path), wake)
        if key in self.locks:
            return  # the same again
        if self.stopping or not self.has_room(messages.tokens(said, "roles")):
            self._owe(manager.id)  # it is told when that changes
            return
        self.locks[key] = now + self.lock
        self._few = AT_ONCE
        self._send(manager.id, path, GIVE, messages.only_wake(wake), b"")
        self._plan(now)

    def _refused(self, link: int, path: list[bytes], headers: bytes, now: float) -> None:
        """WMP §Description, 7."""
        self._unlock(link, path, _wake_in(headers))
        self._owe(link)
        self._announce(now)

    def _taken(
        self, manager: _Manager, path: list[bytes], headers: bytes, body: bytes, now: float
    ) -> WmpRequest | None:
        said = cbor.decode_map(headers)
        origin = messages.token(said, "manager") or (path[-1] if path else b"")
        job = messages.token(said, "job")
        if not job:
            raise ProtocolError("a TAKE without a job")
        request = WmpRequest(
            manager.id, path, said, origin, job, messages.token(said, "role"), body or EMPTY_BODY
        )
        locked = self._unlock(manager.id, path, messages.whole(said, "wake"))
        if request.address in self.held or request.address in self._ended:
            return None  # the same again
        if self.stopping or (not locked and self.free <= 0):
            # The lock had run out, or we stop: another may have it.
            self._send(
                manager.id,
                path,
                DONE,
                cbor.encode({"job": _text(job), "status": NOT_BEGUN}),
                EMPTY_BODY,
            )
            return None
        self.held[request.address] = request
        if len(self.held) == 1:
            self._signs_at = now + self._sign_interval()
        manager.told = max(manager.told - 1, 0)
        self._owe(manager.id)
        self._few = AT_ONCE
        # WMP §Multiple jobs: with room for more, READY right after TAKE, before the job is begun.
        self._announce(now)
        return request

    def _cancelled(self, link: int, path: list[bytes], headers: bytes) -> WmpRequest | None:
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
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(False)
        manager = self._managers.get(request.link)
        if manager is not None:
            self._send(request.link, request.path, DONE, headers, body or EMPTY_BODY)
            if manager.told * 2 <= self.free:  # it would be surprised how much more could be done
                self._owe(request.link)
        if not self.held:
            self._signs_at = NEVER
        self._announce(now)

    def _status(self, request: WmpRequest, headers: bytes, body: bytes) -> None:
        if request.address in self.held and request.link in self._managers:
            self._send(request.link, request.path, STATUS, headers, body)

    def _owe(self, link: int) -> None:
        """It has no READY of ours, or may believe so."""
        if link in self._managers and link not in self._owed:
            self._owed[link] = None

    def _announce(self, now: float) -> None:
        """READY, to a few of those that have none, if there is room."""
        if self._may_ask():
            number = 0
            while self._owed and number < self._few:
                link = self._owed.popitem(False)[0]
                self._ready(self._managers[link], now)
                number += 1
        self._plan(now)

    def _may_ask(self) -> bool:
        return self.free > 0 and not self.stopping and len(self.roles) > 0

    def _ready(self, manager: _Manager, now: float) -> None:
        """What we offer is said once, and when READY is repeated; otherwise how much of it."""
        free = self.free
        if manager.introduced:
            data = HEADS[READY] + DELIMITER + frame(messages.only_slots(free))
        else:
            manager.introduced = True
            if free != self._ready_for:
                self._ready_for = free
                self._ready_message = HEADS[READY] + DELIMITER + frame(self._introduction(free))
            data = self._ready_message
        manager.told = free
        self._out.append((manager.id, data))
        self._repeat(manager, now)

    def _introduction(self, free: int) -> bytes:
        """READY's headers."""
        said: dict[str, object] = {
            "roles": [_text(role) for role in self.roles],
            "beat": round(self.longest_repeat * 1000),
        }
        if free != 1:
            said["slots"] = free
        if self.labels:
            said["labels"] = self.labels
        if self.relay:
            said["relay"] = True
        return cbor.encode(said)

    def _repeat(self, manager: _Manager, now: float) -> None:
        """When the next READY of its is due if nothing happens: up to half of the interval is random."""
        manager.repeat_at = now + manager.backoff * (0.5 + self.random() / 2)
        self._repeat_at = min(self._repeat_at, manager.repeat_at)

    def _repeat_all(self, now: float) -> None:
        """READY once more, to whom nothing was said for long."""
        self._repeat_at = NEVER
        for manager in self._managers.values():
            if manager.repeat_at > now:
                self._repeat_at = min(self._repeat_at, manager.repeat_at)
                continue
            manager.backoff = min(manager.backoff * 2, self.longest_repeat)
            manager.introduced = False
            if self._may_ask():
                self._ready(manager, now)
            else:
                self._repeat(manager, now)

    def _tell_all(self, headers: bytes) -> None:
        """A READY that is none: it has no room, or offers nothing any more."""
        data = HEADS[READY] + DELIMITER + frame(headers)
        for link in self._managers:
            self._out.append((link, data))

    def _sign_interval(self) -> float:
        return self.longest_repeat / 2

    def _send(self, link: int, path: list[bytes], command: int, headers: bytes, body: bytes) -> None:
        way = head(*path) if path else b""
        self._out.append((link, way + HEADS[command] + DELIMITER + frame(headers, bool(body)) + body))

    def _plan(self, now: float) -> None:
        """When to look again."""
        due = self._signs_at
        for until in self.locks.values():
            due = min(due, until)
            break
        if not self.stopping:
            due = min(due, self._repeat_at)
        if not self._owed or not self._may_ask():
            self._few_at = NEVER
        elif self._few_at <= now or self._few_at == NEVER:
            self._few_at = now + MOMENT
        due = min(due, self._few_at)
        self.due = due


def _wake_in(headers: bytes) -> int:
    wake = messages.wake_in(headers)
    return wake if wake >= 0 else messages.whole(cbor.decode_map(headers), "wake")


def _text(value: bytes) -> object:
    """A name as headers have it."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
