"""The tables of a live broker: columns with descriptions. Schemas and the reference are generated from here."""

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
    """A column. `kind`: string, int, bigint, binary, or timestamp (microseconds in UTC)."""

    name: str
    kind: str
    doc: str


class Table(NamedTuple):
    """A table. `states`: only jobs in one of these; `request`, `result`: bodies to include."""

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
    Column("id", "string", "UUID, or the dialect's own id"),
    Column("seq", "bigint", "the order of arrival over the whole store"),
    Column("ending", "bigint", "the order of ends over the whole store; null until the job ends"),
    Column("service", "string", "the service that runs it"),
    Column("state", "string", "waiting, delayed, running, done, failed, cancelled or dead"),
    Column("error", "string", "error code if there is no result"),
    Column("message", "string", "the error as a sentence"),
    Column("client", "string", "the client that submitted it"),
    Column("dialect", "string", "protocol of the client"),
    Column("worker", "string", "the worker that runs it, or ran it last"),
    Column("attempts", "int", "how often it was dispatched"),
    Column("key", "string", "its idempotency key"),
    Column("parent", "string", "the job that it is a part of"),
    Column("target", "string", "targeted workers: any, or JSON"),
    Column("priority", "int", "-9 to 9"),
    Column("submitted", "timestamp", "when it was submitted"),
    Column("not_before", "timestamp", "earliest time to run it"),
    Column("dispatched", "timestamp", "when its latest attempt began"),
    Column("finished", "timestamp", "when it ended"),
    Column("deadline", "timestamp", "when it must be finished"),
    Column("bytes_in", "bigint", "size of its request"),
    Column("bytes_out", "bigint", "size of all its replies"),
)

_ENDED: Final = ("done", "failed", "cancelled", "dead")

TABLES: Final = {
    table.name: table
    for table in (
        Table(JOBS, "Durable jobs, ended or not, without their bodies. As a stream: when they end.", _JOB),
        Table(
            RESULTS,
            "Durable jobs that have ended, with their results.",
            (*_JOB, Column("result", "binary", "the reply; null if it has none")),
            _ENDED,
            result=True,
        ),
        Table(
            DEAD,
            "Dead letters: jobs that used up their attempts, with their requests.",
            (*_JOB, Column("request", "binary", "the request body")),
            ("dead",),
            request=True,
        ),
        Table(
            EVENTS,
            "Events that workers reported while they ran durable jobs.",
            (
                Column("job_id", "string", "the job"),
                Column("service", "string", "its service"),
                Column("number", "bigint", "increases within a job"),
                Column("at", "timestamp", "when it was reported"),
                Column("worker", "string", "the worker that reported it"),
                Column("kind", "string", "the event's kind, chosen by the worker"),
                Column("body", "binary", "the event's body"),
            ),
        ),
    )
}


def spark_schema(table: Table) -> StructType:
    """Return the table's schema for Spark."""
    return StructType([StructField(column.name, _SPARK[column.kind]) for column in table.columns])


def arrow_schema(table: Table) -> pa.Schema:
    """Return the schema of the Arrow batches handed to Spark."""
    return pa.schema([pa.field(column.name, _ARROW[column.kind]) for column in table.columns])
