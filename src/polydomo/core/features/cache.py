"""Memoised services: the same request again gets the same result, without a worker.

Requests are the same if their bodies are, and their principals where results are kept apart (`Policy.memo_scope`). Of
those that are under way at once one goes to a worker (it *leads*), the others wait for its result. Results are kept in
memory, and by the store if there is one, for the service's `memo_ttl` and within its `memo_bytes`. Failures are not
kept: jobs that waited for one share it, unless it concerned only the leader's client (cancelled, out of time); then the
next one leads. Results in several pieces are not kept either.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from hashlib import blake2b
from typing import Final

from polydomo.core import failure as reasons
from polydomo.core.failure import Failure
from polydomo.core.features.feature import PASS, TAKEN, Feature
from polydomo.core.model import Job, Service
from polydomo.core.policy import PRINCIPAL
from polydomo.core.states import REMEMBER, REMEMBERING
from polydomo.core.tracked_job import TrackedJob, is_durable
from polydomo.core.tracking import Tracking
from polydomo.wire.frames import Message, frame

# What the results of all services may take together in memory. More may be on disk.
MEMORY: Final = 256 * 1024 * 1024

# What one result takes beside its body.
ENTRY: Final = 200

# Failures that concern one client, not the request.
_PERSONAL: Final = (reasons.CANCELLED, reasons.CLIENT_GONE, reasons.DEADLINE)


class Memo:
    """One cached result."""

    __slots__ = ("body", "took", "until", "worker")

    def __init__(self, body: bytes, worker: bytes, took: float, until: float) -> None:
        self.body = body  # canonical
        self.worker = worker  # that gave it
        self.took = took  # seconds
        self.until = until  # good until then

    def size(self) -> int:
        """Return the bytes it counts for."""
        return len(self.body) + ENTRY

    def packed(self) -> bytes:
        """Return it as bytes for the disk, which keeps `until` apart."""
        return frame(self.worker, True) + frame(b"%.6f" % self.took, True) + self.body


def unpacked(value: bytes, until: float) -> Memo:
    """Return a cached result from its bytes."""
    message = Message(value, 0, len(value))
    worker = message.take() or b""
    took = float(message.take() or b"0")
    return Memo(message.rest(), worker, took, until)


class ServiceCache:
    """The cached results of one service, the least recently used first, and statistics."""

    def __init__(self) -> None:
        self.memos: OrderedDict[bytes, Memo] = OrderedDict()
        self.held = 0  # bytes
        self.complete = False  # there is nothing on disk that is not in memory
        self.hits = 0  # requests answered from the cache
        self.joined = 0  # requests that waited for the same one
        self.misses = 0  # requests that went to a worker
        self.saved = 0.0  # seconds of workers' time that hits and joins would have cost

    def show(self) -> dict[str, object]:
        """Return the statistics by name."""
        return {
            "entries": len(self.memos),
            "bytes": self.held,
            "hits": self.hits,
            "joined": self.joined,
            "misses": self.misses,
            "saved_seconds": round(self.saved, 6),
        }

    def get(self, digest: bytes, now: float) -> Memo | None:
        """Return a result that is still good."""
        memo = self.memos.get(digest)
        if memo is None:
            return None
        if memo.until <= now:
            self.drop(digest)
            return None
        self.memos.move_to_end(digest)
        return memo

    def put(self, digest: bytes, memo: Memo) -> None:
        """Add the result of a request."""
        self.drop(digest)
        self.memos[digest] = memo
        self.held += memo.size()

    def drop(self, digest: bytes) -> bool:
        """Forget a result. False: there is none."""
        memo = self.memos.pop(digest, None)
        if memo is None:
            return False
        self.held -= memo.size()
        return True

    def drop_oldest(self) -> int:
        """Forget the least recently used result. Return its size."""
        size = self.memos.popitem(False)[1].size()
        self.held -= size
        self.complete = False
        return size


class InFlight:
    """The same request several times at once."""

    def __init__(self, leader: TrackedJob) -> None:
        self.leader = leader
        self.waiting: dict[TrackedJob, None] = {}
        self.stale = False  # results were forgotten while it was under way


class Cache(Feature):
    """The results of all memoised services."""

    def __init__(self, tracking: Tracking, memory: int = MEMORY) -> None:
        self.memory = memory
        self.held = 0  # bytes, of all services
        self.services: dict[bytes, ServiceCache] = {}
        self.in_flight: dict[tuple[bytes, bytes], InFlight] = {}
        self._tracking = tracking

    def applies(self, service: Service) -> bool:
        return service.policy.memo

    def on_submit(self, job: TrackedJob) -> int:
        if not job.service.policy.memo:
            return PASS
        self.on_restore(job)
        if not job.cache_key or (job.durable and (job.user_named or job.key)):
            return PASS
        cache = self.services.get(job.requested_service)
        memo = None if cache is None else cache.get(job.cache_key, self._tracking.clock.now)
        if memo is None:
            return PASS
        job.durable = False  # it needs no record: there is nothing left to be done
        self._tracking.accept(job)
        self._hit(job, memo)
        return TAKEN

    def on_ready(self, job: TrackedJob) -> int:
        if not job.cache_key:
            return PASS
        name = (job.requested_service, job.cache_key)
        flight = self.in_flight.get(name)
        if flight is not None:
            if flight.leader is job:
                return PASS
            flight.waiting[job] = None
            self._tracking.hold(job, REMEMBER)
            return TAKEN
        cache = self.service(job.requested_service)
        memo = cache.get(job.cache_key, self._tracking.clock.now)
        if memo is not None:
            self._hit(job, memo)
            return TAKEN
        self.in_flight[name] = InFlight(job)
        store = self._tracking.store
        if store is None or cache.complete:
            cache.misses += 1
            return PASS
        self._tracking.hold(job, REMEMBER)
        store.memo(job.requested_service, job.cache_key, partial(self._found, job))
        return TAKEN

    def on_reply(self, job: TrackedJob, body: bytes) -> None:
        if not job.cache_key:
            return
        service, digest = job.requested_service, job.cache_key
        flight = self.in_flight.get((service, digest))
        leads = flight is not None and flight.leader is job
        policy = self._tracking.services.policy_of(service)
        now = self._tracking.clock.now
        worker = b"" if job.worker is None else job.worker.name
        memo = Memo(body, worker, now - job.dispatched, now + policy.memo_ttl)
        stale = flight is not None and flight.stale and leads
        if not stale and not job.partials and memo.size() * 4 <= policy.memo_bytes:
            self._keep(service, digest, memo, policy.memo_bytes)
            if self._tracking.store is not None:
                self._tracking.store.keep_memo(service, digest, memo.packed(), memo.until)
        if flight is not None and leads:
            del self.in_flight[service, digest]
            cache = self.service(service)
            for other in list(flight.waiting):
                self._tracking.release(other)
                cache.joined += 1
                cache.saved += memo.took
                self._give(other, memo)

    def on_failure(self, job: TrackedJob, failure: Failure) -> None:
        name = (job.requested_service, job.cache_key)
        flight = self.in_flight.get(name) if job.cache_key else None
        if flight is None:
            return
        if flight.leader is not job:
            flight.waiting.pop(job, None)
            return
        del self.in_flight[name]
        waiting = list(flight.waiting)
        for other in waiting:
            self._tracking.release(other)
        for other in waiting:
            if failure.reason not in _PERSONAL:
                copy = Failure(failure.reason, failure.message, failure.body, failure.detail)
                self._tracking.scheduler.fail(other, copy)
            elif self.on_ready(other) == PASS:  # the first one leads, the others wait for it
                self._tracking.proceed(other)

    def on_cancel(self, job: Job, failure: Failure) -> int:
        if job.state != REMEMBERING or not isinstance(job, TrackedJob):
            return PASS
        flight = self.in_flight.get((job.requested_service, job.cache_key))
        if flight is not None:
            flight.waiting.pop(job, None)
        self._tracking.release(job)
        return TAKEN

    def on_close(self) -> None:
        for job in list(self._tracking.jobs.values()):
            if job.state == REMEMBERING and not is_durable(job):
                failure = Failure(reasons.DRAINING, "the broker stopped before there was an answer")
                self._tracking.cancel(job, failure)

    def on_restore(self, job: TrackedJob) -> None:
        if job.service.policy.memo and job.target is None:
            apart = job.service.policy.memo_scope == PRINCIPAL
            job.cache_key = digest_of(job.body, job.owner() if apart else "")

    def forget(self, service: bytes, body: bytes | None = None) -> int:
        """Forget the result of a request, or all of a service. Return how many were in memory.

        Where each principal has its own result of the request, all of the service are forgotten.
        """
        if self._tracking.services.policy_of(service).memo_scope == PRINCIPAL:
            body = None
        digest = b"" if body is None else digest_of(body)
        for (name, asked), flight in self.in_flight.items():
            if name == service and (not digest or asked == digest):
                flight.stale = True
        if self._tracking.store is not None:
            self._tracking.store.forget_memo(service, digest)
        cache = self.services.get(service)
        if cache is None:
            return 0
        before = cache.held
        if digest:
            count = int(cache.drop(digest))
        else:
            count = len(cache.memos)
            cache.memos.clear()
            cache.held = 0
        self.held -= before - cache.held
        return count

    def service(self, name: bytes) -> ServiceCache:
        """Return the cache of one service."""
        cache = self.services.get(name)
        if cache is None:
            cache = self.services[name] = ServiceCache()
        return cache

    def _found(self, job: TrackedJob, value: bytes | None, until: float) -> None:
        """Go on with what the disk had; None: nothing."""
        name = (job.requested_service, job.cache_key)
        flight = self.in_flight.get(name)
        if flight is None or flight.leader is not job or job.state != REMEMBERING:
            return  # it was cancelled before the disk was read
        self._tracking.release(job)
        if value is None or flight.stale or until <= self._tracking.clock.now:
            self.service(job.requested_service).misses += 1
            self._tracking.proceed(job)
            return
        memo = unpacked(value, until)
        self._keep(*name, memo, job.service.policy.memo_bytes)
        del self.in_flight[name]
        waiting = list(flight.waiting)
        for other in waiting:
            self._tracking.release(other)
        for one in [job, *waiting]:
            self._hit(one, memo)

    def _hit(self, job: TrackedJob, memo: Memo) -> None:
        cache = self.service(job.requested_service)
        cache.hits += 1
        cache.saved += memo.took
        self._give(job, memo)

    def _give(self, job: TrackedJob, memo: Memo) -> None:
        job.hit = True
        if memo.worker:
            self._tracking.assign(job, [memo.worker])
        self._tracking.conclude(job, memo.body)

    def _keep(self, service: bytes, digest: bytes, memo: Memo, bound: int) -> None:
        cache = self.service(service)
        before = cache.held
        cache.put(digest, memo)
        self.held += cache.held - before
        while cache.held > bound:
            self.held -= cache.drop_oldest()
        while self.held > self.memory:
            largest = cache
            for other in self.services.values():
                if other.held > largest.held:
                    largest = other
            self.held -= largest.drop_oldest()


def digest_of(body: bytes, owner: str = "") -> bytes:
    """Return by what a request is known again: to all principals, or to its owner."""
    if not owner:
        return blake2b(body, digest_size=32).digest()
    name = owner.encode()
    digest = blake2b(len(name).to_bytes(4, "big"), digest_size=32, person=b"owner")
    digest.update(name)
    digest.update(body)
    return digest.digest()
