"""The sink: each row one durable job. A write is done when all are on the broker's disk; nobody waits for results.

A job's id is made of the write (a batch's `run`; a stream's query and batch), the partition, and the row itself, with a
number where several rows are the same. So a task or a batch that is repeated finds its jobs there and adds none.
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
# What can be said of each job beside its body, which must be a JSON object then: NFP puts it in there.
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

# Where Spark tells its tasks which query and batch they belong to.
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclass
class Written(WriterCommitMessage):
    """How many jobs a task has handed over."""

    jobs: int


def check_schema(schema: StructType, writing: Writing) -> None:
    """The columns must be such as can be sent. Said on the driver, before any task."""
    for field in schema.fields:
        kinds = _KINDS.get(field.name)
        if kinds is None:
            raise ConfigError(
                f"column {field.name!r} cannot be written",
                hint=f"there are {', '.join(_KINDS)}; select these, or put all of a row into a struct called body",
            )
        if not isinstance(field.dataType, kinds):
            names = " or ".join(kind.typeName() for kind in kinds)
            raise ConfigError(
                f"column {field.name!r} is {field.dataType.simpleString()}", hint=f"it must be {names}"
            )
    if BODY not in schema.names:
        raise ConfigError("there is no column body", hint="it is what is sent: binary, text, or a struct")
    if SERVICE not in schema.names and writing.service is None:
        raise ConfigError("nobody to send the rows to", hint="give an option service, or a column service")


class _Sender:
    """Both writers."""

    def __init__(self, writing: Writing) -> None:
        self.writing = writing

    def send(self, batches: Iterator[pa.RecordBatch], write: str) -> Written:
        """All rows of a task, as jobs of this write."""
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
    """A batch's. Jobs that were handed over before a write failed stay: the same `run` again adds only the rest."""

    def __init__(self, writing: Writing) -> None:
        self._sender = _Sender(writing)
        self._run = writing.run or uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task."""
        return self._sender.send(iterator, f"run {self._run}")


class StreamWriter(DataSourceStreamArrowWriter):
    """A stream's."""

    def __init__(self, writing: Writing) -> None:
        self._sender = _Sender(writing)
        self._run = writing.run

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task."""
        context = TaskContext.get()
        query = self._run or (context and context.getLocalProperty(_QUERY))
        batch = context and context.getLocalProperty(_BATCH)
        if not query or not batch:
            raise ConfigError("this Spark does not tell which query and batch a task belongs to", hint="")
        return self._sender.send(iterator, f"query {query} {batch}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The jobs are on disk already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was handed over stays, and the batch, when it is repeated, finds it."""


class _Task:
    """One partition's connection. The first row that is not accepted ends it."""

    def __init__(self, writing: Writing, write: str) -> None:
        self.sent = 0
        self._writing = writing
        self._write = write
        self._carrier: NfpCarrier | None = None
        self._seen: Counter[bytes] = Counter()
        self._landed = 0
        self._failure: End | None = None

    async def send(self, rows: list[dict[str, Any]]) -> None:
        """Some rows, as fast as the broker takes them."""
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
        """Until the last is on disk."""
        while self._carrier is not None and self._landed < self.sent:
            await self._carrier.room()
        self._check()

    async def close(self) -> None:
        """The connection."""
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
                hint="jobs before it are on the broker's disk; the same write again adds only the rest",
            )


def _request(row: dict[str, Any], usual: str | None) -> tuple[bytes, bytes, bytes]:
    """The service, the job's body as it is sent, and a digest of all that makes the row."""
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
