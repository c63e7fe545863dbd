"""The shelf: small things kept by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.store import kv_batch
from polydomo.store.database import migrate
from polydomo.store.errors import StoreBusy, StoreError, StoreInvalid
from polydomo.store.postgres_database import PostgresDatabase
from polydomo.store.queries import VERSION
from polydomo.store.records import DONE, KvItem
from polydomo.store.schema import MIGRATIONS
from polydomo.store.sqlite import SqliteStore
from tests.store.desk import NOW, Desk, code, job, name
from tests.store.test_opening import DATABASES, FIRST_VERSION_JOB, Urls, database
from tests.support.effort import examples


def names(desk: Desk, space: str = "memo") -> list[bytes]:
    return [item.name for item in desk.ask(desk.store.items(space))]


def test_what_is_put_is_found(desk: Desk) -> None:
    assert desk.do(desk.store.put, "memo", b"\0\xff", b"value", NOW, NOW + 5) is None
    assert desk.do(desk.store.put, "", b"", b"", NOW) is None
    assert desk.ask(desk.store.item("memo", b"\0\xff")) == KvItem("memo", b"\0\xff", b"value", NOW, NOW + 5)
    assert desk.ask(desk.store.item("", b"")) == KvItem("", b"", b"", NOW, None)
    assert desk.ask(desk.store.item("memo", b"other")) is None
    assert desk.ask(desk.store.item("other", b"\0\xff")) is None
    assert desk.ask(desk.store.space_totals("memo")) == (1, 5)
    assert desk.ask(desk.store.space_totals("other")) == (0, 0)


def test_any_text_is_a_space(desk: Desk) -> None:
    """Services' names are bytes, read as latin-1."""
    for space in ("memo:" + bytes(range(256)).decode("latin-1"), "ä", "\ud800"):
        assert desk.do(desk.store.put, space, b"name", b"value", NOW) is None
        assert desk.ask(desk.store.item(space, b"name")) == KvItem(space, b"name", b"value", NOW, None)
        assert desk.ask(desk.store.space_totals(space)) == (1, 5)


def test_the_last_of_several_wins(desk: Desk) -> None:
    store = desk.store
    puts = [partial(store.put, "memo", b"name", bytes(size), NOW + size) for size in (3, 9, 2)]
    assert desk.burst(*puts) == ["ok"] * 3
    assert desk.ask(store.item("memo", b"name")) == KvItem("memo", b"name", bytes(2), NOW + 2, None)
    assert desk.ask(store.space_totals("memo")) == (1, 2)
    assert desk.do(store.put, "memo", b"name", bytes(7), NOW, NOW) is None  # and in a batch of its own
    assert desk.ask(store.item("memo", b"name")) == KvItem("memo", b"name", bytes(7), NOW, NOW)
    assert desk.ask(store.space_totals("memo")) == (1, 7)


def test_dropping(desk: Desk) -> None:
    store = desk.store
    for number in range(3):
        store.put("memo", b"%d" % number, b"value", NOW)
    store.put("other", b"0", b"value", NOW)
    assert desk.do(store.drop, "memo", b"1") is None
    assert desk.do(store.drop, "memo", b"1") is None  # nothing to drop is fine
    assert names(desk) == [b"0", b"2"]
    assert desk.do(store.drop, "memo", None) is None
    assert desk.do(store.drop, "memo", None) is None
    assert names(desk) == []
    assert desk.ask(store.space_totals("memo")) == (0, 0)
    assert desk.ask(store.space_totals("other")) == (1, 5)


def test_the_order_within_a_batch_counts(desk: Desk) -> None:
    store = desk.store
    assert (
        desk.burst(
            partial(store.put, "memo", b"a", b"old", NOW),
            partial(store.put, "memo", b"b", b"old", NOW),
            partial(store.drop, "memo", None),
            partial(store.put, "memo", b"b", b"new", NOW + 1),
            partial(store.put, "memo", b"c", b"new", NOW + 2),
            partial(store.trim, "memo", NOW, 3),
            partial(store.put, "memo", b"d", b"newer", NOW + 3),
            partial(store.put, "memo", b"e", b"newer", NOW + 3),
            partial(store.drop, "memo", b"e"),
            partial(store.put, "other", b"f", b"", NOW),
        )
        == ["ok"] * 10
    )
    assert names(desk) == [b"c", b"d"]
    assert desk.ask(store.space_totals("memo")) == (2, 8)
    assert desk.ask(store.space_totals("other")) == (1, 0)


def test_paging(desk: Desk) -> None:
    for number in (3, 1, 2, 5, 4):
        desk.store.put("memo", b"%d" % number, b"value", NOW + number, NOW)
    desk.store.put("memo", b"", b"value", NOW)
    desk.store.put("other", b"0", b"value", NOW)
    assert desk.do(desk.store.trim, "other", NOW, None) is None
    page = desk.ask(desk.store.items("memo", limit=3))
    assert page == [
        KvItem("memo", b"", b"", NOW, None),
        KvItem("memo", b"1", b"", NOW + 1, NOW),
        KvItem("memo", b"2", b"", NOW + 2, NOW),
    ]
    assert [item.name for item in desk.ask(desk.store.items("memo", b"2", 2))] == [b"3", b"4"]
    assert [item.name for item in desk.ask(desk.store.items("memo", b"4", 2))] == [b"5"]
    assert desk.ask(desk.store.items("memo", b"5")) == []


def test_trimming_removes_what_has_expired(desk: Desk) -> None:
    for number in range(4):
        desk.store.put("memo", b"%d" % number, b"value", NOW, NOW + number)
    desk.store.put("memo", b"for ever", b"value", NOW)
    desk.store.put("other", b"0", b"value", NOW, NOW)
    assert desk.do(desk.store.trim, "memo", NOW + 1, None) is None
    assert names(desk) == [b"2", b"3", b"for ever"]
    assert desk.ask(desk.store.space_totals("memo")) == (3, 15)
    assert names(desk, "other") == [b"0"]


def test_trimming_to_a_size_removes_the_oldest(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_batch, "PAGE", 2)
    store = desk.store
    for number, age in enumerate((5, 3, 4, 1, 2, 1)):
        store.put("memo", b"%d" % number, bytes(10), NOW - age)
    store.put("memo", b"over", bytes(50), NOW, NOW)
    assert desk.do(store.trim, "memo", NOW, 60) is None  # once the expired one has gone, it is enough
    assert len(names(desk)) == 6
    assert desk.do(store.trim, "memo", NOW, 35) is None
    assert names(desk) == [b"3", b"4", b"5"]
    assert desk.do(store.trim, "memo", NOW, 15) is None  # of two of the same age the name decides
    assert names(desk) == [b"5"]
    assert desk.ask(store.space_totals("memo")) == (1, 10)
    assert desk.do(store.trim, "memo", NOW, -1) is None
    assert desk.do(store.trim, "memo", NOW, 0) is None
    assert desk.ask(store.space_totals("memo")) == (0, 0)


def test_an_item_that_was_put_again_counts_as_new(desk: Desk) -> None:
    for number in range(200):  # so often that what is known of its former times is thrown away
        desk.store.put("memo", b"again", bytes(10), NOW + number, NOW + number)
    desk.store.put("memo", b"once", bytes(10), NOW + 150)
    assert desk.do(desk.store.trim, "memo", NOW + 190, 10) is None
    assert names(desk) == [b"again"]


def test_what_is_too_long_is_refused(desk: Desk) -> None:
    refused = desk.do(desk.store.put, "memo", bytes(1025), b"", NOW)
    assert isinstance(refused, StoreInvalid)
    assert "1025 bytes" in str(refused)
    assert isinstance(desk.do(desk.store.put, "m" * 513, b"", b"", NOW), StoreInvalid)
    desk.store.put("memo", bytes(1025), b"", NOW)  # nobody needs to hear it
    assert desk.do(desk.store.put, "ä" * 512, b"\xff" * 1024, b"", NOW) is None
    assert names(desk) == []


def test_values_count_in_the_backlog(new_url: Urls) -> None:
    desk = Desk(new_url("sqlite"), backlog_limit=100_000)
    done: list[StoreError | None] = []
    gate = desk.hold()
    desk.store.put("memo", b"1", bytes(60_000), NOW, None, done.append)
    assert desk.store.backlog > 60_000
    assert isinstance(desk.do(desk.store.put, "memo", b"2", bytes(60_000), NOW), StoreBusy)
    gate.opened.set()
    desk.until(lambda: bool(done))
    assert desk.store.backlog == 0
    assert desk.store.trouble is None
    assert names(desk) == [b"1"]
    desk.close()


def test_items_and_jobs_share_transactions(lasting: Desk) -> None:
    store = lasting.store
    finish = partial(store.finish, name(1), 0, DONE, b"result", NOW)
    put = partial(store.put, "memo", b"name", b"result", NOW)
    assert (
        lasting.burst(partial(store.add, job(1)), finish, put, partial(store.trim, "memo", NOW, 99))
        == ["ok"] * 4
    )
    assert store.commits == 2  # the gate's, and this one
    lasting.reopen()
    assert lasting.ask(lasting.store.item("memo", b"name")) == KvItem("memo", b"name", b"result", NOW, None)
    assert lasting.ask(lasting.store.space_totals("memo")) == (1, 6)


def test_a_large_value(lasting: Desk) -> None:
    value = bytes(range(256)) * (64 * 4096)
    assert lasting.do(lasting.store.put, "cid", b"name", value, NOW) is None
    found = lasting.ask(lasting.store.item("cid", b"name"))
    assert found is not None
    assert found.value == value
    assert lasting.ask(lasting.store.items("cid")) == [KvItem("cid", b"name", b"", NOW, None)]
    assert lasting.do(lasting.store.put, "cid", b"name", b"", NOW) is None


@DATABASES
def test_a_store_of_the_version_before_gets_a_shelf(kind: str, new_url: Urls) -> None:
    url = new_url(kind)
    connection = database(url)
    migrate(connection, MIGRATIONS[:3])
    parameters = {"seq": 1, "id": name(1), "service": b"echo", "worker": b"w", "client": b"c"}
    connection.execute(FIRST_VERSION_JOB, **parameters)
    connection.execute(
        "INSERT INTO requests (seq, body, envelope, options) VALUES (1, :body, :body, :body)",
        body=b"body",
    )
    connection.close()

    desk = Desk(url)
    (old,) = desk.ask(desk.store.unfinished())
    assert (old.id, old.body) == (name(1), b"body")
    assert desk.do(desk.store.put, "memo", b"name", b"value", NOW) is None
    desk.reopen()
    assert names(desk) == [b"name"]
    desk.close()
    connection = database(url)
    assert connection.fetch(VERSION) == [(len(MIGRATIONS),)]
    connection.close()


def test_the_server_finds_items_by_its_indexes(new_url: Urls) -> None:
    """Trimming must stay cheap when the shelf is long."""
    url = new_url("postgres")
    Desk(url).close()
    connection = PostgresDatabase(url)
    for query, index in (("at", "shelf_at"), ("until", "shelf_until"), ("name", "shelf_pkey")):
        text = (
            f"EXPLAIN SELECT {query} FROM shelf WHERE space = :space AND {query} IS NOT NULL ORDER BY {query}"
        )
        plan = connection.fetch(f"{text} LIMIT 5", space=b"memo")
        assert any(index in row[0] for row in plan)
    connection.close()


spaces = st.sampled_from(["a", "ä"])
labels = st.sampled_from([b"", b"1", b"2", b"\xff"])
times = st.integers(NOW, NOW + 20)
values = st.sampled_from([b"", b"value", bytes(30)])
Write = tuple[str, tuple[Any, ...]]


def write(method: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Write]:
    return st.tuples(st.just(method), st.tuples(*arguments))


puts = write("put", spaces, labels, values, times, st.none() | times)
drops = write("drop", spaces, st.none() | labels)
trims = write("trim", spaces, times, st.none() | st.integers(0, 60))
writes = st.one_of(puts, puts, puts, drops, trims)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_database_does_what_the_model_does(kind: str, new_url: Callable[[str], str]) -> None:
    model, other = Desk("model:"), Desk(new_url(kind))
    if isinstance(other.store, SqliteStore):
        other.store._writing.execute("PRAGMA synchronous = OFF")  # surviving is not the question here

    def picture(desk: Desk) -> list[object]:
        seen: list[object] = []
        for space in ("a", "ä"):
            seen += [desk.ask(desk.store.space_totals(space)), desk.ask(desk.store.items(space))]
            seen += [desk.ask(desk.store.item(space, label)) for label in (b"", b"1", b"2", b"\xff")]
        return seen

    @given(st.lists(st.lists(writes, min_size=1, max_size=12), min_size=1, max_size=4))
    @examples(100 if kind == "sqlite" else 20)
    def compare(batches: list[list[Write]]) -> None:
        for desk in (model, other):
            desk.store.drop("a", None)
            desk.store.drop("ä", None)
        for batch in batches:
            for desk in (model, other):
                desk.burst(*(partial(getattr(desk.store, method), *args) for method, args in batch))
            assert picture(other) == picture(model)

    try:
        compare()
        other.store.drop("a", None)
        assert code(other.do(other.store.drop, "ä", None)) == "ok"
        for table in ("shelf", "spaces"):  # what cannot be asked for must not be there either
            assert other.ask(other.store._read_all(int, f"SELECT count(*) FROM {table}")) == [0]
    finally:
        model.close()
        other.close()


def test_which_spaces_there_are(desk: Desk) -> None:
    store = desk.store
    for space in ("memo:b", "memo:a", "cid", "memo:\xff"):
        store.put(space, b"n", b"v", NOW)
    desk.do(store.drop, "memo:b", b"n")
    assert desk.ask(store.spaces("memo:")) == ["memo:a", "memo:\xff"]
    assert desk.ask(store.spaces()) == ["cid", "memo:a", "memo:\xff"]
