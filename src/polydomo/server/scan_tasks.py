"""The catalogue's tasks for those who read a store from end to end: Spark's data source and its bulk calls.

They are asked for through `mmi.service.broker` like the others. Rows come by columns, in MessagePack, because bodies
are bytes: `{"columns": {"id": […], …}, "next": N}`. `next` is the `after` to ask for next; None: that was all. A page
ends early when its bodies are large.

Jobs have two orders: `seq`, in which they arrived, and `ending`, in which they ended. Both only grow, and what was seen
is followed by higher numbers only; so a reader who remembers one number can go on behind it, after any restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from polydomo.core.gather import unpack
from polydomo.core.names import parse_name, printable
from polydomo.server.record_codec import several
from polydomo.services.builtin import Later, Raw
from polydomo.services.management import Management
from polydomo.store.errors import StoreError
from polydomo.store.records import DONE, EventRecord, JobFilter, JobPage, JobRecord, ResultRecord
from polydomo.store.store import Store
from polydomo.wire.frames import split

TASKS: Final = ("scan_bounds", "scan_jobs", "scan_endings", "scan_events", "trace_jobs")

# Rows of one answer at most, and about how many bytes of bodies.
ROWS: Final = 10_000
BYTES: Final = 8 * 1024 * 1024

# How far one question may look ahead for the end of a batch of a stream.
AHEAD: Final = 100_000

# Of one job.
EVENTS: Final = 10_000

# A space of the shelf that is always empty: dropping it changes nothing, and is done when all before it is.
_NOTHING: Final = "scanning"

_WHY_NOT: Final = "this broker keeps no durable jobs: give it a folder (--data) or a server (store.url)"


def without_store(management: Management) -> None:
    """The same tasks where nothing is kept: they say so."""

    def refuse(**_: object) -> None:
        raise ValueError(_WHY_NOT)

    management.tasks.update(dict.fromkeys(TASKS, refuse))


class ScanTasks:
    """Adds its tasks to the catalogue."""

    def __init__(self, store: Store, management: Management) -> None:
        self.store = store
        self.broker = management.broker
        management.tasks.update({name: getattr(self, name) for name in TASKS})

    def scan_bounds(self, after: int | None = None, rows: int | None = None) -> Later:
        """`first` and `last` are the `seq` of the oldest and the newest job (0: there is none), `ending` is the latest
        end that is on disk with all before it: the latest of the next `rows` behind `after`, if these are given."""
        later = Later()
        ending = self.store.ending
        found: dict[str, int] = {}

        def safe(error: StoreError | None) -> None:
            if error is not None:
                later.fail(error)
            elif after is None or rows is None:
                found["ending"] = ending
                self.store.find(JobFilter(limit=1, oldest_first=True)).then(first, later.fail)
            else:
                limit = max(1, min(rows, AHEAD))
                self.store.endings(after, limit).then(lambda jobs: ahead(jobs, after, limit), later.fail)

        def ahead(jobs: list[JobRecord], start: int, limit: int) -> None:
            # Numbers have gaps: of fewer rows than were asked for, the last one's number says less than `ending`.
            full = len(jobs) == limit and jobs[-1].ending is not None
            found["ending"] = jobs[-1].ending or start if full else max(start, ending)
            self.store.find(JobFilter(limit=1, oldest_first=True)).then(first, later.fail)

        def first(page: JobPage) -> None:
            found["first"] = page.jobs[0].seq if page.jobs else 0
            self.store.find(JobFilter(limit=1)).then(last, later.fail)

        def last(page: JobPage) -> None:
            found["last"] = page.jobs[0].seq if page.jobs else 0
            later.settle(found)

        # Behind all that is being written now.
        self.store.drop(_NOTHING, b"", safe)
        return later

    def scan_jobs(
        self,
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
    ) -> Later:
        """Jobs in order of arrival, from behind `after` up to `until`, as the store's own filter finds them. `since`
        and `before` are microseconds since 1970."""
        wanted = JobFilter(
            service=None if service is None else parse_name(service),
            state=state,
            client=None if client is None else parse_name(client),
            key=key,
            parent=parent,
            since=since,
            before=before,
            oldest_first=True,
            page=str(after) if after else None,
            limit=max(1, min(limit, ROWS)),
        )
        later = Later()

        def found(page: JobPage) -> None:
            jobs = [job for job in page.jobs if until is None or job.seq <= until]
            more = page.next is not None and len(jobs) == len(page.jobs)
            self._answer(later, jobs, more, lambda job: job.seq, request, result)

        self.store.find(wanted).then(found, later.fail)
        return later

    def scan_endings(
        self,
        after: int = 0,
        until: int | None = None,
        limit: int = ROWS,
        service: str | None = None,
        state: str | None = None,
        request: bool = False,
        result: bool = False,
    ) -> Later:
        """Ended jobs in the order of their ends, from behind `after` up to `until`."""
        later = Later()
        most = max(1, min(limit, ROWS))
        name = None if service is None else parse_name(service)

        def found(jobs: list[JobRecord]) -> None:
            behind = [job for job in jobs if until is None or (job.ending or 0) <= until]
            wanted = [
                job
                for job in behind
                if (name is None or job.service == name) and (state is None or job.state == state)
            ]
            more = len(jobs) == most and len(behind) == len(jobs)
            last = jobs[-1].ending if more else None
            self._answer(later, wanted, more, lambda job: job.ending, request, result, last)

        self.store.endings(after, most).then(found, later.fail)
        return later

    def scan_events(
        self,
        after: int = 0,
        until: int | None = None,
        limit: int = 1000,
        service: str | None = None,
        client: str | None = None,
        since: int | None = None,
        before: int | None = None,
        job: str | None = None,
    ) -> Later:
        """What workers said about jobs, job by job in order of arrival; `limit` jobs at a time."""
        later = Later()
        columns: dict[str, list[Any]] = {
            name: [] for name in ("job_id", "service", "number", "at", "worker", "kind", "body")
        }

        def add(record: JobRecord, events: list[EventRecord]) -> None:
            columns["job_id"] += [record.id] * len(events)
            columns["service"] += [printable(record.service)] * len(events)
            columns["number"] += [event.number for event in events]
            columns["at"] += [event.at for event in events]
            columns["worker"] += [printable(event.worker) for event in events]
            columns["kind"] += [event.kind for event in events]
            columns["body"] += [event.body for event in events]

        def found(page: JobPage) -> None:
            records = [one for one in page.jobs if until is None or one.seq <= until]
            more = page.next is not None and len(records) == len(page.jobs)
            self._each_events(
                records, add, lambda: later.settle(_packed(columns, following(more, records))), later
            )

        def following(more: bool, records: list[JobRecord]) -> int | None:
            return records[-1].seq if more and records else None

        def one(record: JobRecord | None) -> None:
            self._each_events(
                [] if record is None else [record], add, lambda: later.settle(_packed(columns, None)), later
            )

        if job is not None:
            self.store.get(job).then(one, later.fail)
            return later
        wanted = JobFilter(
            service=None if service is None else parse_name(service),
            client=None if client is None else parse_name(client),
            since=since,
            before=before,
            oldest_first=True,
            page=str(after) if after else None,
            limit=max(1, min(limit, ROWS)),
        )
        self.store.find(wanted).then(found, later.fail)
        return later

    def trace_jobs(self, client: str, ids: Iterable[str] = (), limit: int = 1000) -> Later:
        """Attempts and times of these jobs: [id, attempts, submitted, finished] each. Most have just ended, and are in
        memory; the others are looked for among the latest of this client, up to `limit`, then one by one."""
        later = Later()
        wanted = set(ids)
        rows = self._recent(wanted)

        def add(job: JobRecord) -> None:
            if job.id in wanted:
                wanted.discard(job.id)
                rows.append([job.id, job.attempt, job.submitted, job.finished])

        def found(page: JobPage) -> None:
            for job in page.jobs:
                add(job)
            left = list(wanted)
            waiting = len(left)

            def one(job: JobRecord | None) -> None:
                nonlocal waiting
                if job is not None:
                    add(job)
                waiting -= 1
                if not waiting:
                    later.settle(rows)

            fail = _once(later.fail)
            for uid in left:
                self.store.get(uid).then(one, fail)
            if not left:
                later.settle(rows)

        if wanted:
            mine = JobFilter(client=parse_name(client), limit=max(1, min(limit, ROWS)))
            self.store.find(mine).then(found, later.fail)
        else:
            later.settle(rows)
        return later

    def _recent(self, wanted: set[str]) -> list[list[Any]]:
        """Those of them that are in memory, with an end of their own; they are wanted no longer."""
        rows: list[list[Any]] = []
        wall = self.broker.lifecycle.wall
        for job in reversed(self.broker.recent):  # they are asked about soon: the latest are most likely
            extra = job.extra
            if extra is not None and extra.uid in wanted and extra.durable and extra.leader is None:
                rows.append([extra.uid, extra.number, extra.submitted, wall(job.finished)])
                wanted.discard(extra.uid)
                if not wanted:
                    break
        return rows

    def _each_events(
        self,
        records: list[JobRecord],
        add: Callable[[JobRecord, list[EventRecord]], None],
        done: Callable[[], None],
        later: Later,
    ) -> None:
        """Of all of them, in order: the store answers in the order it is asked."""
        if not records:
            done()
            return
        last = records[-1]

        def heard(record: JobRecord, events: list[EventRecord]) -> None:
            add(record, events)
            if record is last:
                done()

        fail = _once(later.fail)
        for record in records:
            self.store.events(record.id, limit=EVENTS).then(_with(heard, record), fail)

    def _answer(
        self,
        later: Later,
        jobs: list[JobRecord],
        more: bool,
        number: Callable[[JobRecord], int | None],
        request: bool,
        result: bool,
        last: int | None = None,
    ) -> None:
        """`more`: there are others behind these, from behind `last`, or the last of them."""
        if request or result:
            size = 0
            for place, job in enumerate(jobs):
                size += (job.size_in if request else 0) + (job.size_out if result else 0)
                if place and size > BYTES:
                    jobs = jobs[:place]
                    more, last = True, None
                    break
        following = (number(jobs[-1]) if last is None else last) if more and (jobs or last) else None
        columns = job_columns(jobs)
        self._add_requests(later, columns, jobs, following, request, result)

    def _add_requests(
        self,
        later: Later,
        columns: dict[str, list[Any]],
        jobs: list[JobRecord],
        following: int | None,
        request: bool,
        result: bool,
    ) -> None:
        def with_results() -> None:
            if result:
                self._add_results(later, columns, jobs, following)
            else:
                later.settle(_packed(columns, following))

        if not request:
            with_results()
            return
        bodies = columns["request"] = []

        def got(job: JobRecord | None) -> None:
            bodies.append(None if job is None else _one(job.body))
            if len(bodies) == len(jobs):
                with_results()

        fail = _once(later.fail)
        for job in jobs:
            self.store.get(job.id).then(got, fail)
        if not jobs:
            with_results()

    def _add_results(
        self, later: Later, columns: dict[str, list[Any]], jobs: list[JobRecord], following: int | None
    ) -> None:
        bodies = columns["result"] = []

        def got(job: JobRecord, result: ResultRecord | None) -> None:
            if result is None or result.body is None or result.state != DONE:
                bodies.append(None)
            else:
                bodies.append(_gathered(result.body) if several(job) else _one(result.body))
            if len(bodies) == len(jobs):
                later.settle(_packed(columns, following))

        fail = _once(later.fail)
        for job in jobs:
            self.store.result(job.id).then(_with(got, job), fail)
        if not jobs:
            later.settle(_packed(columns, following))


def job_columns(jobs: list[JobRecord]) -> dict[str, list[Any]]:
    """Rows to columns."""
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


def _with(call: Callable[[JobRecord, Any], None], job: JobRecord) -> Callable[[Any], None]:
    return lambda value: call(job, value)


def _once(fail: Callable[[Exception], None]) -> Callable[[Exception], None]:
    """Of many questions that fail, the first says it all."""
    told: list[Exception] = []

    def tell(error: Exception) -> None:
        if not told:
            told.append(error)
            fail(error)

    return tell


def _one(body: bytes) -> bytes:
    """A body's frame; several become one."""
    frames = split(body)
    return frames[0] if len(frames) == 1 else b"".join(frames)


def _gathered(body: bytes) -> bytes:
    """Several workers' answers, as JSON by their names."""
    return msgspec.json.encode(
        {
            printable(piece.name): {"error": piece.reason}
            if piece.reason
            else _one(piece.body or b"").decode(errors="replace")
            for piece in unpack(body)
        }
    )
