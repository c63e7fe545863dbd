"""Adapter between the core and the store: durable jobs become records. `job_recovery` has the way back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from polydomo.core import failure as reasons
from polydomo.core.broker import Broker
from polydomo.core.failure import Failure
from polydomo.core.features.dedup import key_reused
from polydomo.core.model import Client
from polydomo.core.pieces import Piece, pack
from polydomo.core.policy import FOREVER
from polydomo.core.ports import JobStorePort
from polydomo.core.result_history import JobResult
from polydomo.core.tracked_job import TrackedJob
from polydomo.deferred import Deferred, confirmed, deferring
from polydomo.server.cache_store import CacheStore
from polydomo.server.clock import wall_time
from polydomo.server.deliveries import Deliveries, outcome
from polydomo.server.holdings import Holdings
from polydomo.server.job_recovery import JobRecovery
from polydomo.server.log import Log
from polydomo.server.record_codec import as_text, rest_of, several, written_target
from polydomo.store import Store
from polydomo.store.errors import (
    AlreadyFinished,
    DuplicateJob,
    StoreBusy,
    StoreError,
    StoreRefusal,
    StoreTrouble,
)
from polydomo.store.records import (
    CANCELLED,
    DEAD,
    DELAYED,
    DONE,
    ENDED,
    FAILED,
    WAITING,
    JobChange,
    JobRecord,
    Retention,
)
from polydomo.store.store import READY
from polydomo.wire.frames import frame

log = Log()

_MICROS = 1_000_000

# Stalled clients that continue in one turn of the event loop: each may bring a large job at once.
UNSTALLED_PER_TURN = 32

# Seconds between two log messages about refused jobs.
LOG_INTERVAL = 10.0

# State of a failed job's record by the reason of the failure; any other reason: FAILED.
STATES = {reasons.CANCELLED: CANCELLED, reasons.EXHAUSTED: DEAD}


class StoreAdapter(JobStorePort):
    """The core's job store port. `advance` sets the core's time and is called before each call on the core.

    `limit`: bytes that all jobs may take on disk.
    """

    def __init__(self, broker: Broker, store: Store, advance: Callable[[], None], limit: int) -> None:
        self.broker = broker
        self.events = broker.store_events
        self.store = store
        self.advance = advance
        self.cache = CacheStore(broker, store, advance)
        self.holdings = Holdings(broker, store, limit)
        self.deliveries = Deliveries(broker, store, advance)
        self.recovery = JobRecovery(broker, store, self.deliveries)
        self.trouble: StoreTrouble | None = None  # why new jobs are refused
        self._refused = 0  # `Store.refused` when it was last logged
        self._logged = -LOG_INTERVAL
        store.on_progress = self._unstall

    def refuse(self, trouble: StoreTrouble | None) -> None:
        """Refuse new jobs with this error; None: accept them again."""
        self.trouble = trouble

    def add(self, job: TrackedJob) -> None:
        if self.trouble is not None:
            self._stored(job, self.trouble)
            return
        record = _record_of(self.broker, job)

        def added(error: StoreError | None) -> None:
            self.holdings.written(job.client.principal, record.footprint(), kept=error is None)
            self._stored(job, error)

        try:
            self.store.add(record, added)
        except StoreError as error:
            self._stored(job, error)
        else:
            self.holdings.writing(job.client.principal, record.footprint())

    def behind(self) -> bool:
        return self.store.behind()

    def attempt(self, job: TrackedJob) -> None:
        if job.worker is not None:
            job.began = wall_time()
            worker = job.worker
            self.store.attempt(
                job.uid, job.number, worker.name, job.began, job.token, holder=worker.principal.name
            )

    def partial(self, job: TrackedJob, body: bytes) -> None:
        self.store.partial(job.uid, job.number, body, wall_time())
        self.holdings.add(job.client.principal, len(body))

    def event(self, job: TrackedJob, name: bytes, kind: str, body: bytes) -> None:
        self.store.event(job.uid, kind, body, wall_time(), name)

    def alias(self, leader: TrackedJob, job: TrackedJob) -> None:
        self.store.alias(leader.uid, job.uid, self._then(partial(self.events.aliased, job)))

    def convened(self, job: TrackedJob) -> None:
        self.store.update(job.uid, JobChange(options=rest_of(job, job.client.form)))

    def gathered(self, job: TrackedJob, index: int, piece: Piece) -> None:
        """Write a worker's part of a gathered answer: a partial answer of attempt 0, after a frame with its index."""
        body = frame(b"%d" % index, True) + pack([piece])
        kept = self._then(partial(self.events.piece_stored, job, index))
        self.store.partial(job.uid, 0, body, wall_time(), kept)

    def read(self, uid: str, then: Callable[[JobResult | None], None]) -> None:
        def found(ended: JobResult | None) -> None:
            self.advance()
            then(ended)

        self._read(uid).then(found, lambda error: found(_failed(uid, error)))

    @deferring
    async def _read(self, uid: str) -> JobResult | None:
        record = await self.store.get(uid)
        return None if record is None else await self._result(uid, record)

    async def _result(self, uid: str, record: JobRecord) -> JobResult | None:
        result = await self.store.result(record.id)
        if result is None or record.state not in ENDED:
            return None
        return JobResult(
            uid, record.service, result.worker, *outcome(result), several(record), owner=record.principal
        )

    def tell(self, client: Client, uids: list[str]) -> None:
        for uid in uids:
            self.deliveries.deliver(client, uid)

    def finish(self, job: TrackedJob) -> None:
        failure = job.failure
        state, body, code, message = DONE, job.result, "", ""
        if failure is not None:
            state, body = STATES.get(failure.reason, FAILED), failure.body
            code, message = failure.reason, failure.message
        job.ended = wall_time()
        job.ending = self.store.ending + 1
        self.holdings.writing(job.client.principal, len(body or b""))
        self.store.finish(
            job.uid,
            job.number,
            state,
            body,
            job.ended,
            partial(self._finished, job, len(body or b"")),
            code=code,
            message=message,
        )

    def memo(self, service: bytes, digest: bytes, then: Callable[[bytes | None, float], None]) -> None:
        self.cache.read(service, digest, then)

    def keep_memo(self, service: bytes, digest: bytes, value: bytes, until: float) -> None:
        self.cache.keep(service, digest, value, until)

    def forget_memo(self, service: bytes, digest: bytes) -> None:
        self.cache.forget(service, digest)

    def look_up(self, job: TrackedJob) -> None:
        def found(record: JobRecord | None) -> None:
            if record is None:
                self._looked_up(job, None)
            else:
                self._answer(job, self._earlier(job, record))

        self.store.by_key(job.service.name, as_text(job.key), job.owner()).then(
            found, lambda error: self._looked_up(job, _failed(job.uid, error))
        )

    @deferring
    async def _earlier(self, job: TrackedJob, record: JobRecord) -> JobResult | None:
        """Return the result of an earlier job with the same key."""
        if record.state != DONE:  # the earlier job has no answer: the key counts as new
            self.store.update(record.id, JobChange(release_key=True))
            return None
        if record.body != job.body:
            return JobResult(job.uid, b"", b"", None, key_reused(), False)
        if job.user_named and job.uid != record.id:
            # The client chose another id for the same job: the id must find the record after a restart, too.
            await confirmed(lambda done: self.store.alias(record.id, job.uid, done))
        return await self._result(job.uid, record)

    async def sweep(self) -> int:
        """Remove expired results by each service's retention, then what is too much. Return how many expired."""
        self.cache.trim()
        names = {count.service for count in await self.store.counts()}
        keep = {name: _micros(self.broker.services.policy_of(name).retention) for name in names}
        expired = await self.store.sweep(
            wall_time(), Retention(_micros(self.broker.services.default_policy.retention), keep)
        )
        await self.holdings.make_room()
        return expired

    def _unstall(self) -> None:
        """Let stalled clients continue once half of the backlog that stalled them is written."""
        if self.broker.accounting.stalled and not self.store.behind(2 * READY):
            self.advance()
            if self.broker.accounting.unstall(UNSTALLED_PER_TURN):
                asyncio.get_running_loop().call_soon(self._unstall)

    def _log_refusals(self) -> None:
        now = time.monotonic()
        if now - self._logged >= LOG_INTERVAL:
            count, self._refused = self.store.refused - self._refused, self.store.refused
            self._logged = now
            log.warning(
                "durable jobs refused: the store cannot keep up",
                jobs=count,
                backlog=self.store.backlog,
                hint="use a faster disk, or raise store.backlog",
            )

    def _stored(self, job: TrackedJob, error: StoreError | None) -> None:
        self.advance()
        if isinstance(error, StoreBusy):
            self._log_refusals()
        if isinstance(error, DuplicateJob):
            self._answer(job, self._repeated(job))
        else:
            self.events.stored(job, _failure(error))

    @deferring
    async def _repeated(self, job: TrackedJob) -> JobResult | None:
        """Return the result of a job whose id exists already: the recorded one for the same request, or a failure."""
        record = await self.store.get(job.uid)
        if record is None or record.service != job.requested_service or record.body != job.body:
            failure = Failure(reasons.DUPLICATE, "there is another job with this id")
        else:
            result = await self._result(job.uid, record)
            if result is not None:
                return result
            failure = Failure(reasons.DUPLICATE, "a job with this id is under way")
        return JobResult(job.uid, b"", b"", None, failure, False)

    def _finished(self, job: TrackedJob, size: int, error: StoreError | None) -> None:
        self.holdings.written(job.client.principal, size, kept=error is None)
        self._recorded(job, error)

    def _recorded(self, job: TrackedJob, error: StoreError | None) -> None:
        self.advance()
        if isinstance(error, StoreRefusal):
            # A retry would fail again. AlreadyFinished follows a commit whose confirmation was lost.
            if not isinstance(error, AlreadyFinished):
                log.error("result not recorded", job=job.uid, reason=str(error))
            error = None
        self.events.recorded(job, _failure(error))
        if error is None:
            self.deliveries.record_sent(job.client, job.ending)

    def _answer(self, job: TrackedJob, earlier: Deferred[JobResult | None]) -> None:
        earlier.then(
            partial(self._looked_up, job), lambda error: self._looked_up(job, _failed(job.uid, error))
        )

    def _looked_up(self, job: TrackedJob, earlier: JobResult | None) -> None:
        self.advance()
        if earlier is None:
            self.events.looked_up(job, None, None)
        else:
            gathered = earlier.gathered and earlier.failure is None
            self.events.looked_up(job, earlier.body, earlier.failure, earlier.worker, gathered)

    def _then(self, tell: Callable[[Failure | None], object]) -> Callable[[StoreError | None], None]:
        """Return a callback for the store that tells the core about success or failure."""

        def done(error: StoreError | None) -> None:
            self.advance()
            tell(_failure(error))

        return done


def _record_of(broker: Broker, job: TrackedJob) -> JobRecord:
    policy = job.service.policy
    delayed = job.ready > broker.now
    return JobRecord(
        id=job.uid,
        service=job.service.name,
        state=DELAYED if delayed else WAITING,
        client=job.client.name,
        dialect=job.client.dialect,
        principal=job.owner(),
        key=as_text(job.key) if job.key else None,
        target=written_target(job.target),
        priority=job.priority,
        max_attempts=policy.retries + 1,
        timeout=_micros(job.timeout or policy.timeout),
        options=rest_of(job, job.client.form),
        not_before=broker.clock.wall(job.ready) if delayed else None,
        deadline=None if job.deadline == FOREVER else broker.clock.wall(job.deadline),
        submitted=job.submitted_wall,
        queued=job.submitted_wall,
        body=job.body,
        envelope=job.envelope,
    )


def _failed(uid: str, error: Exception) -> JobResult:
    return JobResult(uid, b"", b"", None, _failure(error), False)


def _failure(error: Exception | None) -> Failure | None:
    return None if error is None else Failure(reasons.STORE, str(error))


def _micros(seconds: float) -> int | None:
    return None if seconds == FOREVER else int(seconds * _MICROS)
