"""Bronze: which segments were accepted, which were rejected, and why.

A segment is already a Parquet file, so its rows are not copied: bronze is the list of checked segments, and the row
counts of each batch: rows of accepted segments = rows added to silver + rows that were already there.

A check reads a segment's footer: is it complete, are the columns there, of the right types, without nulls in required
columns. Damaged pages are found when Spark reads the rows; then every page of the batch's segments is read here, to
identify the damaged one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from polydomo.ledger import schema as ledger
from polydomo.pipeline.tables.spec import TableColumn, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEGMENTS: Final = TableSpec(
    "segments",
    "bronze",
    "One row per examined segment of the ledger.",
    ("path", "modified", "at"),
    "day",
    (
        TableColumn("path", "string", "where it was"),
        TableColumn("ledger", "string", "the ledger's table: jobs, attempts, events"),
        TableColumn("size", "bigint", "its bytes"),
        TableColumn("modified", "bigint", "when it was written, microseconds since 1970"),
        TableColumn("rows", "bigint", "its rows; null: it cannot be read"),
        TableColumn("accepted", "boolean", "its rows were ingested"),
        TableColumn("reason", "string", "why it was rejected"),
        TableColumn("aside", "string", "where it was moved to; null: it was not moved"),
        TableColumn("batch", "string", "the batch it belonged to"),
        TableColumn("at", "timestamp", "when it was examined"),
        TableColumn("day", "date", "of at, in UTC"),
    ),
)

BATCHES: Final = TableSpec(
    "batches",
    "bronze",
    "One row per batch and table of the ledger: rows = added + duplicates.",
    ("batch", "ledger"),
    "day",
    (
        TableColumn("batch", "string", "the batch's id"),
        TableColumn("ledger", "string", "the ledger's table"),
        TableColumn("segments", "bigint", "accepted segments"),
        TableColumn("rejected", "bigint", "rejected segments"),
        TableColumn("rows", "bigint", "rows in the accepted segments"),
        TableColumn("added", "bigint", "of these, new rows"),
        TableColumn("duplicates", "bigint", "of these, rows already in silver or in the batch"),
        TableColumn("at", "timestamp", "when the batch was ingested"),
        TableColumn("day", "date", "of at, in UTC"),
    ),
)

BRONZE: Final = (SEGMENTS, BATCHES)

BY_NAME: Final = {table.name: table for table in ledger.TABLES}

# Up to this many footers are read by the driver itself; more of them by Spark tasks.
_FEW: Final = 400


class Segment(NamedTuple):
    """A file of the ledger and its table."""

    table: str
    path: str
    size: int
    modified: int  # microseconds since 1970


class Verdict(NamedTuple):
    """Result of a check. `reason`: empty if accepted. `sure`: the footer is sufficient; otherwise the rows are read."""

    segment: Segment
    rows: int
    reason: str = ""
    sure: bool = True
    low: int | None = None  # bounds of the table's time, microseconds since 1970
    high: int | None = None


def check(spark: SparkSession, segments: Sequence[Segment]) -> list[Verdict]:
    """Check segments by their footers; those with insufficient statistics by all their pages."""
    found = [look(s) for s in segments] if len(segments) <= _FEW else _in_tasks(spark, segments, deep=False)
    unsure = [verdict.segment for verdict in found if not verdict.reason and not verdict.sure]
    if unsure:
        closer = {verdict.segment: verdict for verdict in check_pages(spark, unsure)}
        found = [closer.get(verdict.segment, verdict) for verdict in found]
    return found


def check_pages(spark: SparkSession, segments: Sequence[Segment]) -> list[Verdict]:
    """Check segments by reading them completely, in Spark tasks."""
    return _in_tasks(spark, segments, deep=True)


def look(segment: Segment, *, deep: bool = False) -> Verdict:
    """Check one segment. Errors are returned as a verdict, never raised."""
    try:
        with opened(segment.path) as source:
            if source.size() == 0:
                return Verdict(segment, 0, "the file is empty")
            with pq.ParquetFile(source, page_checksum_verification=deep) as file:
                verdict = _footer(segment, file.metadata)
                if deep and not verdict.reason:
                    verdict = _pages(verdict, file)
                return verdict
    except FileNotFoundError:
        return Verdict(segment, 0, "the file was removed before it could be read")
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        return Verdict(segment, 0, f"cannot be read: {_line(error)}")


def opened(path: str) -> Any:
    """Open a local or remote file for pyarrow."""
    if path.startswith("file://") or "://" not in path:
        return pa.OSFile(path.removeprefix("file://"), "rb")
    from pyarrow import fs

    # pyarrow does not know the scheme s3a.
    system, inner = fs.FileSystem.from_uri(path.replace("s3a://", "s3://", 1))
    return system.open_input_file(inner)


def _footer(segment: Segment, meta: pq.FileMetaData) -> Verdict:
    table = BY_NAME[segment.table]
    said = (meta.metadata or {}).get(ledger.META_TABLE)
    if said is not None and said.decode(errors="replace") != table.name:
        return Verdict(
            segment, 0, f"the file is a segment of {said.decode(errors='replace')}, not of {table.name}"
        )
    leaves = [meta.schema.column(index) for index in range(meta.num_columns)]
    known = {leaf.path: (index, leaf) for index, leaf in enumerate(leaves)}
    folded = [leaf.path.lower() for leaf in leaves]
    problems, sure = [], True
    for column in table.columns:
        index, leaf = known.get(column.name, (-1, None))
        if leaf is None:
            if column.name in folded:
                problems.append(f"{column.name} is spelled differently")
            elif any(path.startswith(f"{column.name}.") for path in folded):
                problems.append(f"{column.name} is not {column.kind}, but nested")
            elif not column.nullable:
                problems.append(f"{column.name} is missing")
            continue
        if folded.count(column.name) > 1:
            problems.append(f"{column.name} occurs twice")
        elif not _fits(column.kind, leaf):
            problems.append(f"{column.name} is not {column.kind}, but {_type(leaf)}")
        elif not column.nullable and leaf.max_definition_level > 0:
            nulls = [_nulls(meta, group, index) for group in range(meta.num_row_groups)]
            if any(nulls):
                problems.append(f"{column.name} is null in {sum(n or 0 for n in nulls)} rows")
            sure = sure and None not in nulls
    if problems:
        return Verdict(segment, meta.num_rows, "; ".join(problems))
    low, high = _bounds(meta, known[_time(table)][0])
    return Verdict(segment, meta.num_rows, sure=sure, low=low, high=high)


def _pages(verdict: Verdict, file: pq.ParquetFile) -> Verdict:
    table = BY_NAME[verdict.segment.table]
    here = [column for column in table.columns if column.name in file.schema_arrow.names]
    rows = 0
    for batch in file.iter_batches(columns=[column.name for column in here], use_threads=False):
        rows += batch.num_rows
        for column in here:
            if not column.nullable and batch.column(column.name).null_count:
                return verdict._replace(reason=f"{column.name} is null in some rows")
    if rows != verdict.rows:
        return verdict._replace(reason=f"the footer says {verdict.rows} rows, the pages have {rows}")
    return verdict._replace(sure=True)


def _time(table: ledger.LedgerTable) -> str:
    return {"jobs": "finished", "attempts": "dispatched", "events": "at"}[table.name]


def _fits(kind: str, leaf: Any) -> bool:
    """Return whether Spark can read the column as the type in the ledger's schema."""
    logical = leaf.logical_type
    word, physical = str(logical.type).upper(), leaf.physical_type
    if leaf.max_repetition_level > 0:
        return False
    match kind:
        case "string":
            return bool(physical == "BYTE_ARRAY" and word == "STRING")
        case "bool":
            return bool(physical == "BOOLEAN")
        case "timestamp":
            text = str(logical).lower()
            return word == "TIMESTAMP" and "isadjustedtoutc=true" in text and "nanoseconds" not in text
        case _:
            signed = word == "NONE" or (word == "INT" and "issigned=true" in str(logical).lower())
            return signed and physical in (("INT32",) if kind == "int32" else ("INT32", "INT64"))


def _type(leaf: Any) -> str:
    word = str(leaf.logical_type)
    return str(leaf.physical_type).lower() if word == "None" else f"{str(leaf.physical_type).lower()} {word}"


def _nulls(meta: pq.FileMetaData, group: int, index: int) -> int | None:
    """Return the number of nulls; None if the footer does not have it."""
    said = meta.row_group(group).column(index).statistics
    return said.null_count if said is not None and said.has_null_count else None


def _bounds(meta: pq.FileMetaData, index: int) -> tuple[int | None, int | None]:
    """Return the bounds of the time column. An impossible time (in a damaged file) raises."""
    lows, highs = [], []
    for group in range(meta.num_row_groups):
        said = meta.row_group(group).column(index).statistics
        if said is None or not said.has_min_max:
            return None, None
        lows.append(said.min)
        highs.append(said.max)
    if not lows:
        return None, None
    return _micros(min(lows)), _micros(max(highs))


def _micros(at: Any) -> int:
    from datetime import UTC, datetime, timedelta

    aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return int((aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


_PLAN: Final = "number bigint, rows bigint, reason string, sure boolean, low bigint, high bigint"


def _in_tasks(spark: SparkSession, segments: Sequence[Segment], *, deep: bool) -> list[Verdict]:
    """Check segments in Spark tasks, a few per core."""
    numbered = [(number, *segment) for number, segment in enumerate(segments)]
    plan = "number bigint, table string, path string, size bigint, modified bigint"

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _answers(batch.to_pylist(), deep=deep)

    tasks = max(1, min(len(segments), 4 * spark.sparkContext.defaultParallelism))
    frame = spark.createDataFrame(numbered, plan).repartition(tasks)
    said = frame.mapInArrow(work, _PLAN).collect()
    return [
        Verdict(segments[row.number], row.rows, row.reason, row.sure, row.low, row.high)
        for row in sorted(said, key=lambda row: row.number)
    ]


def _answers(asked: Iterable[dict[str, Any]], *, deep: bool) -> pa.RecordBatch:
    answers = []
    for row in asked:
        segment = Segment(row["table"], row["path"], row["size"], row["modified"])
        found = look(segment, deep=deep)
        answers.append(
            {
                "number": row["number"],
                "rows": found.rows,
                "reason": found.reason,
                "sure": found.sure,
                "low": found.low,
                "high": found.high,
            }
        )
    kinds = [("number", pa.int64()), ("rows", pa.int64()), ("reason", pa.string()), ("sure", pa.bool_())]
    plan = pa.schema([*kinds, ("low", pa.int64()), ("high", pa.int64())])
    return pa.RecordBatch.from_pylist(answers, schema=plan)
