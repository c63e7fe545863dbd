"""The tables that a live broker shows: their columns with their sentences. Schemas and the reference come from here."""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

JOBS: Final = "jobs"
RESULTS: Final = "results"
DEAD: Final = "dead"
EVENTS: Final = "events"


class Column(NamedTuple):
    """`kind`: string, int, bigint, binary, or timestamp (microseconds in UTC)."""

    name: str
    kind: str
    doc: str


class Table(NamedTuple):
    """What is read for it, and what it has. `states`: only jobs in one of these."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    states: tuple[str, ...] = ()
    request: bool = False
    result: bool = False


_SPARK: Final[dict[str, DataType]] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
}
_ARROW: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}

_JOB: Final = (
    Column("id", "string", "its UUID, or what its dialect calls it"),
    Column("seq", "bigint", "the order of arrival over the whole store"),
    Column("ending", "bigint", "the order of ends over the whole store; null before"),
    Column("service", "string", "who has to do it"),
    Column("state", "string", "waiting, delayed, running, done, failed, cancelled or dead"),
    Column("error", "string", "why there is no result: a stable word"),
    Column("message", "string", "and for people"),
    Column("client", "string", "who asked for it"),
    Column("dialect", "string", "in which protocol"),
    Column("worker", "string", "who has it, or had it last"),
    Column("attempts", "int", "how often it was given to a worker"),
    Column("key", "string", "its idempotency key"),
    Column("parent", "string", "the job that it is a part of"),
    Column("target", "string", "whom it is for: any, or JSON"),
    Column("priority", "int", "-9 to 9"),
    Column("submitted", "timestamp", "when it came"),
    Column("not_before", "timestamp", "not to be run earlier"),
    Column("dispatched", "timestamp", "when its latest attempt began"),
    Column("finished", "timestamp", "when it ended"),
    Column("deadline", "timestamp", "when it has to be finished"),
    Column("bytes_in", "bigint", "of its request"),
    Column("bytes_out", "bigint", "of all its answers"),
)

_ENDED: Final = ("done", "failed", "cancelled", "dead")

TABLES: Final = {
    table.name: table
    for table in (
        Table(JOBS, "Durable jobs, ended or not, without their bodies. As a stream: when they end.", _JOB),
        Table(
            RESULTS,
            "Durable jobs that have ended, with their results.",
            (*_JOB, Column("result", "binary", "the answer; null if it has none")),
            _ENDED,
            result=True,
        ),
        Table(
            DEAD,
            "Dead letters: jobs that used up their attempts, with their requests.",
            (*_JOB, Column("request", "binary", "what was asked")),
            ("dead",),
            request=True,
        ),
        Table(
            EVENTS,
            "What workers said about durable jobs while they did them.",
            (
                Column("job_id", "string", "the job"),
                Column("service", "string", "its service"),
                Column("number", "bigint", "grows within a job"),
                Column("at", "timestamp", "when"),
                Column("worker", "string", "who said it"),
                Column("kind", "string", "the worker's own word"),
                Column("body", "binary", "and what it had to say"),
            ),
        ),
    )
}


def spark_schema(table: Table) -> StructType:
    """As Spark has it."""
    return StructType([StructField(column.name, _SPARK[column.kind]) for column in table.columns])


def arrow_schema(table: Table) -> pa.Schema:
    """As it is handed to Spark."""
    return pa.schema([pa.field(column.name, _ARROW[column.kind]) for column in table.columns])
