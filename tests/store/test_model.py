"""The databases against a model: any writes, in any order, in batches of any size, lead to the same jobs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.store.records import (
    CANCELLED,
    DEAD,
    DELAYED,
    DONE,
    FAILED,
    WAITING,
    JobChange,
    JobFilter,
    Retention,
)
from polydomo.store.sqlite import SqliteStore
from tests.store.desk import NOW, Desk, code, job, name
from tests.support.effort import examples

TABLES = ("jobs", "requests", "results", "attempts", "partials", "events", "tallies", "aliases", "holdings")
JOBS = range(1, 4)  # few, so that much happens to each
SERVICES = (b"one", b"two")
NAMES = ("one more", "änother", name(2))

ids = st.sampled_from([name(number) for number in JOBS])
attempts = st.sampled_from([0, 1, 1, 1, 2, 3])
times = st.integers(NOW, NOW + 100)
bodies = st.sampled_from([b"", b"body", b"\0\xff" * 300])
perhaps_body = st.none() | bodies

# Each is the name of a method and its arguments.
Write = tuple[str, tuple[Any, ...]]


def write(method: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Write]:
    return st.tuples(st.just(method), st.tuples(*arguments))


changes = st.builds(
    JobChange,
    max_attempts=st.none() | st.integers(1, 5),
    options=perhaps_body,
    release_key=st.booleans(),
)
new_jobs = st.fixed_dictionaries(
    {
        "number": st.sampled_from(JOBS),
        "service": st.sampled_from(SERVICES),
        "state": st.sampled_from([WAITING, DELAYED]),
        "key": st.sampled_from([None, "key", "kéy"]),
        "body": bodies,
        "client": st.sampled_from([b"", b"client"]),
        "principal": st.sampled_from(["anonymous", "färber"]),
        "submitted": times,
    }
)
adds = write("add", new_jobs)
ends = write("finish", ids, attempts, st.sampled_from([DONE, FAILED, CANCELLED, DEAD]), perhaps_body, times)
writes = st.one_of(
    adds,
    adds,
    adds,
    write("attempt", ids, attempts, bodies, times, bodies),
    write("attempt", ids, attempts, bodies, times),
    write("partial", ids, attempts, bodies, times),
    write("event", ids, st.sampled_from(["kind", "ärt"]), bodies, times, bodies),
    ends,
    ends,
    write("revive", ids, times),
    write("revive", ids, times),
    write("update", ids, changes),
    write("update", ids, st.just(JobChange(release_key=True))),
    write("forget", ids),
    write("discard", st.lists(ids, max_size=2)),
    write("alias", ids, st.sampled_from(NAMES)),
)


@st.composite
def scenes(draw: st.DrawFn) -> list[Write]:
    """Some writes that make sense together, for chance alone would mostly hear that there is no such job."""
    number = draw(st.sampled_from(JOBS))
    job_id = name(number)
    other = number % len(JOBS) + 1
    add = ("add", ({**draw(new_jobs), "number": number},))
    attempt = ("attempt", (job_id, draw(attempts), b"worker", NOW))
    end = ("finish", (job_id, *draw(ends)[1][1:]))
    scene = {
        "life": [add, attempt, end],
        "again": [("revive", (job_id, NOW)), attempt, end],
        "replace": [("forget", (job_id,)), add],
        "release": [
            ("add", ({**draw(new_jobs), "number": number, "key": "key"},)),
            ("update", (job_id, JobChange(release_key=True))),
            ("add", ({**draw(new_jobs), "number": other, "key": "key"},)),
        ],
        "twice": [add, ("update", (job_id, draw(changes))), ("update", (job_id, draw(changes)))],
        "change": [("update", (job_id, draw(changes))), ("update", (job_id, draw(changes)))],
        "names": [add, ("alias", (job_id, draw(st.sampled_from(NAMES)))), end],
        "parts": [attempt, ("partial", (job_id, attempt[1][1], b"part", NOW)), draw(writes)],
    }
    return scene[draw(st.sampled_from(sorted(scene)))]


moments = scenes() | st.lists(writes, min_size=1, max_size=3)
batches = st.lists(
    st.tuples(st.lists(moments, min_size=1, max_size=3), st.none() | st.none() | times),
    min_size=3,
    max_size=12,
)


def run(desk: Desk, batch: list[list[Write]]) -> list[str]:
    """What became of each write."""
    calls = []
    for method, arguments in chain.from_iterable(batch):
        if method == "add":
            calls.append(partial(desk.store.add, job(**arguments[0])))
        else:
            calls.append(partial(getattr(desk.store, method), *arguments))
    return desk.burst(*calls)


def picture(desk: Desk) -> list[object]:
    """All that can be asked."""
    store, ask = desk.store, desk.ask
    seen: list[object] = [
        ask(store.counts()),
        ask(store.holdings()),
        ask(store.unfinished()),
        sorted(ask(store.aliases())),
    ]
    for known in NAMES:
        seen += [ask(store.get(known)), ask(store.result(known))]
    for number in JOBS:
        job_id = name(number)
        seen += [ask(store.get(job_id)), ask(store.result(job_id)), ask(store.attempts(job_id))]
        seen += [ask(store.partials(job_id)), ask(store.events(job_id))]
    seen += [ask(store.by_key(service, key)) for service in SERVICES for key in ("key", "kéy")]
    seen += [
        ask(store.find(filter))
        for filter in (
            JobFilter(),
            JobFilter(service=b"one", oldest_first=True, limit=2),
            JobFilter(state=WAITING),
            JobFilter(state=DEAD),
            JobFilter(client=b"client", since=NOW + 20, before=NOW + 60),
            JobFilter(key="key"),
        )
    ]
    return seen


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_database_does_what_the_model_does(kind: str, new_url: Callable[[str], str]) -> None:
    model, database = Desk("model:"), Desk(new_url(kind))
    if isinstance(database.store, SqliteStore):
        database.store._writing.execute("PRAGMA synchronous = OFF")  # surviving is not the question here

    @given(batches)
    @examples(120 if kind == "sqlite" else 20)
    def compare(steps: list[tuple[list[list[Write]], int | None]]) -> None:
        for number in JOBS:  # what the example before left behind
            model.store.forget(name(number))
            database.store.forget(name(number))
        for batch, sweep_at in steps:
            assert run(database, batch) == run(model, batch)
            if sweep_at is not None:
                retention = Retention(20, {b"two": 50})
                assert database.ask(database.store.sweep(sweep_at, retention)) == model.ask(
                    model.store.sweep(sweep_at, retention)
                )
            assert picture(database) == picture(model)

    try:
        compare()
        model_before = picture(model)
        database.reopen()
        assert picture(database) == model_before
        for number in JOBS:
            database.store.forget(name(number))
        assert code(database.do(database.store.forget, name(0))) == "store-unknown-job"
        for table in TABLES:  # what cannot be asked for must not be there either
            assert database.ask(database.store._read_all(int, f"SELECT count(*) FROM {table}")) == [0]
    finally:
        model.close()
        database.close()
