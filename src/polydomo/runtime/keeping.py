"""Between the core and the store: durable jobs become records, records become jobs again after a restart."""

from __future__ import annotations

import time
from collections.abc import Callable

from polydomo.core import job as jobs
from polydomo.core.broker import Broker
from polydomo.core.client import Client
from polydomo.core.job import Failure, Job
from polydomo.core.policy import FOREVER
from polydomo.core.ports import Keeper
from polydomo.runtime.log import Log
from polydomo.store import Store
from polydomo.store.errors import AlreadyFinished, StoreError, StoreRefusal
from polydomo.store.records import (
    CANCELLED,
    DEAD,
    DELAYED,
    DONE,
    FAILED,
    WAITING,
    Change,
    JobRecord,
    ResultRecord,
    Retention,
)

log = Log()

# How a job that failed for this reason is kept; any other reason: as failed.
ENDS = {jobs.CANCELLED: CANCELLED, jobs.EXHAUSTED: DEAD}


class StoreKeeper(Keeper):
    """The core's keeper. `touch` is called before the core is told something: it sets the core's time."""

    def __init__(self, broker: Broker, store: Store, touch: Callable[[], None]) -> None:
        self.broker = broker
        self.lifecycle = broker.lifecycle
        self.store = store
        self.touch = touch

    def add(self, job: Job) -> None:
        try:
            self.store.add(self._record(job), lambda error: self._stored(job, error))
        except StoreError as error:
            self._stored(job, error)

    def attempt(self, job: Job) -> None:
        extra = job.extra
        if extra is not None and job.worker is not None:
            self.store.attempt(extra.uid, extra.number, job.worker.name, self.wall())

    def partial(self, job: Job, body: bytes) -> None:
        extra = job.extra
        if extra is not None:
            self.store.partial(extra.uid, extra.number, body, self.wall())

    def finish(self, job: Job) -> None:
        extra = job.extra
        if extra is None:
            return
        failure = job.failure
        state, body, code, message = DONE, extra.result, "", ""
        if failure is not None:
            state, body = ENDS.get(failure.reason, FAILED), failure.body
            code, message = failure.reason, failure.message
        self.store.finish(
            extra.uid,
            extra.number,
            state,
            body,
            self.wall(),
            lambda error: self._recorded(job, error),
            code=code,
            message=message,
        )

    def look_up(self, job: Job) -> None:
        extra = job.extra
        if extra is None:
            return

        def found(record: JobRecord | None) -> None:
            if record is None:
                self._looked_up(job, None)
            elif record.state == DONE:
                self.store.result(record.id).then(lambda result: self._looked_up(job, result), missed)
            else:  # it has no answer to give: the key counts as new
                self.store.update(record.id, Change(release_key=True))
                self._looked_up(job, None)

        def missed(error: StoreError) -> None:
            self.touch()
            self.lifecycle.looked_up(job, None, _failure(error))

        self.store.by_key(job.service.name, _text(extra.key)).then(found, missed)

    async def recover(self) -> int:
        """Every job that had not ended becomes one of the core's again, in order. Returns how many."""
        count = 0
        clients: dict[tuple[bytes, str], Client] = {}
        async for records in self.store.recover():
            for record in records:
                who = (record.client, record.dialect)
                client = clients.get(who)
                if client is None:
                    client = clients[who] = self.lifecycle.absent(*who)
                self.revive(record, client)
            count += len(records)
        return count

    async def sweep(self) -> int:
        """Remove what was kept long enough, by each service's own policy. Returns how many jobs that were."""
        names = {count.service for count in await self.store.counts()}
        keep = {name: _micros(self.broker.policy_of(name).retention) for name in names}
        return await self.store.sweep(
            self.wall(), Retention(_micros(self.broker.default_policy.retention), keep)
        )

    def revive(self, record: JobRecord, client: Client | None = None) -> None:
        """A record becomes a living job."""
        if client is None:
            client = self.lifecycle.absent(record.client, record.dialect)
        job = self.broker.revive(client, record.service, record.body, record.envelope)
        self.lifecycle.restore(
            job,
            record.id,
            b"" if record.key is None else record.key.encode("latin-1", "replace"),
            self._core_time(record.not_before, 0.0),
            self._core_time(record.deadline, FOREVER),
            record.submitted,
            record.attempt,
            b"",
        )

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
            max_attempts=policy.retries + 1,
            timeout=_micros(policy.timeout),
            not_before=self.lifecycle.wall(extra.ready) if delayed else None,
            deadline=None if extra.deadline == FOREVER else self.lifecycle.wall(extra.deadline),
            submitted=extra.submitted,
            queued=extra.submitted,
            body=job.body,
            envelope=job.envelope,
        )

    def _stored(self, job: Job, error: StoreError | None) -> None:
        self.touch()
        self.lifecycle.stored(job, None if error is None else _failure(error))

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

    def _looked_up(self, job: Job, result: ResultRecord | None) -> None:
        self.touch()
        self.lifecycle.looked_up(job, None if result is None else result.body or b"", None)

    def _core_time(self, wall: int | None, otherwise: float) -> float:
        return otherwise if wall is None else wall / 1_000_000 - self.lifecycle.epoch

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
