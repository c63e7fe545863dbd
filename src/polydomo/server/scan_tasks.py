"""Catalogue tasks that read a store from end to end, for Spark's data source and bulk calls.

Like all tasks they are called through `mmi.service.broker`. Rows are returned by column in MessagePack, because bodies
are bytes: `{"columns": {"id": […], …}, "next": N}`. `next` is the `after` of the next page; None on the last page. A
page ends early if its bodies are large.

Jobs have two orders: `seq`, the order of arrival, and `ending`, the order of their ends. Both only increase, so a
reader that remembers one number can continue after it, even after a restart of the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from polydomo.core.names import parse_name, printable
from polydomo.core.pieces import unpack
from polydomo.core.tracked_job import TrackedJob
from polydomo.deferred import all_of, confirmed, deferring
from polydomo.server.record_codec import several
from polydomo.services.authorizer import View
from polydomo.services.builtin import Raw
from polydomo.services.management import ManagementService
from polydomo.store import Store
from polydomo.store.records import DONE, JobFilter, JobRecord, ResultRecord
from polydomo.wire.frames import split

TASKS: Final = ("scan_bounds", "scan_jobs", "scan_endings", "scan_events", "trace_jobs")

# Most rows of one page, and about the most bytes of bodies.
ROWS: Final = 10_000
BYTES: Final = 8 * 1024 * 1024

# Most jobs that `scan_bounds` looks ahead for the end of a stream's batch.
AHEAD: Final = 100_000

# Most events of one job.
EVENTS: Final = 10_000

# A key-value space that is always empty: dropping it changes nothing, and is confirmed after all earlier writes.
_EMPTY_SPACE: Final = "scanning"


class ScanTasks:
    """Tasks on one store. Creating it adds them to the catalogue."""

    def __init__(self, store: Store, management: ManagementService) -> None:
        self.store = store
        self.broker = management.broker
        management.tasks.add({name: getattr(self, name) for name in TASKS})

    @deferring
    async def scan_bounds(self, after: int | None = None, rows: int | None = None) -> dict[str, int]:
        """Return the bounds of both orders.

        `first` and `last` are the `seq` of the oldest and the newest job (0: there is none). `ending` is the number of
        the latest end that is on disk with all before it; with `after` and `rows`, the latest of the next `rows` ends
        after `after`.
        """
        ending = self.store.ending
        await confirmed(lambda done: self.store.drop(_EMPTY_SPACE, b"", done))
        if after is not None and rows is not None:
            limit = max(1, min(rows, AHEAD))
            jobs = await self.store.endings(after, limit)
            # The numbers have gaps: after fewer rows than the limit, `ending` says more than the last row's number.
            full = len(jobs) == limit and jobs[-1].ending is not None
            ending = jobs[-1].ending or after if full else max(after, ending)
        oldest = await self.store.find(JobFilter(limit=1, oldest_first=True))
        newest = await self.store.find(JobFilter(limit=1))
        return {
            "ending": ending,
            "first": oldest.jobs[0].seq if oldest.jobs else 0,
            "last": newest.jobs[0].seq if newest.jobs else 0,
        }

    @deferring
    async def scan_jobs(
        self,
        view: View,
        after: int = 0,
        until: int | None = None,
        limit: int = ROWS,
        service: str | None = None,
        state: str | None = None,
        client: str | None = None,
        key: str | None = None,
        parent: str | None = None,
        since: int | None = None,
        before: int | None = None,
        request: bool = False,
        result: bool = False,
    ) -> Raw:
        """Return jobs in order of arrival, after `after` up to `until`; `since` and `before` are µs since 1970."""
        wanted = JobFilter(state=state, key=key, parent=parent, since=since, before=before)
        jobs, following = await self._arrived(wanted, after, until, limit, service, client)
        return await self._page(view, jobs, following, lambda job: job.seq, request, result)

    @deferring
    async def scan_endings(
        self,
        view: View,
        after: int = 0,
        until: int | None = None,
        limit: int = ROWS,
        service: str | None = None,
        state: str | None = None,
        request: bool = False,
        result: bool = False,
    ) -> Raw:
        """Return ended jobs in the order of their ends, after `after` up to `until`."""
        limit = max(1, min(limit, ROWS))
        name = None if service is None else parse_name(service)
        ended = await self.store.endings(after, limit)
        jobs = [job for job in ended if until is None or (job.ending or 0) <= until]
        following = ended[-1].ending if len(jobs) == len(ended) == limit else None
        wanted = [
            job
            for job in jobs
            if (name is None or job.service == name) and (state is None or job.state == state)
        ]
        return await self._page(view, wanted, following, lambda job: job.ending, request, result)

    @deferring
    async def scan_events(
        self,
        view: View,
        after: int = 0,
        until: int | None = None,
        limit: int = 1000,
        service: str | None = None,
        client: str | None = None,
        since: int | None = None,
        before: int | None = None,
        job: str | None = None,
    ) -> Raw:
        """Return workers' events of `limit` jobs in order of arrival, or of one job."""
        following = None
        if job is not None:
            one = await self.store.get(job)
            records = [] if one is None else [one]
        else:
            wanted = JobFilter(since=since, before=before)
            records, following = await self._arrived(wanted, after, until, limit, service, client)
        records = [record for record in records if view.body(record.principal, record.service)]
        found = await all_of([self.store.events(record.id, limit=EVENTS) for record in records])
        rows = [(record, event) for record, events in zip(records, found, strict=True) for event in events]
        columns: dict[str, list[Any]] = {
            "job_id": [record.id for record, _ in rows],
            "service": [printable(record.service) for record, _ in rows],
            "number": [event.number for _, event in rows],
            "at": [event.at for _, event in rows],
            "worker": [printable(event.worker) for _, event in rows],
            "kind": [event.kind for _, event in rows],
            "body": [event.body for _, event in rows],
        }
        return _packed(columns, following)

    @deferring
    async def trace_jobs(
        self, view: View, client: str, ids: Iterable[str] = (), limit: int = 1000
    ) -> list[list[Any]]:
        """Return [id, attempts, submitted, finished] of these jobs.

        Most have just ended and are in memory. The others are searched among the latest `limit` jobs of the client,
        then one by one.
        """
        wanted = set(ids)
        rows = self._recent(view, wanted)
        if not wanted:
            return rows
        page = await self.store.find(JobFilter(client=parse_name(client), limit=max(1, min(limit, ROWS))))
        found = [job for job in page.jobs if job.id in wanted]
        rest = wanted.difference(job.id for job in found)
        found += [job for job in await all_of([self.store.get(uid) for uid in rest]) if job is not None]
        seen = [job for job in found if view.job(job.principal, job.service)]
        return rows + [[job.id, job.attempt, job.submitted, job.finished] for job in seen]

    def _recent(self, view: View, wanted: set[str]) -> list[list[Any]]:
        """Return the rows of the jobs in memory that have an end of their own, and remove them from `wanted`."""
        rows: list[list[Any]] = []
        wall = self.broker.clock.wall
        for job in reversed(self.broker.accounting.recent):  # the latest jobs are asked for most
            if isinstance(job, TrackedJob) and job.uid in wanted and job.durable and job.leader is None:
                if view.job(job.owner(), job.requested_service):
                    rows.append([job.uid, job.number, job.submitted_wall, wall(job.finished)])
                wanted.discard(job.uid)
                if not wanted:
                    break
        return rows

    async def _arrived(
        self,
        wanted: JobFilter,
        after: int,
        until: int | None,
        limit: int,
        service: str | None,
        client: str | None,
    ) -> tuple[list[JobRecord], int | None]:
        """Return a page of jobs in order of arrival, and the `after` of the next page."""
        wanted.service = None if service is None else parse_name(service)
        wanted.client = None if client is None else parse_name(client)
        wanted.oldest_first = True
        wanted.page = str(after) if after else None
        wanted.limit = max(1, min(limit, ROWS))
        page = await self.store.find(wanted)
        jobs = [job for job in page.jobs if until is None or job.seq <= until]
        more = page.next is not None and len(jobs) == len(page.jobs)
        return jobs, jobs[-1].seq if more and jobs else None

    async def _page(
        self,
        view: View,
        jobs: list[JobRecord],
        following: int | None,
        number: Callable[[JobRecord], int | None],
        request: bool,
        result: bool,
    ) -> Raw:
        """Return a page of these jobs with the requested bodies, shortened if the bodies are large."""
        sees = view.body if request or result else view.job
        jobs = [job for job in jobs if sees(job.principal, job.service)]
        if request or result:
            size = 0
            for index, job in enumerate(jobs):
                size += (job.size_in if request else 0) + (job.size_out if result else 0)
                if index and size > BYTES:
                    jobs = jobs[:index]
                    following = number(jobs[-1])
                    break
        columns = job_columns(jobs)
        if request:
            records = await all_of([self.store.get(job.id) for job in jobs])
            columns["request"] = [None if job is None else _one_frame(job.body) for job in records]
        if result:
            results = await all_of([self.store.result(job.id) for job in jobs])
            columns["result"] = [_result(*pair) for pair in zip(jobs, results, strict=True)]
        return _packed(columns, following)


def job_columns(jobs: list[JobRecord]) -> dict[str, list[Any]]:
    """Return the columns of these jobs, without bodies."""
    return {
        "id": [job.id for job in jobs],
        "seq": [job.seq for job in jobs],
        "ending": [job.ending for job in jobs],
        "service": [printable(job.service) for job in jobs],
        "state": [job.state for job in jobs],
        "error": [job.code or None for job in jobs],
        "message": [job.message or None for job in jobs],
        "client": [printable(job.client) for job in jobs],
        "dialect": [job.dialect for job in jobs],
        "worker": [printable(job.worker) or None for job in jobs],
        "attempts": [job.attempt for job in jobs],
        "key": [job.key for job in jobs],
        "parent": [job.parent for job in jobs],
        "target": [job.target for job in jobs],
        "priority": [job.priority for job in jobs],
        "submitted": [job.submitted for job in jobs],
        "not_before": [job.not_before for job in jobs],
        "dispatched": [job.dispatched for job in jobs],
        "finished": [job.finished for job in jobs],
        "deadline": [job.deadline for job in jobs],
        "bytes_in": [job.size_in for job in jobs],
        "bytes_out": [job.size_out for job in jobs],
    }


def _packed(columns: dict[str, list[Any]], following: int | None) -> Raw:
    return Raw(msgspec.msgpack.encode({"columns": columns, "next": following}))


def _result(job: JobRecord, result: ResultRecord | None) -> bytes | None:
    """Return a job's result: the frame, or a JSON object by worker if it was gathered."""
    if result is None or result.body is None or result.state != DONE:
        return None
    if not several(job):
        return _one_frame(result.body)
    return msgspec.json.encode(
        {
            printable(piece.name): {"error": piece.reason}
            if piece.reason
            else _one_frame(piece.body or b"").decode(errors="replace")
            for piece in unpack(result.body)
        }
    )


def _one_frame(body: bytes) -> bytes:
    """Return the body's frame; several frames are joined."""
    return b"".join(split(body))
