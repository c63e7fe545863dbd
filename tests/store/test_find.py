"""Queries: lists with filters and pages, counts, dead letters."""

from __future__ import annotations

import pytest
from msgspec.structs import fields

from polydomo.store import queries, sqlite_database
from polydomo.store.errors import StoreInvalid
from polydomo.store.records import (
    CANCELLED,
    DEAD,
    DELAYED,
    DONE,
    FAILED,
    RUNNING,
    WAITING,
    JobCount,
    JobFilter,
    JobProgress,
    JobRecord,
)
from polydomo.store.sqlite import SqliteStore
from tests.store.desk import NOW, Desk, job, name

STATES = (WAITING, DELAYED, RUNNING, DONE, FAILED, CANCELLED, DEAD)


def fill(desk: Desk, number: int = 42) -> None:
    """Jobs 1 to `number`, of three services and two clients, in all states in turn."""
    store = desk.store
    for n in range(1, number + 1):
        state = STATES[n % 7]
        record = job(n, service=b"service%d" % (n % 3), client=b"client%d" % (n % 2))
        record.state = DELAYED if state == DELAYED else WAITING
        record.key = f"key{n}" if n % 5 == 0 else None
        record.principal = "billing" if n % 6 == 0 else "anonymous"
        record.parent = name(1) if n % 4 == 0 else None
        store.add(record)
        if state == RUNNING:
            store.attempt(record.id, 1, b"worker", NOW)
        elif state not in (WAITING, DELAYED):
            store.finish(record.id, 0, state, None, NOW)
    assert desk.do(store.event, name(number), "filled", b"", NOW) is None


def numbers(jobs: list[JobRecord]) -> list[int]:
    return [record.submitted - NOW for record in jobs]


def test_filters(desk: Desk) -> None:
    fill(desk)
    everything = range(42, 0, -1)

    def found(filter: JobFilter) -> list[int]:
        return numbers(desk.ask(desk.store.find(filter)).jobs)

    assert found(JobFilter()) == list(everything)
    assert found(JobFilter(oldest_first=True)) == list(reversed(everything))
    for index, state in enumerate(STATES):
        assert found(JobFilter(state=state)) == [n for n in everything if n % 7 == index]
    assert found(JobFilter(service=b"service1")) == [n for n in everything if n % 3 == 1]
    assert found(JobFilter(client=b"client0")) == [n for n in everything if n % 2 == 0]
    assert found(JobFilter(principal="billing")) == [n for n in everything if n % 6 == 0]
    assert found(JobFilter(key="key10")) == [10]
    assert found(JobFilter(key="key11")) == []
    assert found(JobFilter(parent=name(1))) == [n for n in everything if n % 4 == 0]
    assert found(JobFilter(since=NOW + 10, before=NOW + 20)) == [n for n in everything if 10 <= n < 20]
    assert found(JobFilter(service=b"service0", client=b"client1", state=DEAD, since=NOW + 10)) == [27]


def test_a_list_has_no_bodies(desk: Desk) -> None:
    fill(desk, 1)
    (found,) = desk.ask(desk.store.find(JobFilter())).jobs
    assert (found.body, found.envelope, found.options, found.size_in) == (b"", b"", b"", 6)


@pytest.mark.parametrize("oldest_first", [False, True])
def test_pages_join_without_gaps_while_jobs_arrive(desk: Desk, oldest_first: bool) -> None:
    fill(desk)
    seen: list[int] = []
    page: str | None = None
    for turn in range(100):
        filter = JobFilter(
            service=b"service1", page=page, limit=4, oldest_first=oldest_first, before=NOW + 43
        )
        answer = desk.ask(desk.store.find(filter))
        assert len(answer.jobs) <= 4
        seen += numbers(answer.jobs)
        page = answer.next
        if page is None:
            break
        assert desk.do(desk.store.add, job(100 + turn, service=b"service1")) is None
    expected = [n for n in range(1, 43) if n % 3 == 1]
    assert seen == (expected if oldest_first else expected[::-1])


def test_a_last_page_that_is_full_says_so(desk: Desk) -> None:
    fill(desk, 4)
    page = desk.ask(desk.store.find(JobFilter(limit=4)))
    assert (len(page.jobs), page.next) == (4, None)


@pytest.mark.parametrize(
    "filter",
    [
        JobFilter(page="x"),
        JobFilter(page="²"),
        JobFilter(page="9" * 40),
        JobFilter(limit=0),
        JobFilter(state="odd"),
    ],
)
def test_a_filter_that_makes_no_sense(filter: JobFilter) -> None:
    desk = Desk("memory:")
    with pytest.raises(StoreInvalid):
        desk.ask(desk.store.find(filter))
    desk.close()


def test_counts_follow_every_change(desk: Desk) -> None:
    fill(desk)
    expected: dict[tuple[bytes, str], int] = {}
    for n in range(1, 43):
        key = (b"service%d" % (n % 3), STATES[n % 7])
        expected[key] = expected.get(key, 0) + 1
    assert desk.ask(desk.store.counts()) == [JobCount(*key, jobs) for key, jobs in sorted(expected.items())]
    for n in range(1, 43):
        desk.store.forget(name(n))
    assert desk.do(desk.store.add, job(99)) is None
    assert desk.ask(desk.store.counts()) == [JobCount(b"echo", WAITING, 1)]


def test_by_key(desk: Desk) -> None:
    fill(desk, 10)
    found = desk.ask(desk.store.by_key(b"service1", "key10"))
    assert found is not None
    assert (found.id, found.body) == (name(10), b"body 10")
    assert desk.ask(desk.store.by_key(b"service0", "key10")) is None


def test_the_columns_are_the_records_fields() -> None:
    """Rows become records by position."""
    progress = [column.name for column in queries.PROGRESS]
    assert progress == [field.name for field in fields(JobProgress)]
    request = [column.name for column in queries.REQUESTS.columns[1:]]
    everything = [*progress, *(column.name for column in queries.REST), *request]
    assert everything == [field.name for field in fields(JobRecord)]


def test_every_list_finds_its_index(tmp_path: object) -> None:
    """SQLite's own account of how it would answer: what people ask often is not answered by reading everything."""
    desk = Desk(f"sqlite:///{tmp_path}/store.db")
    fill(desk, 14)
    plans = {
        "jobs_service": {"service": b"service1"},
        "jobs_client": {"client": b"client"},
        "jobs_state": {"state": DONE},
        "jobs_open": {"state": WAITING},
        "jobs_key": {"key": "key10"},
        "jobs_parent": {"parent": name(1)},
        "jobs_submitted": {"since": NOW, "before": NOW + 1},
    }
    for index, conditions in plans.items():
        for oldest_first in (True, False):
            query, _ = queries.find_jobs(JobFilter(**conditions, oldest_first=oldest_first))
            assert index in plan(desk, query)
    for query in (queries.GET_JOB, queries.GET_RESULT, queries.LIST_OPEN, queries.GET_JOB_BY_KEY):
        assert_no_scan(plan(desk, query))
    for statement in (queries.LOAD_PROGRESS, queries.LOAD_KEY_HOLDERS, queries.LIST_EXPIRED):
        assert_no_scan(plan(desk, sqlite_database._select_json(statement, 8, 10)))
    for statement in (
        queries.UPDATE_PROGRESS,
        queries.UPDATE_JOBS,
        queries.UPDATE_OPTIONS,
        *queries.DELETE_JOBS,
    ):
        assert_no_scan(plan(desk, sqlite_database._with_rows(statement, 8)))
    desk.close()


def assert_no_scan(plan: str) -> None:
    """Nothing is read from end to end but the given rows themselves."""
    for table in ("jobs", "requests", "results", "attempts", "partials", "events"):
        assert f"SCAN {table}" not in plan, plan


def plan(desk: Desk, query: str) -> str:
    assert isinstance(desk.store, SqliteStore)
    connection = desk.store._reading._connection
    given: dict[str, int] | list[int] = dict.fromkeys(queries.PARAMETER.findall(query), 1)
    if "?" in query:
        given = [1] * query.count("?")
    return str(connection.execute(f"EXPLAIN QUERY PLAN {query}", given).fetchall())
