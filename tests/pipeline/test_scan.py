"""Tests of silver files read by Arrow in Spark tasks: the same table as from Spark's own rows."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from polydomo.pipeline.edit import TableFile
from polydomo.pipeline.scan import FileStore, _dealt, scan
from polydomo.pipeline.tables.service_minutes import SERVICE_MINUTE
from polydomo.pipeline.tables.silver import JOBS
from tests.pipeline.tables.silver_rows import silver
from tests.pipeline.tables.test_gold import anything, told
from tests.support.gold import delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def pieces(folder: Path) -> list[TableFile]:
    found = sorted(folder.glob("*.parquet"))
    return [TableFile(f"file://{path}", 0, path.stat().st_size, None, cast(Any, None)) for path in found]


def from_files(spark: SparkSession, folder: Path) -> DataFrame:
    columnar = SERVICE_MINUTE.columnar["jobs"]
    return SERVICE_MINUTE.merge(scan(spark, FileStore({}), JOBS, pieces(folder), columnar))


@pytest.mark.spark
def test_from_files_as_from_rows(spark: SparkSession, tmp_path: Path) -> None:
    jobs, _ = anything(random.Random(7), 2000)
    made = silver(spark, jobs)
    made["jobs"].repartition(5).write.parquet(str(tmp_path / "jobs"))
    assert told(SERVICE_MINUTE, from_files(spark, tmp_path / "jobs")) == told(
        SERVICE_MINUTE, delta(SERVICE_MINUTE, made, ())
    )


@pytest.mark.spark
def test_a_file_of_an_older_version_lacks_a_column(spark: SparkSession, tmp_path: Path) -> None:
    """A second file has smaller integer types than today's: both are read as Spark reads them."""
    jobs, _ = anything(random.Random(8), 300)
    for row in jobs:
        row["repeat"] = None
    made = silver(spark, jobs)
    made["jobs"].coalesce(1).write.parquet(str(tmp_path / "new"))
    (new,) = (tmp_path / "new").glob("*.parquet")
    rows = pq.read_table(new).drop_columns(["repeat"])
    small = rows.schema.get_field_index("bytes_in")
    (tmp_path / "old").mkdir()
    pq.write_table(
        rows.set_column(small, "bytes_in", rows["bytes_in"].cast(pa.int32())),
        tmp_path / "old" / "a.parquet",
    )
    assert told(SERVICE_MINUTE, from_files(spark, tmp_path / "old")) == told(
        SERVICE_MINUTE, delta(SERVICE_MINUTE, made, ())
    )


def test_files_are_dealt_by_size() -> None:
    given = [SimpleNamespace(path=str(size), size=size) for size in (1, 2, 3, 4, 90, 100)]
    assert _dealt(cast(list[TableFile], given), 3) == [["100"], ["90"], ["4", "3", "2", "1"]]
    assert _dealt(cast(list[TableFile], given[:2]), 8) == [["2"], ["1"]]
    assert _dealt([], 8) == []


def test_tasks_are_not_told_how_to_get_at_the_catalog() -> None:
    said = {"uri": "postgresql://me:secret@db/iceberg", "s3.region": "eu", "py-io-impl": "x", "token": "t"}
    assert FileStore.of(said) == FileStore({"s3.region": "eu", "py-io-impl": "x"})


def test_elsewhere_files_are_opened_as_pyiceberg_does(tmp_path: Path) -> None:
    """Remote files are opened with the file IO that pyiceberg is configured for."""
    (tmp_path / "a").write_bytes(b"here")
    store = FileStore.of({"py-io-impl": "tests.pipeline.test_scan.Somewhere", "client.root": str(tmp_path)})
    with store.open("elsewhere://bucket/a") as source:
        assert source.read() == b"here"
    with store.open(f"file://{tmp_path}/a") as source:
        assert source.read() == b"here"


class Somewhere(PyArrowFileIO):
    """A test object store: one folder."""

    def new_input(self, location: str) -> Any:
        return super().new_input(f"file://{self.properties['client.root']}/{location.rpartition('/')[2]}")
