"""Tests of queries as the SQL service runs them: results, types in JSON, limits."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from polydomo.errors import PolydomoError
from polydomo.pipeline import sql
from polydomo.pipeline.sql import BadQuery, Bounds, Engine, Request, read_request
from tests.support.broker import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENDLESS = "SELECT sum(id % 7) FROM range(0, 100000000000000, 1, 4)"


class Two:
    """A lake of two small tables."""

    specs: Mapping[str, object] = {"jobs": None, "empty": None}

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        rows = [(f"s{number % 3}", number) for number in range(100 if name == "jobs" else 0)]
        return spark.createDataFrame(rows, "service string, n int")


@pytest.fixture
def engine(spark: SparkSession) -> Engine:
    return Engine(spark, Two(), Bounds(rows=10, most_rows=50, bytes=20_000, piece=100))


def ask(engine: Engine, text: str, **more: Any) -> Any:
    request = Request(text, **more)
    *parts, last = sql.pieces(engine.run(request, "test"), request, engine.bounds)
    return parts, last


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        (b"SELECT 1", Request("SELECT 1")),
        (b'"SELECT 1"', Request("SELECT 1")),
        (b' {"sql": "SELECT 1", "format": "arrow", "limit": 5}', Request("SELECT 1", "arrow", 5)),
        (b'{"task": "sql", "args": ["SELECT 1"], "kwargs": {"limit": 5}}', Request("SELECT 1", limit=5)),
    ],
)
def test_the_ways_to_ask(body: bytes, request_: Request) -> None:
    assert read_request(body) == request_


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\xff\xfe", "UTF-8"),
        (b"{", "cannot be read"),
        (b'{"format": "json"}', "sql"),
        (b'{"sql": "SELECT 1", "format": "xml"}', "xml"),
        (b'{"sql": "SELECT 1", "limt": 5}', "limt"),
        (b'{"sql": "SELECT 1", "limit": -1}', "limit"),
    ],
)
def test_a_request_that_cannot_be_read(body: bytes, why: str) -> None:
    with pytest.raises(BadQuery, match=why):
        read_request(body)


@pytest.mark.spark
def test_rows_as_json(engine: Engine) -> None:
    _, body = ask(engine, "SELECT service, sum(n) AS n, count(*) AS n FROM jobs GROUP BY ALL ORDER BY 1")
    answer = json.loads(body)
    assert answer.pop("seconds") > 0
    assert answer == {
        "columns": [
            {"name": "service", "type": "string"},
            {"name": "n", "type": "bigint"},
            {"name": "n", "type": "bigint"},
        ],
        "rows": [["s0", 1683, 34], ["s1", 1617, 33], ["s2", 1650, 33]],
        "count": 3,
        "truncated": False,
    }
    _, body = ask(engine, "SELECT * FROM empty")
    assert json.loads(body)["rows"] == []


@pytest.mark.spark
def test_every_type_has_one_form_in_json(engine: Engine) -> None:
    values = {
        "TIMESTAMP '2026-03-29 02:30:00.5 UTC'": "2026-03-29T02:30:00.500000Z",
        "TIMESTAMP_NTZ '2026-03-29 02:30:00'": "2026-03-29T02:30:00",
        "DATE '2026-03-29'": "2026-03-29",
        "CAST('12.340' AS decimal(10, 3))": "12.340",
        "X'00FF'": "AP8=",
        "DOUBLE('NaN')": "NaN",
        "DOUBLE('-Infinity')": "-Infinity",
        "1.5D": 1.5,
        "9007199254740993L": 9007199254740993,
        "INTERVAL '90' SECOND": 90.0,
        "array(DATE '2026-03-29', null)": ["2026-03-29", None],
        "map('a', 1.5BD)": {"a": "1.5"},
        "map(1, 2)": [[1, 2]],
        "named_struct('a', X'FF', 'b', null)": {"a": "/w==", "b": None},
        "CAST(null AS date)": None,
        "true": True,
    }
    _, body = ask(engine, f"SELECT {', '.join(values)}")
    assert json.loads(body)["rows"] == [list(values.values())]


@pytest.mark.spark
def test_rows_are_bounded_and_it_is_said(engine: Engine) -> None:
    found = [
        (answer["count"], answer["truncated"])
        for limit in (None, 99, 50, 0)
        for answer in [json.loads(ask(engine, "SELECT n FROM jobs ORDER BY n", limit=limit)[1])]
    ]
    assert found == [(10, True), (50, True), (50, True), (0, True)]
    exact = json.loads(ask(engine, "SELECT n FROM jobs WHERE n < 10", limit=10)[1])
    assert (exact["count"], exact["truncated"]) == (10, False)


@pytest.mark.spark
def test_arrow_whole_and_in_pieces(engine: Engine) -> None:
    text = "SELECT service, n FROM jobs ORDER BY n"
    _, whole = ask(engine, text, format="arrow", limit=40)
    table = pa.ipc.open_stream(whole).read_all()
    assert table.column("n").to_pylist() == list(range(40))
    assert table.schema.metadata[b"polydomo.truncated"] == b"true"
    parts, last = ask(engine, text, format="arrow", limit=40, stream=True)
    assert len(parts) > 3
    assert all(
        part[:4] == b"\xff\xff\xff\xff" for part in parts
    )  # to distinguish them from progress, which is JSON
    assert pa.ipc.open_stream(b"".join([*parts, last])).read_all() == table


@pytest.mark.spark
def test_json_in_pieces(engine: Engine) -> None:
    parts, last = ask(engine, "SELECT n FROM jobs ORDER BY n", limit=40, stream=True)
    assert len(parts) > 1
    assert [row for part in parts for row in json.loads(part)["rows"]] == [[n] for n in range(40)]
    assert json.loads(last)["count"] == 40
    assert "rows" not in json.loads(last)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("SELEC 1", "bad-query", "SELEC"),
        ("SELECT nothing FROM jobs", "bad-query", "nothing"),
        ("SELECT 1 / 0", "query-failed", "DIVIDE_BY_ZERO"),
        ("SELECT sum(n / 0) FROM jobs", "query-failed", "DIVIDE_BY_ZERO"),
        ("SELECT CAST(service AS int) FROM jobs", "query-failed", "CAST_INVALID_INPUT"),
        ("DROP TABLE jobs", "not-allowed", "DROP TABLE"),
        (
            "SELECT array_join(collect_list(service), 'a very long separator'), id FROM jobs, range(10) GROUP BY id",
            "too-big",
            "20000",
        ),
        ("SELECT make_ym_interval(1, 2)", "bad-query", "cast"),
    ],
)
def test_what_goes_wrong_is_said(engine: Engine, text: str, code: str, said: str) -> None:
    with pytest.raises(PolydomoError) as error:
        ask(engine, text)
    assert error.value.code == code, error.value
    assert said in str(error.value)
    assert "/" not in error.value.message.replace("n / 0", "").replace("1 / 0", "")  # no path, no traceback
    assert "\n" not in str(error.value)


@pytest.mark.spark
def test_views_of_one_query_are_none_of_the_next(spark: SparkSession, engine: Engine) -> None:
    ask(engine, "SELECT * FROM empty")
    assert not spark.catalog.tableExists("empty")
    with pytest.raises(PolydomoError, match="there is no table"):
        ask(engine, "SELECT * FROM empty, nothing")


@pytest.mark.spark
def test_a_query_is_watched_and_stopped(spark: SparkSession, engine: Engine) -> None:
    failed: list[PolydomoError] = []

    def run() -> None:
        try:
            engine.run(Request(ENDLESS), "endless")
        except PolydomoError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: engine.progress("endless").tasks_running, 30)
    seen = engine.progress("endless")
    assert (seen.stages_done, seen.tasks_done) == (0, 0)
    assert seen.tasks >= 4
    engine.cancel("endless")
    thread.join(30)
    assert [error.code for error in failed] == ["cancelled"]
    wait_for(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds(), 10)


@pytest.mark.spark
def test_java_that_has_ended_is_told_from_a_query_that_failed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the query's own error was: the next call to Java fails."""

    class Gone:
        def __getattr__(self, name: str) -> Any:
            raise ConnectionRefusedError

    def fail(*_: object) -> None:
        monkeypatch.setattr(engine.spark, "_jvm", Gone())
        raise sql.QueryFailed("Spark could not run the query: Py4JError")

    monkeypatch.setattr(engine, "_prepare", fail)
    with pytest.raises(sql.SparkLost):
        engine.run(Request("SELECT 1"), "test")
