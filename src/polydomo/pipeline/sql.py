"""Untrusted queries: checked, limited, each in its own session, and cancelled when the caller is gone.

A request is SQL as text, or a JSON object:

    {"sql": "SELECT …", "format": "json", "limit": 1000, "stream": false, "progress": true}

A JSON reply is `{"columns": [{"name", "type"}, …], "rows": [[…], …], "count", "truncated", "seconds"}`. Dates and times
are ISO 8601 (times in UTC, with a Z), decimals are text (to stay exact), binary is base64, intervals are seconds, NaN
and the infinities are text. An Arrow reply is one IPC stream, with `polydomo.truncated` in its schema's metadata. With
`stream` the rows come in parts before the end: `{"rows": [[…], …]}`, or parts of the IPC stream.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

import msgspec

from polydomo.errors import PolydomoError
from polydomo.pipeline import guard
from polydomo.pipeline.guard import BadQuery, NotAllowed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MIB: Final = 1024 * 1024

# Settings of every query's session, which override the process's.
SESSION: Final = {
    "spark.sql.variable.substitute": "false",
    "spark.sql.scripting.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}


class TooBig(PolydomoError):
    """The result exceeds the limit in bytes."""

    code = "too-big"
    hint = "ask for fewer rows or columns, or aggregate in the query"


class TooLong(PolydomoError):
    """The query exceeds the time limit."""

    code = "too-long"
    hint = "ask for less, for example one day; service_minute answers many questions faster than jobs"


class Stopped(PolydomoError):
    """The query was cancelled."""

    code = "cancelled"


class SparkLost(PolydomoError):
    """The process that ran the query has ended."""

    code = "spark-lost"


class QueryFailed(PolydomoError):
    """Spark failed while running the query."""

    code = "query-failed"


class Heavy(Exception):
    """The query is allowed, but not light (`guard.Checked.light`)."""


class Bounds(NamedTuple):
    """Limits of one query."""

    rows: int = 10_000  # default limit
    most_rows: int = 1_000_000
    bytes: int = 32 * MIB  # of a result
    seconds: float = 300.0
    queries: int = 4  # at once
    piece: int = 256 * 1024  # approximate bytes of a streamed part


USUAL: Final = Bounds()


class TableSource(Protocol):
    """The tables that can be queried (`pipeline.lake.Lake`)."""

    @property
    def specs(self) -> Mapping[str, object]: ...
    def read(self, spark: SparkSession, name: str) -> DataFrame: ...


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """A query and its options. `limit` 0 returns only the columns."""

    sql: str
    format: Literal["json", "arrow"] = "json"
    limit: int | None = None
    stream: bool = False
    progress: bool = True


class QueryProgress(msgspec.Struct, frozen=True):
    """Progress of a query in Spark."""

    stages: int = 0
    stages_done: int = 0
    tasks: int = 0
    tasks_done: int = 0
    tasks_running: int = 0
    seconds: float = 0.0


class Result(NamedTuple):
    """Result of a query."""

    columns: list[dict[str, str]]
    table: pa.Table
    truncated: bool
    seconds: float


def read_request(body: bytes) -> Request:
    """Parse a request: SQL, a JSON object, a JSON string (SQL from a client that encodes everything as JSON), or a task
    in the form of norfab's clients."""
    text = body.strip()
    try:
        if text[:1] == b'"':
            return Request(msgspec.json.decode(text, type=str))
        if text[:1] != b"{":
            return Request(body.decode())
        members = msgspec.json.decode(text, type=dict[str, Any])
        if "task" in members:
            args, kwargs = members.get("args") or [], members.get("kwargs") or {}
            members = ({"sql": args[0]} if args else {}) | kwargs
        request = msgspec.convert(members, Request)
    except UnicodeDecodeError:
        raise BadQuery("the request is not valid UTF-8", hint="") from None
    except (msgspec.MsgspecError, TypeError) as error:
        example = '{"sql": "SELECT …", "format": "json", "limit": 100}'
        raise BadQuery(f"the request cannot be read: {error}", hint=f"send SQL, or {example}") from None
    if request.limit is not None and request.limit < 0:
        raise BadQuery(f"limit is {request.limit}", hint="give 0 or more")
    return request


class Engine:
    """Runs queries on one Spark, several at once. All methods block, and may be called from any thread."""

    def __init__(self, spark: SparkSession, tables: TableSource, bounds: Bounds = USUAL) -> None:
        self.spark = spark
        self.tables = tables
        self.bounds = bounds
        self._context = spark.sparkContext
        self._tracker = self._context.statusTracker()
        self._since: dict[str, float] = {}
        self._stopped: set[str] = set()
        self._reading = threading.Lock()  # the catalog is used by one thread at a time

    def run(self, request: Request, group: str, *, heavy: bool = True) -> Result:
        """Run a query and return its rows. `group`: its name for `progress` and `cancel`. Unless `heavy`, raise Heavy
        for a query that is not light."""
        start = self._since[group] = time.monotonic()
        context = self._context
        try:
            context.setJobGroup(group, "a query", interruptOnCancel=True)
            # A small query must not wait for a large one. One pool per thread, not per query.
            context.setLocalProperty("spark.scheduler.pool", threading.current_thread().name)
            frame = self._prepare(request, group, heavy)
            limit = min(self.bounds.rows if request.limit is None else request.limit, self.bounds.most_rows)
            columns = [
                {"name": field.name, "type": field.dataType.simpleString()} for field in frame.schema.fields
            ]
            table = self._collect(frame, limit, group)
            self._leave_session()
        except (PolydomoError, Heavy) as error:
            if not isinstance(error, SparkLost):
                self._leave_session()
            raise
        except Exception as error:
            raise self._explained(error, group) from None
        finally:
            self._since.pop(group, None)
            self._stopped.discard(group)
        truncated = table.num_rows > limit
        return Result(columns, table.slice(0, limit), truncated, time.monotonic() - start)

    def _leave_session(self) -> None:
        """Detach the thread from the query's session. Java may have ended with an error that does not say so."""
        jvm: Any = self.spark._jvm
        try:
            jvm.SparkSession.setActiveSession(self.spark._jsparkSession)
        except Exception as error:
            raise self._explained(error, "") from None

    def warm(self) -> None:
        """Run a first query, which takes seconds because Java loads its classes, before a client does."""
        for name in ["", *self.published()[:1]]:
            self.run(Request(f"SELECT count(*) AS n FROM {name}" if name else "SELECT 1 AS one"), "warm")

    def progress(self, group: str) -> QueryProgress:
        """Return the progress of a running query."""
        since = self._since.get(group)
        if since is None:
            return QueryProgress()
        stages = stages_done = tasks = done = running = 0
        for job in self._tracker.getJobIdsForGroup(group):
            info = self._tracker.getJobInfo(job)
            for number in info.stageIds if info is not None else ():
                stage = self._tracker.getStageInfo(int(number))
                if stage is not None:
                    stages += 1
                    stages_done += stage.numCompletedTasks >= stage.numTasks
                    tasks += stage.numTasks
                    done += stage.numCompletedTasks
                    running += stage.numActiveTasks
        return QueryProgress(stages, stages_done, tasks, done, running, round(time.monotonic() - since, 3))

    def published(self) -> list[str]:
        """Return the tables that may be queried. Bronze is excluded: it only describes files."""
        return [name for name, spec in self.tables.specs.items() if getattr(spec, "layer", "") != "bronze"]

    def cancel(self, group: str) -> None:
        """Cancel a query's jobs and prevent further ones."""
        self._stopped.add(group)
        scala: Any = self._context._jsc.sc()
        scala.cancelJobGroupAndFutureJobs(group)

    def _prepare(self, request: Request, group: str, heavy: bool) -> DataFrame:
        """Check a query and return its DataFrame, in a session that has only the tables named in it."""
        try:
            session = self.spark.newSession()
            for key, value in SESSION.items():
                session.conf.set(key, value)
            checked = guard.check(session, request.sql, self.published())
            if not heavy and not checked.light:
                raise Heavy
            self._go_on(group)
            for name in checked.tables:
                with self._reading:
                    self.tables.read(session, name).createOrReplaceTempView(name)
                self._go_on(group)
            frame = session.sql(checked.sql)
            if not guard.check_analysed(frame, checked.tables) and not heavy:
                raise Heavy
            return frame
        except (PolydomoError, Heavy):
            raise
        except Exception as error:
            raise self._explained(error, group) from None

    def _collect(self, frame: DataFrame, limit: int, group: str) -> pa.Table:
        self._go_on(group)
        try:
            # One more than requested, to detect truncation.
            table = frame.limit(limit + 1).toArrow()
        except Exception as error:
            raise self._explained(error, group) from None
        self._go_on(group)
        if table.nbytes > self.bounds.bytes * 2:  # a table in memory is larger than its reply
            raise self._too_big()
        return table

    def _go_on(self, group: str) -> None:
        if group in self._stopped:
            raise Stopped("the query was cancelled")

    def _too_big(self) -> TooBig:
        return TooBig(f"the result has more than {self.bounds.bytes} bytes")

    def _explained(self, error: Exception, group: str) -> PolydomoError:
        """Convert a Spark error for the caller: what is wrong with the query, and nothing about the machine."""
        from py4j.protocol import Py4JNetworkError
        from pyspark.errors import AnalysisException, PySparkException

        if isinstance(error, Py4JNetworkError | OSError | EOFError):
            return SparkLost("Spark ended while the query ran", hint="it may have run out of memory")
        said = str(getattr(error, "java_exception", None) or error)
        if "stopped SparkContext" in said:
            return SparkLost("Spark ended while the query ran", hint="")
        if group in self._stopped:
            return Stopped("the query was cancelled")
        if "maxResultSize" in said:
            return self._too_big()
        if isinstance(error, AnalysisException):
            return BadQuery(guard.first_lines(said), hint="")
        if isinstance(error, PySparkException) and "UNSUPPORTED" in (error.getCondition() or ""):
            hint = "cast such columns to string"
            return BadQuery(guard.first_lines(said), hint=hint)
        marked = said.find("[")  # Spark's query errors carry their condition in brackets
        said = guard.first_lines(said[marked:]) if marked >= 0 else type(error).__name__
        said = re.sub(r"\b[a-z0-9]+:/\S+", "…", said)  # do not reveal the location of the tables
        return QueryFailed(f"Spark could not run the query: {said}", hint="")


def pieces(result: Result, request: Request, bounds: Bounds) -> Iterator[bytes]:
    """Yield the parts of the reply: the last one is final, those before it are partial (only with `stream`)."""
    made = _arrow(result, request, bounds) if request.format == "arrow" else _json(result, request, bounds)
    total = 0
    for piece in made:
        total += len(piece)
        if total > bounds.bytes:
            raise TooBig(f"the result has more than {bounds.bytes} bytes")
        yield piece


def _arrow(result: Result, request: Request, bounds: Bounds) -> Iterator[bytes]:
    import pyarrow as pa

    told = {b"polydomo.truncated": b"true" if result.truncated else b"false"}
    table = result.table.replace_schema_metadata(told)
    sink = pa.BufferOutputStream()
    each = _rows_in(table, bounds.piece) if request.stream else max(1, table.num_rows)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        if not request.stream:
            writer.write_table(table)
    if not request.stream:
        yield sink.getvalue().to_pybytes()
        return
    # An IPC stream is its schema, its batches and an end marker; the joined parts are a complete stream.
    end = (0xFFFFFFFF).to_bytes(4, "little") + (0).to_bytes(4, "little")
    yield sink.getvalue().to_pybytes().removesuffix(end)
    for batch in table.to_batches(max_chunksize=each):
        yield batch.serialize().to_pybytes()
    yield end


def _json(result: Result, request: Request, bounds: Bounds) -> Iterator[bytes]:
    from polydomo.pipeline.plain import rows

    table = result.table
    head: dict[str, Any] = {
        "columns": result.columns,
        "count": table.num_rows,
        "truncated": result.truncated,
        "seconds": round(result.seconds, 3),
    }
    if not request.stream:
        if table.nbytes > bounds.bytes:
            raise TooBig(f"the result has more than {bounds.bytes} bytes")
        yield msgspec.json.encode(head | {"rows": rows(table)})
        return
    each = _rows_in(table, bounds.piece)
    for first in range(0, table.num_rows, each):
        yield msgspec.json.encode({"rows": rows(table.slice(first, each))})
    yield msgspec.json.encode(head)


def _rows_in(table: pa.Table, size: int) -> int:
    """Return how many rows have about `size` bytes."""
    return max(1, int(table.num_rows) * size // max(1, int(table.nbytes)))


__all__ = [
    "BadQuery",
    "Bounds",
    "Engine",
    "NotAllowed",
    "QueryFailed",
    "QueryProgress",
    "Request",
    "Result",
    "SparkLost",
    "Stopped",
    "TooBig",
    "TooLong",
    "pieces",
    "read_request",
]
