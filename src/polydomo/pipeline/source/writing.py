"""The sink: each row becomes a durable job. A write is done when all jobs are stored; it does not wait for results.

A job's id is derived from the write (a batch's `run`; a stream's query and batch), the partition, and the row itself,
with a number for identical rows. So a repeated task or batch finds its jobs stored and adds none.
"""

# ruff: noqa: N803  (names are Spark's)
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final
from uuid import uuid4

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from polydomo.errors import ConfigError, Refused
from polydomo.pipeline.bulk_carrier import DONE, End, Errand
from polydomo.pipeline.bulk_nfp import NfpCarrier
from polydomo.pipeline.source.options import Writing
from polydomo.sdk.background_loop import shared_loop
from polydomo.sdk.channel import service_name
from polydomo.sdk.options import prepare
from polydomo.sdk.url import parse
from polydomo.wire.frames import frame

BODY: Final = "body"
SERVICE: Final = "service"
# Options of a job; its body must then be a JSON object, to which NFP adds them.
SAID: Final = ("key", "priority", "delay", "deadline")
_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_NUMBER: Final = (*_WHOLE, FloatType, DoubleType)
_KINDS: Final[dict[str, tuple[type[DataType], ...]]] = {
    SERVICE: (StringType,),
    BODY: (BinaryType, StringType, StructType),
    "key": (StringType,),
    "priority": _WHOLE,
    "delay": _NUMBER,
    "deadline": _NUMBER,
}

# Local properties in which Spark passes the query and the batch to its tasks.
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclass
class Written(WriterCommitMessage):
    """Commit message of a task: the number of jobs submitted."""

    jobs: int


def check_schema(schema: StructType, writing: Writing) -> None:
    """Check on the driver, before any task, that the columns can be sent."""
    for field in schema.fields:
        kinds = _KINDS.get(field.name)
        if kinds is None:
            raise ConfigError(
                f"column {field.name!r} cannot be written",
                hint=f"columns: {', '.join(_KINDS)}; select these, or put the whole row into a struct named body",
            )
        if not isinstance(field.dataType, kinds):
            names = " or ".join(kind.typeName() for kind in kinds)
            raise ConfigError(
                f"column {field.name!r} is {field.dataType.simpleString()}", hint=f"it must be {names}"
            )
    if BODY not in schema.names:
        raise ConfigError("there is no column body", hint="add one to send: binary, text, or a struct")
    if SERVICE not in schema.names and writing.service is None:
        raise ConfigError(
            "no service to send the rows to", hint="give an option service, or a column service"
        )


class _Sender:
    """Shared part of both writers."""

    def __init__(self, writing: Writing) -> None:
        self.writing = writing

    def send(self, batches: Iterator[pa.RecordBatch], write: str) -> Written:
        """Submit all rows of a task as jobs of this write."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        loop = shared_loop()
        task = _Task(self.writing, f"{write}\0{partition}")
        try:
            for batch in batches:
                loop.run(task.send(batch.to_pylist()))
            loop.run(task.finish())
        finally:
            loop.run(task.close())
        return Written(task.sent)


class Writer(DataSourceArrowWriter):
    """Batch writer. Jobs submitted before a failure stay: repeating a write with the same `run` adds only the rest."""

    def __init__(self, writing: Writing) -> None:
        self._sender = _Sender(writing)
        self._run = writing.run or uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Submit the rows of a task."""
        return self._sender.send(iterator, f"run {self._run}")


class StreamWriter(DataSourceStreamArrowWriter):
    """Stream writer."""

    def __init__(self, writing: Writing) -> None:
        self._sender = _Sender(writing)
        self._run = writing.run

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Submit the rows of a task."""
        context = TaskContext.get()
        query = self._run or (context and context.getLocalProperty(_QUERY))
        batch = context and context.getLocalProperty(_BATCH)
        if not query or not batch:
            raise ConfigError("this Spark does not pass the query and the batch to its tasks", hint="")
        return self._sender.send(iterator, f"query {query} {batch}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: the jobs are already stored."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: submitted jobs stay, and the repeated batch finds them."""


class _Task:
    """One partition's connection. The first refused row fails the task."""

    def __init__(self, writing: Writing, write: str) -> None:
        self.sent = 0
        self._writing = writing
        self._write = write
        self._carrier: NfpCarrier | None = None
        self._seen: Counter[bytes] = Counter()
        self._landed = 0
        self._failure: End | None = None

    async def send(self, rows: list[dict[str, Any]]) -> None:
        """Send rows as fast as the broker accepts them."""
        carrier = self._carrier
        if carrier is None:
            writing = self._writing
            errand = Errand(
                parse(writing.url),
                writing.service or "",
                "",
                writing.timeout,
                writing.patience,
                writing.window,
            )
            carrier = self._carrier = NfpCarrier(errand, self._ended, push=False)
        await carrier.ready()
        for row in rows:
            service, body, content = _request(row, self._writing.service)
            self._seen[content] += 1
            named = f"{self._write}\0{self._seen[content]}\0".encode() + content
            await carrier.send(None, blake2b(named, digest_size=16).hexdigest(), body, service)
            self.sent += 1
            self._check()

    async def finish(self) -> None:
        """Wait until the last job is stored."""
        while self._carrier is not None and self._landed < self.sent:
            await self._carrier.room()
        self._check()

    async def close(self) -> None:
        """Close the connection."""
        if self._carrier is not None:
            await self._carrier.close()

    def _ended(self, row: None, end: End) -> None:
        self._landed += 1
        if end.outcome != DONE and self._failure is None:
            self._failure = end

    def _check(self) -> None:
        if self._failure is not None:
            raise Refused(
                f"a row was not accepted: {self._failure.message} [{self._failure.error}]",
                hint="jobs before it are stored; repeating the write adds only the rest",
            )


def _request(row: dict[str, Any], usual: str | None) -> tuple[bytes, bytes, bytes]:
    """Return the service, the job's body as sent, and a digest of the row."""
    service = row.get(SERVICE) or usual
    if not service:
        raise Refused("a row has no service, and there is no option service", hint="")
    given = row[BODY]
    if isinstance(given, bytes):
        body = given
    elif isinstance(given, str):
        body = given.encode()
    else:
        body = b"" if given is None else msgspec.json.encode(given)
    said: Any = {name: row[name] for name in SAID if row.get(name) is not None}
    try:
        name = service_name(service)
        whole = prepare("nfp", said, frame(body)).body
    except ValueError as error:
        raise Refused(f"a row cannot be sent: {error}", hint="") from None
    return name, whole, blake2b(name + b"\0" + whole, digest_size=16).digest()
