"""Tests of segment checks: valid segments, and every kind of invalid one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polydomo.pipeline.tables.bronze import Segment, Verdict, look
from tests.support.ledger import job, write_segment


def segment(path: Path, table: str = "jobs") -> Segment:
    size = path.stat().st_size if path.exists() else 0
    return Segment(table, f"file://{path}", size, 0)


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table], **options: Any) -> None:
    pq.write_table(change(pq.read_table(path)), path, **options)


def retyped(column: str, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        index = table.schema.get_field_index(column)
        values = pa.nulls(table.num_rows, kind) if pa.types.is_nested(kind) else table[column].cast(kind)
        return table.set_column(index, pa.field(column, kind), values)

    return change


def nulled(column: str) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        index = table.schema.get_field_index(column)
        values = pa.array([None, *table[column].to_pylist()[1:]], table.schema.field(column).type)
        return table.set_column(index, pa.field(column, values.type, True), values)

    return change


def renamed(column: str, to: str) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.rename_columns([to if name == column else name for name in table.column_names])


def damage(path: Path, where: float) -> None:
    """Overwrite some bytes in the middle of the data, and nothing else."""
    data = bytearray(path.read_bytes())
    at = int(len(data) * where)
    for offset in range(at, at + 64):
        data[offset] ^= 0xA5
    path.write_bytes(bytes(data))


def test_what_a_broker_writes_is_taken(tmp_path: Path) -> None:
    for table in ("jobs", "attempts", "events"):
        path = write_segment(tmp_path, table, [{}, {}, {}])
        for deep in (False, True):
            found = look(segment(path, table), deep=deep)
            assert (found.reason, found.rows, found.sure) == ("", 3, True)
    found = look(segment(write_segment(tmp_path, "jobs", [{}], name="one.parquet")))
    assert found.low == found.high == int(job()["finished"].timestamp() * 1e6)


def test_older_and_newer_brokers_columns_do_no_harm(tmp_path: Path) -> None:
    newer = write_segment(
        tmp_path, "jobs", [{}], extra={"colour": pa.string(), "nested": pa.list_(pa.int8())}
    )
    older = write_segment(tmp_path, "jobs", [{}], without=["principal", "waited_us", "deadline"])
    assert [look(segment(path), deep=True).reason for path in (newer, older)] == ["", ""]


def test_narrower_numbers_and_coarser_times_are_read(tmp_path: Path) -> None:
    path = write_segment(tmp_path, "jobs", [{}])
    rewrite(path, lambda t: retyped("bytes_in", pa.int32())(retyped("attempts", pa.int16())(t)))
    rewrite(path, retyped("finished", pa.timestamp("ms", tz="UTC")))
    assert look(segment(path), deep=True).reason == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.drop_columns(["outcome"]), "outcome is missing"),
        (retyped("bytes_in", pa.string()), "bytes_in is not int64"),
        (retyped("attempts", pa.int64()), "attempts is not int32"),
        (retyped("attempts", pa.uint32()), "attempts is not int32"),
        (retyped("finished", pa.timestamp("ns", tz="UTC")), "finished is not timestamp"),
        (retyped("finished", pa.timestamp("us")), "finished is not timestamp"),
        (retyped("error", pa.list_(pa.string())), "error is not string, but nested"),
        (retyped("service", pa.binary()), "service is not string"),
        (renamed("service", "Service"), "service is spelled differently"),
        (lambda t: t.append_column("SERVICE", t["service"]), "service occurs twice"),
        (nulled("job_id"), "job_id is null"),
    ],
)
def test_columns_that_do_not_fit(tmp_path: Path, change: Callable[..., Any], reason: str) -> None:
    path = write_segment(tmp_path, "jobs", [{}, {}])
    rewrite(path, change)
    assert reason in look(segment(path)).reason


def test_nulls_are_found_without_statistics(tmp_path: Path) -> None:
    path = write_segment(tmp_path, "jobs", [{}, {}])
    rewrite(path, nulled("service"), write_statistics=False)
    shallow = look(segment(path))
    assert (shallow.reason, shallow.sure) == ("", False)
    assert "service is null" in look(segment(path), deep=True).reason


def test_files_that_are_no_segments(tmp_path: Path) -> None:
    path = write_segment(tmp_path, "jobs", [{} for _ in range(500)])
    whole = path.read_bytes()

    def said(content: bytes | None) -> str:
        path.unlink() if content is None else path.write_bytes(content)
        return look(segment(path)).reason

    assert said(b"") == "the file is empty"
    assert "cannot be read" in said(whole[: len(whole) // 2])
    assert "cannot be read" in said(b"not Parquet at all")
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    assert "cannot be read" in said(whole[:footer] + bytes(100) + whole[footer + 100 :])
    assert said(None) == "the file was removed before it could be read"
    other = write_segment(tmp_path, "attempts", [{}])
    assert look(segment(other, "jobs")).reason == "the file is a segment of attempts, not of jobs"


@pytest.mark.parametrize("checksums", [False, True])
def test_a_damaged_page_is_found_by_reading_it(tmp_path: Path, checksums: bool) -> None:
    rows = [{"job_id": f"{number:032x}", "key": f"{number * 7919:064x}"} for number in range(5000)]
    path = write_segment(tmp_path, "jobs", rows)
    codec = "none" if checksums else "zstd"  # without a codec that detects damage, only a checksum does
    pq.write_table(pq.read_table(path), path, compression=codec, write_page_checksum=checksums)
    damage(path, 0.3)
    assert look(segment(path)).reason == ""
    assert "cannot be read" in look(segment(path), deep=True).reason


def test_times_that_no_calendar_has(tmp_path: Path) -> None:
    path = write_segment(tmp_path, "jobs", [{}])
    far = pa.array([2**62], pa.timestamp("us", tz="UTC"))
    rewrite(path, lambda t: t.set_column(t.schema.get_field_index("finished"), "finished", far))
    assert "cannot be read" in look(segment(path)).reason


def test_a_segment_without_rows_is_a_segment(tmp_path: Path) -> None:
    path = write_segment(tmp_path, "jobs", [])
    assert look(segment(path)) == Verdict(segment(path), 0)
