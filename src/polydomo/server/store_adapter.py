"""Between the core and the store: durable jobs become records, records become jobs again after a restart."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine

from polydomo.core import job as jobs
from polydomo.core.broker import Broker
from polydomo.core.client import Client
from polydomo.core.extras import Extra
from polydomo.core.gather import Piece, pack, unpack
from polydomo.core.job import Failure, Job
from polydomo.core.policy import FOREVER
from polydomo.core.ports import JobStorePort
from polydomo.core.result_history import JobResult
from polydomo.core.targets import RESOURCES
from polydomo.server.cache_store import CacheStore
from polydomo.server.deliveries import Deliveries, outcome
from polydomo.server.log import Log
from polydomo.server.record_codec import read_options, rest_of, several, written_target
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
    ResultRecord,
    Retention,
)
from polydomo.store.store import READY
from polydomo.wire.frames import Message, frame

log = Log()

# Clients that go on in one turn of the loop when the store has caught up: each may bring a large job at once.
RELIEVED = 32

# Seconds between two lines about refused jobs.
QUIET = 10.0

# How a job that failed for this reason is kept; any other reason: as failed.
ENDS = {jobs.CANCELLED: CANCELLED, jobs.EXHAUSTED: DEAD}


class StoreAdapter(JobStorePort):
    """The core's keeper. `touch` is called before the core is told something: it sets the core's time."""

    def __init__(self, broker: Broker, store: Store, touch: Callable[[], None]) -> None:
        self.broker = broker
        self.lifecycle = broker.lifecycle
        self.store = store
        self.touch = touch
        self.memos = CacheStore(self)
        self.deliveries = Deliveries(broker, store, touch)
        self.trouble: StoreTrouble | None = None  # why new jobs are refused
        self._recovered = 0  # `seq` of the latest job that was recovered
        # Awaited before a record of an ended job is changed or removed: the ledger's row might have to be made from it.
        self.before_loss: Callable[[], Coroutine[None, None, None]] | None = None
        self._losing: set[asyncio.Task[None]] = set()
        self._refused = 0  # by a store that had no room left, as far as that was logged
        self._logged = -QUIET
        store.on_progress = self._relieve

    def refuse(self, trouble: StoreTrouble | None) -> None:
        """Refuse new jobs because of this; None: take them again."""
        self.trouble = trouble

    def add(self, job: Job) -> None:
        if self.trouble is not None:
            self._stored(job, self.trouble)
            return
        try:
            self.store.add(self._record(job), lambda error: self._stored(job, error))
        except StoreError as error:
            self._stored(job, error)

    def behind(self) -> bool:
        return self.store.behind()

    def attempt(self, job: Job) -> None:
        extra = job.extra
        if extra is not None and job.worker is not None:
            extra.began = self.wall()
            self.store.attempt(extra.uid, extra.number, job.worker.name, extra.began, job.token)

    def partial(self, job: Job, body: bytes) -> None:
        extra = job.extra
        if extra is not None:
            self.store.partial(extra.uid, extra.number, body, self.wall())

    def event(self, job: Job, name: bytes, kind: str, body: bytes) -> None:
        if job.extra is not None:
            self.store.event(job.extra.uid, kind, body, self.wall(), name)

    def alias(self, leader: Job, job: Job) -> None:
        if leader.extra is not None and job.extra is not None:
            self.store.alias(leader.extra.uid, job.extra.uid, lambda error: self._aliased(job, error))

    def convened(self, job: Job) -> None:
        if job.extra is not None:
            self.store.update(job.extra.uid, JobChange(options=rest_of(job.extra, job.client.form)))

    def gathered(self, job: Job, index: int, piece: Piece) -> None:
        """A piece is a partial answer of attempt 0, its place in front of it."""
        if job.extra is not None:
            body = frame(b"%d" % index, True) + pack([piece])
            self.store.partial(
                job.extra.uid, 0, body, self.wall(), lambda error: self._gathered(job, index, error)
            )

    def read(self, uid: str, then: Callable[[JobResult | None], None]) -> None:
        def found(record: JobRecord | None) -> None:
            if record is None or record.state not in ENDED:
                settle(None)
                return
            gathered = several(record)
            self.store.result(uid).then(lambda result: ended(record, result, gathered), missed)

        def ended(record: JobRecord, result: ResultRecord | None, gathered: bool) -> None:
            if result is None:
                settle(None)
                return
            body, failure = outcome(result)
            settle(JobResult(uid, record.service, result.worker, body, failure, gathered))

        def missed(error: StoreError) -> None:
            settle(JobResult(uid, b"", b"", None, _failure(error), False))

        def settle(ended: JobResult | None) -> None:
            self.touch()
            then(ended)

        self.store.get(uid).then(found, missed)

    def tell(self, client: Client, uids: list[str]) -> None:
        for uid in uids:
            self.deliveries.tell(client, uid)

    def finish(self, job: Job) -> None:
        extra = job.extra
        if extra is None:
            return
        failure = job.failure
        state, body, code, message = DONE, extra.result, "", ""
        if failure is not None:
            state, body = ENDS.get(failure.reason, FAILED), failure.body
            code, message = failure.reason, failure.message
        extra.ended = self.wall()
        extra.ending = self.store.ending + 1
        self.store.finish(
            extra.uid,
            extra.number,
            state,
            body,
            extra.ended,
            lambda error: self._recorded(job, error),
            code=code,
            message=message,
        )

    def when_ledgered(self, then: Callable[[], None]) -> None:
        """Do this as soon as the ledger has what has ended so far."""
        if self.before_loss is None:
            then()
            return

        async def wait(written: Coroutine[None, None, None]) -> None:
            await written
            then()

        task = asyncio.get_running_loop().create_task(wait(self.before_loss()))
        self._losing.add(task)
        task.add_done_callback(self._losing.discard)

    def memo(self, service: bytes, digest: bytes, then: Callable[[bytes | None, float], None]) -> None:
        self.memos.read(service, digest, then)

    def keep_memo(self, service: bytes, digest: bytes, value: bytes, until: float) -> None:
        self.memos.keep(service, digest, value, until)

    def forget_memo(self, service: bytes, digest: bytes) -> None:
        self.memos.forget(service, digest)

    def look_up(self, job: Job) -> None:
        extra = job.extra
        if extra is None:
            return

        def found(record: JobRecord | None) -> None:
            if record is None:
                self._looked_up(job, None)
            elif record.state == DONE and extra.named and extra.uid != record.id:
                # It is asked for under another id: that must lead here after a restart, too.
                self.store.alias(record.id, extra.uid, lambda error: known(record, error))
            elif record.state == DONE:
                known(record, None)
            else:  # it has no answer to give: the key counts as new
                self.store.update(record.id, JobChange(release_key=True))
                self._looked_up(job, None)

        def known(record: JobRecord, error: StoreError | None) -> None:
            if error is not None:
                missed(error)
                return
            gathered = several(record)
            self.store.result(record.id).then(lambda result: self._looked_up(job, result, gathered), missed)

        def missed(error: StoreError) -> None:
            self.touch()
            self.lifecycle.looked_up(job, None, _failure(error))

        self.store.by_key(job.service.name, _text(extra.key)).then(found, missed)

    async def recover(self) -> int:
        """Make every job that had not ended one of the core's again, in order. Return how many. A recovery that failed
        goes on where it was when it is called again."""
        collecting = gc.isenabled()
        gc.disable()  # all that is made here stays: looking for garbage in it again and again costs a fifth
        try:
            return await self._recover()
        finally:
            if collecting:
                gc.enable()

    async def _recover(self) -> int:
        count = 0
        await self.deliveries.recover()
        clients = self.lifecycle.absentees.copy()
        async for records in self.store.recover(after=self._recovered):
            for record in records:
                who = (record.client, record.dialect)
                client = clients.get(who)
                if client is None:
                    client = clients[who] = self.deliveries.expect(record)
                pieces = await self._pieces(record) if several(record) else {}
                self.revive(record, client, pieces)
                self._recovered = record.seq
            count += len(records)
        for alias, uid in await self.store.aliases():
            self.lifecycle.restore_alias(uid, alias)
        self.deliveries.begin()
        return count

    async def sweep(self) -> int:
        """Remove what was kept long enough, by each service's own policy. Returns how many jobs that were."""
        self.memos.trim()
        names = {count.service for count in await self.store.counts()}
        keep = {name: _micros(self.broker.policy_of(name).retention) for name in names}
        return await self.store.sweep(
            self.wall(), Retention(_micros(self.broker.default_policy.retention), keep)
        )

    def revive(
        self, record: JobRecord, client: Client | None = None, pieces: dict[int, Piece] | None = None
    ) -> None:
        """A record becomes a living job."""
        if client is None:
            client = self.lifecycle.absent(record.client, record.dialect)
        job = self.broker.revive(client, record.service, record.body, record.envelope)
        options, places = read_options(record)
        extra = Extra(record.id, options, True, self.broker.now, record.submitted)
        extra.ready = 0.0 if record.not_before is None else self.core_time(record.not_before)
        extra.deadline = FOREVER if record.deadline is None else self.core_time(record.deadline)
        extra.number = record.attempt
        extra.began = record.dispatched or 0
        extra.added = True
        extra.places = places
        if options.target is not None and options.target.single:
            name = options.target.names[0]
            if options.target.kind == RESOURCES:
                extra.resource = name
            else:
                extra.worker = name
        # A job that was sent again may be tried as often as a new one, see `StoredJobs.resend_job`.
        resent = max(0, record.max_attempts - job.service.policy.retries - 1)
        self.lifecycle.restore(job, extra, record.token, record.worker, pieces, resent)

    async def _pieces(self, record: JobRecord) -> dict[int, Piece]:
        """The answers of those of several workers that have ended."""
        pieces: dict[int, Piece] = {}
        after = 0
        while True:
            partials = await self.store.partials(record.id, after)
            if not partials:
                return pieces
            for partial in partials:
                after = partial.number
                message = Message(partial.body, 0, len(partial.body))
                index = int(message.take() or b"0")
                pieces[index] = unpack(message.rest())[0]

    def _record(self, job: Job) -> JobRecord:
        extra = job.extra
        assert extra is not None
        policy = job.service.policy
        delayed = extra.ready > self.broker.now
        return JobRecord(
            id=extra.uid,
            service=job.service.name,
            state=DELAYED if delayed else WAITING,
            client=job.client.name,
            dialect=job.client.dialect,
            key=_text(extra.key) if extra.key else None,
            target=written_target(extra.target),
            priority=extra.priority,
            max_attempts=policy.retries + 1,
            timeout=_micros(extra.timeout or policy.timeout),
            options=rest_of(extra, job.client.form),
            not_before=self.lifecycle.wall(extra.ready) if delayed else None,
            deadline=None if extra.deadline == FOREVER else self.lifecycle.wall(extra.deadline),
            submitted=extra.submitted,
            queued=extra.submitted,
            body=job.body,
            envelope=job.envelope,
        )

    def _relieve(self) -> None:
        """Let clients go on that were stalled, if half of what made them wait is written."""
        if self.broker.stalled and not self.store.behind(2 * READY):
            self.touch()
            if self.broker.unstall(RELIEVED):
                asyncio.get_running_loop().call_soon(self._relieve)

    def _note_refusals(self) -> None:
        now = time.monotonic()
        if now - self._logged >= QUIET:
            count, self._refused = self.store.refused - self._refused, self.store.refused
            self._logged = now
            log.warning(
                "durable jobs refused: the store cannot keep up",
                jobs=count,
                backlog=self.store.backlog,
                hint="a faster disk, or more room for what waits: store.backlog",
            )

    def _stored(self, job: Job, error: StoreError | None) -> None:
        self.touch()
        if isinstance(error, StoreBusy):
            self._note_refusals()
        if isinstance(error, DuplicateJob):
            self._same(job)
        else:
            self.lifecycle.stored(job, None if error is None else _failure(error))

    def _aliased(self, job: Job, error: StoreError | None) -> None:
        self.touch()
        self.lifecycle.aliased(job, None if error is None else _failure(error))

    def _gathered(self, job: Job, index: int, error: StoreError | None) -> None:
        self.touch()
        self.lifecycle.gathers.kept(job, index, None if error is None else _failure(error))

    def _same(self, job: Job) -> None:
        """There is a job with its id already: if that is the same request, it has the same end."""

        def settle(
            body: bytes | None, failure: Failure | None, worker: bytes = b"", gathered: bool = False
        ) -> None:
            self.touch()
            self.lifecycle.looked_up(job, body, failure, worker, gathered)

        def found(record: JobRecord | None) -> None:
            if record is None or record.service != job.asked or record.body != job.body:
                settle(None, Failure(jobs.DUPLICATE, "there is another job with this id"))
            else:
                gathered = several(record)
                self.store.result(record.id).then(lambda result: ended(result, gathered), missed)

        def ended(result: ResultRecord | None, gathered: bool) -> None:
            if result is None:
                settle(None, Failure(jobs.DUPLICATE, "a job with this id is under way"))
            elif result.state == DONE:
                settle(result.body or b"", None, result.worker, gathered)
            else:
                settle(None, Failure(result.code or result.state, result.message, result.body))

        def missed(error: StoreError) -> None:
            settle(None, _failure(error))

        self.store.get(job.extra.uid if job.extra else "").then(found, missed)

    def _recorded(self, job: Job, error: StoreError | None) -> None:
        self.touch()
        if isinstance(error, StoreRefusal):
            # Trying again would not help. AlreadyFinished is what a commit looks like whose first answer was lost.
            if not isinstance(error, AlreadyFinished):
                log.error(
                    "a result was not recorded", job=job.extra.uid if job.extra else "", reason=str(error)
                )
            error = None
        self.lifecycle.recorded(job, None if error is None else _failure(error))
        if error is None and job.extra is not None:
            self.deliveries.told(job.client, job.extra.ending)

    def _looked_up(self, job: Job, result: ResultRecord | None, gathered: bool = False) -> None:
        self.touch()
        if result is None:
            self.lifecycle.looked_up(job, None, None)
        else:
            self.lifecycle.looked_up(job, result.body or b"", None, result.worker, gathered)

    def core_time(self, wall: int) -> float:
        """Wall time in microseconds as the core's time."""
        return wall / 1_000_000 - self.lifecycle.epoch

    def wall(self) -> int:
        """Wall time in microseconds."""
        return time.time_ns() // 1000


def _failure(error: StoreError) -> Failure:
    return Failure(jobs.STORE, str(error))


def _micros(seconds: float) -> int | None:
    return None if seconds == FOREVER else int(seconds * 1_000_000)


def _text(key: bytes) -> str:
    """Keys are bytes in the core and text in the store; this way none is lost or changed."""
    return key.decode("latin-1")
