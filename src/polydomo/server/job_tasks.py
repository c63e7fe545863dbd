"""The catalogue's tasks about durable jobs: what is kept, how it ended, cancel it, send it again, throw it away.

They are asked for through `mmi.service.broker` like the others; as they read the disk, their answers come later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polydomo.core.gather import unpack
from polydomo.core.job import Job
from polydomo.core.names import parse_name, printable
from polydomo.server.record_codec import several
from polydomo.server.store_adapter import StoreAdapter
from polydomo.services.builtin import Later
from polydomo.services.management import Management
from polydomo.store.errors import StoreError
from polydomo.store.records import (
    DONE,
    AttemptRecord,
    EventRecord,
    JobChange,
    JobFilter,
    JobPage,
    JobRecord,
    ResultRecord,
)
from polydomo.wire.frames import split

# Of one job.
EVENTS_SHOWN = 200

TASKS = (
    "show_stored_jobs",
    "show_stored_job",
    "show_dead_letters",
    "cancel_job",
    "resend_job",
    "forget_job",
)


def without_store(management: Management) -> None:
    """The same tasks where nothing is kept: they say so."""

    def refuse(**_: object) -> None:
        raise ValueError(
            "this broker keeps no durable jobs: give it a folder (--data) or a server (store.url)"
        )

    management.tasks.update(dict.fromkeys(TASKS, refuse))


class JobTasks:
    """Adds its tasks to the catalogue."""

    def __init__(self, keeper: StoreAdapter, management: Management) -> None:
        self.keeper = keeper
        self.store = keeper.store
        management.tasks.update({name: getattr(self, name) for name in TASKS})

    def show_stored_jobs(
        self,
        service: str | None = None,
        state: str | None = None,
        client: str | None = None,
        key: str | None = None,
        limit: int = 100,
        page: str | None = None,
    ) -> Later:
        """Durable jobs, newest first; `next` is the `page` to ask for next."""
        wanted = JobFilter(
            service=None if service is None else parse_name(service),
            state=state,
            client=None if client is None else parse_name(client),
            key=key,
            limit=limit,
            page=page,
        )
        later = Later()

        def found(page: JobPage) -> None:
            later.settle({"jobs": [_row(job) for job in page.jobs], "next": page.next})

        self.store.find(wanted).then(found, later.fail)
        return later

    def show_dead_letters(
        self, service: str | None = None, limit: int = 100, page: str | None = None
    ) -> Later:
        """Jobs that used up their attempts."""
        return self.show_stored_jobs(service=service, state="dead", limit=limit, page=page)

    def show_stored_job(self, id: str) -> Later:
        """One job: request, attempts, events, result. Frames that are text are shown as text, others in hex."""
        later = Later()
        row: dict[str, Any] = {}

        def found(job: JobRecord | None) -> None:
            if job is None:
                later.fail(ValueError(f"no job {id!r}"))
                return
            row.update(_row(job))
            row["request"] = _shown(job.body)
            gathered = several(job)
            self.store.attempts(id).then(lambda attempts: tried(attempts, gathered), later.fail)

        def tried(attempts: list[AttemptRecord], gathered: bool) -> None:
            row["history"] = [
                {
                    "attempt": one.number,
                    "worker": printable(one.worker),
                    "started": one.started,
                    "ended": one.ended,
                    "outcome": one.outcome or "running",
                }
                for one in attempts
            ]
            self.store.events(id, limit=EVENTS_SHOWN).then(lambda events: heard(events, gathered), later.fail)

        def heard(events: list[EventRecord], gathered: bool) -> None:
            row["events"] = [
                {"at": one.at, "worker": printable(one.worker), "kind": one.kind, "body": printable(one.body)}
                for one in events
            ]
            self.store.result(id).then(lambda result: ended(result, gathered), later.fail)

        def ended(result: ResultRecord | None, gathered: bool) -> None:
            body = None if result is None else result.body
            if body is not None and gathered and result is not None and result.state == DONE:
                row["result"] = {
                    printable(piece.name): _shown(piece.body or b"") if not piece.reason else piece.reason
                    for piece in unpack(body)
                }
            else:
                row["result"] = None if body is None else _shown(body)
            later.settle(row)

        self.store.get(id).then(found, later.fail)
        return later

    def cancel_job(self, id: str) -> dict[str, Any]:
        """A job that has not ended will not be run; one that runs is taken from its worker."""
        job: Job | None = self.keeper.lifecycle.jobs.get(id)
        if job is None or not self.keeper.lifecycle.cancel(job):
            raise ValueError(f"no job {id!r} that could be cancelled")
        return {"id": id, "cancelled": True}

    def resend_job(self, id: str) -> Later:
        """A dead, failed or cancelled job is run again."""
        later = Later()

        def read(job: JobRecord | None) -> None:
            if job is not None:
                retries = self.keeper.broker.policy_of(job.service).retries
                job.max_attempts = job.attempt + retries + 1
                self.store.update(id, JobChange(max_attempts=job.max_attempts))
                self.keeper.touch()
                self.keeper.lifecycle.results.drop(id)
                self.keeper.revive(job)
            later.settle({"id": id, "sent": job is not None})

        def written(error: StoreError | None) -> None:
            if error is not None:
                later.fail(error)
            else:
                self.store.get(id).then(read, later.fail)

        self.keeper.when_ledgered(lambda: self.store.revive(id, self.keeper.wall(), written))
        return later

    def forget_job(self, id: str) -> Later:
        """Remove an ended job and its result."""
        if id in self.keeper.lifecycle.jobs:
            raise ValueError(f"job {id!r} has not ended; cancel it first")
        later = Later()
        done = _settle(later, {"id": id, "forgotten": True})
        self.keeper.when_ledgered(lambda: self.store.forget(id, done))
        return later


def _settle(later: Later, value: object) -> Callable[[StoreError | None], None]:
    def done(error: StoreError | None) -> None:
        if error is not None:
            later.fail(error)
        else:
            later.settle(value)

    return done


def _shown(body: bytes) -> list[str]:
    return [printable(part) for part in split(body)]


def _row(job: JobRecord) -> dict[str, Any]:
    return {
        "id": job.id,
        "service": printable(job.service),
        "state": job.state,
        "reason": job.code,
        "message": job.message,
        "client": printable(job.client),
        "dialect": job.dialect,
        "worker": printable(job.worker),
        "attempts": job.attempt,
        "key": job.key,
        "target": job.target,
        "priority": job.priority,
        "bytes_in": job.size_in,
        "bytes_out": job.size_out,
        "submitted": job.submitted,
        "dispatched": job.dispatched,
        "finished": job.finished,
    }
