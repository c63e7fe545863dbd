"""Tests of the streaming source and the sink with a real broker: no loss, no duplicates, stop and resume."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from polydomo.errors import ConfigError
from polydomo.pipeline.source import register
from polydomo.pipeline.source.options import reading
from polydomo.pipeline.source.streaming import StreamReader
from polydomo.sdk.sync import SyncClient
from tests.pipeline.source.conftest import DONE, FAILED

ALL = DONE + FAILED + 2


def read(reader: StreamReader, start: dict[str, int], end: dict[str, int]) -> list[dict[str, object]]:
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


def stored(live, **options):
    """Return the jobs in the broker's store."""
    from tests.pipeline.source.test_reading import Reader, rows_of

    return rows_of(Reader(reading({"url": live.url, **options})))


def test_offsets_are_ends_of_jobs_and_admit_as_many_rows_as_allowed(live):
    reader = StreamReader(reading({"url": live.url, "maxRowsPerBatch": "10", "table": "results"}))
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    start = reader.initialOffset()
    seen: list[dict[str, object]] = []
    sizes = []
    while (end := reader.latestOffset(start, limit)) != start:
        rows = read(reader, start, end)
        assert read(reader, start, end) == rows  # a repeated batch is identical
        sizes.append(len(rows))
        seen += rows
        start = end
    assert sizes == [10, 10, 10, ALL - 30]
    assert len({row["id"] for row in seen}) == ALL
    assert [row["ending"] for row in seen] == sorted(row["ending"] for row in seen)
    assert sum(int(row["result"]) for row in seen if row["service"] == "double") == DONE * (DONE - 1)
    assert reader.latestOffset({"ending": 0}, ReadAllAvailable()) == start == reader.reportLatestOffset()
    assert StreamReader(reading({"url": live.url, "startingOffset": "latest"})).initialOffset() == start


def test_a_stream_can_be_narrowed(live):
    for options, expected in (
        ({"service": "fails"}, FAILED),
        ({"state": "dead"}, 1),
        ({"table": "dead"}, 1),
        ({"state": "failed,dead"}, FAILED + 1),
    ):
        reader = StreamReader(reading({"url": live.url, "page": "7", **options}))
        end = reader.latestOffset({"ending": 0}, ReadAllAvailable())
        assert len(read(reader, {"ending": 0}, end)) == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "events"}, "events cannot be read as a stream"),
        ({"client": "c"}, "by service and state only"),
        ({"since": "2026-01-01"}, "by service and state only"),
    ],
)
def test_what_a_stream_cannot_do(options, said):
    with pytest.raises(ConfigError, match=said):
        StreamReader(reading(options))


@pytest.mark.spark
def test_a_query_stops_and_resumes_over_a_broker_that_was_killed(spark, live, tmp_path):
    register(spark)
    seen: list[list[str]] = []

    def keep(rows, batch):
        seen.append([row["id"] for row in rows.select("id").collect()])

    def run():
        source = spark.readStream.format("polydomo").option("url", live.url).option("maxRowsPerBatch", 20)
        query = source.load().writeStream.foreachBatch(keep).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(120)

    run()
    assert sorted(map(len, seen)) == [ALL - 20, 20]
    live.broker.kill()
    live.broker.start_again()
    with SyncClient(live.nfp) as client:
        assert [client.call("double", number, timeout=30) for number in range(3)] == [0, 2, 4]
    run()
    assert len(seen[-1]) == 3
    ids = [one for batch in seen for one in batch]
    assert len(ids) == len(set(ids)) == ALL + 3
    assert set(ids) == {row["id"] for row in stored(live)}


@pytest.mark.spark
def test_the_sink_submits_each_row_once_however_often_it_is_repeated(spark, live, tmp_path):
    register(spark)
    rows = spark.range(40).selectExpr("named_struct('n', id % 20) AS body", "'sunk' AS service")

    def write(run):
        rows.write.format("polydomo").mode("append").options(url=live.url, run=run).save()

    write("one")
    write("one")
    assert len(stored(live, service="sunk")) == 40  # identical rows are separate jobs
    write("two")
    assert len(stored(live, service="sunk")) == 80

    keyed = spark.range(2).selectExpr("'{}' AS body", "concat('k', id) AS key", "cast(id AS int) AS priority")
    keyed.write.format("polydomo").mode("append").options(url=live.nfp, service="keyed").save()
    found = [(row["key"], row["priority"], row["state"]) for row in stored(live, service="keyed")]
    assert sorted(found) == [  # two tasks write at the same time
        ("k0", 0, "waiting"),
        ("k1", 1, "waiting"),
    ]

    place = tmp_path / "in"
    spark.range(10).selectExpr("cast(id AS string) AS body").write.parquet(str(place))

    def stream():
        source = spark.readStream.schema("body string").parquet(str(place))
        query = source.writeStream.format("polydomo").options(url=live.url, service="streamed")
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        query.start().awaitTermination(120)

    stream()
    (tmp_path / "checkpoint" / "commits" / "0").unlink()  # as if killed before the commit was recorded
    (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink()
    stream()
    assert len(stored(live, service="streamed")) == 10


@pytest.mark.spark
def test_what_the_sink_refuses(spark, live):
    register(spark)
    for rows, options, said in (
        ("id AS body", {"service": "s"}, "column 'body' is bigint"),
        ("'x' AS text", {"service": "s"}, "column 'text' cannot be written .columns: service, body, key"),
        ("'x' AS body", {}, "no service to send the rows to"),
        (
            "'x' AS body",
            {"service": "s", "url": "mdp://127.0.0.1:1", "patience": "0.3"},
            "cannot reach a broker at nfp:",
        ),
        ("'x' AS body, 'k' AS key", {"service": "s"}, "must be a JSON object"),
    ):
        writer = spark.range(1).selectExpr(*rows.split(", ")).write.format("polydomo").mode("append")
        with pytest.raises(PySparkException, match=said):
            writer.options(**{"url": live.url, **options}).save()
