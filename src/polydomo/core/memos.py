"""Memoised services: the same request again gets the same answer, and no worker hears of it.

Requests are the same if their bodies are. Of those that are under way at once one goes to a worker (it *leads*), the
others wait for its answer. Answers are kept in memory, and by the keeper if there is one, for the service's `memo_ttl`
and within its `memo_bytes`. Failures are not kept: whoever waited for one shares it, unless it was only the leader's
own matter (cancelled, out of time); then the next one leads. Answers in several pieces are not kept either.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from polydomo.core import job as jobs
from polydomo.core.job import REMEMBERING, Failure, Job
from polydomo.wire.frames import Message, frame

if TYPE_CHECKING:
    from polydomo.core.lifecycle import Lifecycle

# What all services' answers may take together in memory. More may be on disk.
MEMORY: Final = 256 * 1024 * 1024

# What one entry costs beside its body.
ENTRY: Final = 200

# Failures that say something about one client, not about the request.
_PERSONAL: Final = (jobs.CANCELLED, jobs.CLIENT_GONE, jobs.DEADLINE)


class Memo:
    """One answer."""

    __slots__ = ("body", "took", "until", "worker")

    def __init__(self, body: bytes, worker: bytes, took: float, until: float) -> None:
        self.body = body  # canonical
        self.worker = worker  # who gave it
        self.took = took  # how long that took
        self.until = until  # good until then

    def size(self) -> int:
        """What it counts for."""
        return len(self.body) + ENTRY

    def packed(self) -> bytes:
        """For the disk, which keeps `until` apart."""
        return frame(self.worker, True) + frame(b"%.6f" % self.took, True) + self.body


def unpacked(value: bytes, until: float) -> Memo:
    """The opposite."""
    message = Message(value, 0, len(value))
    worker = message.take() or b""
    took = float(message.take() or b"0")
    return Memo(message.rest(), worker, took, until)


class ServiceCache:
    """The answers of one service, the least recently used first, and what they were good for."""

    def __init__(self) -> None:
        self.memos: OrderedDict[bytes, Memo] = OrderedDict()
        self.held = 0  # bytes
        self.complete = False  # there is nothing on disk that is not here
        self.hits = 0  # requests answered from here
        self.joined = 0  # requests that waited for the same one
        self.misses = 0  # requests that went to a worker
        self.saved = 0.0  # seconds of workers' time that the first two would have cost

    def get(self, digest: bytes, now: float) -> Memo | None:
        """A good answer."""
        memo = self.memos.get(digest)
        if memo is None:
            return None
        if memo.until <= now:
            self.drop(digest)
            return None
        self.memos.move_to_end(digest)
        return memo

    def put(self, digest: bytes, memo: Memo) -> None:
        """One more."""
        self.drop(digest)
        self.memos[digest] = memo
        self.held += memo.size()

    def drop(self, digest: bytes) -> bool:
        """Forget it. False: it was not there."""
        memo = self.memos.pop(digest, None)
        if memo is None:
            return False
        self.held -= memo.size()
        return True

    def drop_oldest(self) -> int:
        """Make room; returns how much."""
        size = self.memos.popitem(False)[1].size()
        self.held -= size
        self.complete = False
        return size


class InFlight:
    """The same request several times at once."""

    def __init__(self, leader: Job) -> None:
        self.leader = leader
        self.waiting: dict[Job, None] = {}
        self.stale = False  # what it brings was forgotten before it was there


class Memos:
    """See the module's text. Belongs to one lifecycle."""

    def __init__(self, lifecycle: Lifecycle, memory: int = MEMORY) -> None:
        self.lifecycle = lifecycle
        self.broker = lifecycle.broker
        self.memory = memory
        self.held = 0  # bytes, of all services
        self.shelves: dict[bytes, ServiceCache] = {}
        self.flights: dict[tuple[bytes, bytes], InFlight] = {}

    def known(self, job: Job) -> Memo | None:
        """An answer from memory to a job that has just come, if there is one; it is not counted yet."""
        extra = job.extra
        shelf = self.shelves.get(job.asked)
        return None if shelf is None or extra is None else shelf.get(extra.memo, self.broker.now)

    def place(self, job: Job) -> bool:
        """A job that may be done now. True: it was answered, or waits for an answer to itself here."""
        extra = job.extra
        if extra is None:
            return False
        name = (job.asked, extra.memo)
        flight = self.flights.get(name)
        if flight is not None:
            if flight.leader is job:
                return False
            flight.waiting[job] = None
            self.lifecycle.elsewhere(job, REMEMBERING)
            return True
        shelf = self.shelf(job.asked)
        memo = shelf.get(extra.memo, self.broker.now)
        if memo is not None:
            self.answer(job, memo)
            return True
        self.flights[name] = InFlight(job)
        keeper = self.lifecycle.keeper
        if keeper is None or shelf.complete:
            shelf.misses += 1
            return False
        self.lifecycle.elsewhere(job, REMEMBERING)
        keeper.memo(job.asked, extra.memo, _Found(self, job, name))
        return True

    def answer(self, job: Job, memo: Memo) -> None:
        """A hit."""
        shelf = self.shelf(job.asked)
        shelf.hits += 1
        shelf.saved += memo.took
        self._give(job, memo)

    def landed(self, job: Job, body: bytes) -> None:
        """A worker has answered it."""
        extra = job.extra
        if extra is None or not extra.memo:
            return
        flight = self.flights.get((job.asked, extra.memo))
        mine = flight is not None and flight.leader is job
        policy = self.broker.policy_of(job.asked)
        now = self.broker.now
        worker = b"" if job.worker is None else job.worker.name
        memo = Memo(body, worker, now - job.dispatched, now + policy.memo_ttl)
        if flight is not None and flight.stale and mine:
            pass  # somebody said "forget" while it was under way
        elif not job.partials and memo.size() * 4 <= policy.memo_bytes:
            self._keep(job.asked, extra.memo, memo, policy.memo_bytes)
            if self.lifecycle.keeper is not None:
                self.lifecycle.keeper.keep_memo(job.asked, extra.memo, memo.packed(), memo.until)
        if flight is not None and mine:
            del self.flights[(job.asked, extra.memo)]
            shelf = self.shelf(job.asked)
            for other in list(flight.waiting):
                self.lifecycle.back(other)
                shelf.joined += 1
                shelf.saved += memo.took
                self._give(other, memo)

    def crashed(self, job: Job, failure: Failure) -> None:
        """It has failed."""
        extra = job.extra
        if extra is None or not extra.memo:
            return
        name = (job.asked, extra.memo)
        flight = self.flights.get(name)
        if flight is None:
            return
        if flight.leader is not job:
            flight.waiting.pop(job, None)
            return
        del self.flights[name]
        waiting = list(flight.waiting)
        for other in waiting:
            self.lifecycle.back(other)
        if failure.reason in _PERSONAL:
            for other in waiting:
                self.lifecycle.start(other, False)  # the first one leads, the others wait for it
        else:
            for other in waiting:
                self.broker.fail_job(
                    other, Failure(failure.reason, failure.message, failure.body, failure.detail)
                )

    def leave(self, job: Job) -> None:
        """A job that waits here is not wanted any more."""
        extra = job.extra
        if extra is not None:
            flight = self.flights.get((job.asked, extra.memo))
            if flight is not None:
                flight.waiting.pop(job, None)

    def forget(self, service: bytes, body: bytes | None = None) -> int:
        """Answers are no longer good: to this request, or all of a service. Returns how many were in memory."""
        digest = b"" if body is None else digest_of(body)
        for (name, asked), flight in self.flights.items():
            if name == service and (not digest or asked == digest):
                flight.stale = True
        if self.lifecycle.keeper is not None:
            self.lifecycle.keeper.forget_memo(service, digest)
        shelf = self.shelves.get(service)
        if shelf is None:
            return 0
        before = shelf.held
        if digest:
            count = int(shelf.drop(digest))
        else:
            count = len(shelf.memos)
            shelf.memos.clear()
            shelf.held = 0
        self.held -= before - shelf.held
        return count

    def shelf(self, service: bytes) -> ServiceCache:
        """A service's answers."""
        shelf = self.shelves.get(service)
        if shelf is None:
            shelf = self.shelves[service] = ServiceCache()
        return shelf

    def show(self, service: bytes) -> dict[str, object]:
        """For people."""
        shelf = self.shelves.get(service) or ServiceCache()
        return {
            "entries": len(shelf.memos),
            "bytes": shelf.held,
            "hits": shelf.hits,
            "joined": shelf.joined,
            "misses": shelf.misses,
            "saved_seconds": round(shelf.saved, 6),
        }

    def found(self, job: Job, name: tuple[bytes, bytes], value: bytes | None, until: float) -> None:
        """What the disk had; None: nothing."""
        flight = self.flights.get(name)
        if flight is None or flight.leader is not job or job.state != REMEMBERING:
            return  # it was cancelled meanwhile
        self.lifecycle.back(job)
        shelf = self.shelf(job.asked)
        if value is None or flight.stale or until <= self.broker.now:
            shelf.misses += 1
            self.lifecycle.start(job, False)
            return
        memo = unpacked(value, until)
        self._keep(job.asked, name[1], memo, job.service.policy.memo_bytes)
        del self.flights[name]
        waiting = list(flight.waiting)
        for other in waiting:
            self.lifecycle.back(other)
        for one in [job, *waiting]:
            self.answer(one, memo)

    def _give(self, job: Job, memo: Memo) -> None:
        if job.extra is not None:
            job.extra.hit = True
        if memo.worker:
            self.lifecycle.assign(job, [memo.worker])
        self.lifecycle.conclude(job, memo.body)

    def _keep(self, service: bytes, digest: bytes, memo: Memo, bound: int) -> None:
        shelf = self.shelf(service)
        before = shelf.held
        shelf.put(digest, memo)
        self.held += shelf.held - before
        while shelf.held > bound:
            self.held -= shelf.drop_oldest()
        while self.held > self.memory:
            largest = shelf
            for other in self.shelves.values():
                if other.held > largest.held:
                    largest = other
            self.held -= largest.drop_oldest()


class _Found:
    """Called with what the disk had."""

    def __init__(self, memos: Memos, job: Job, name: tuple[bytes, bytes]) -> None:
        self.memos = memos
        self.job = job
        self.name = name

    def __call__(self, value: bytes | None, until: float) -> None:
        self.memos.found(self.job, self.name, value, until)


MemoFound = Callable[[bytes | None, float], None]


def digest_of(body: bytes) -> bytes:
    """By which a request is known again."""
    return blake2b(body, digest_size=32).digest()
