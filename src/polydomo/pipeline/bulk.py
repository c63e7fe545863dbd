"""Bulk calls: send each row of a DataFrame to a service as a job and add the result to the row.

    scored = call(orders, "score", url="mdp://broker:5555", run="2026-11-16")
    scored.where("outcome <> 'done'").groupBy("error").count().show()

The job id is derived from the `run`, the service and the row's key (or its body). The broker runs one job per id and
stores the result, so a retried or speculative task reattaches to the jobs of the first one; so does a second action on
the same DataFrame, and another program with the same `run`. Identical rows share one job.

Execution is still at least once: a worker that disconnects while running a job may have completed it. `attempts` says
how often the broker dispatched the job.

`bulk_partition` handles one partition; `bulk_nfp` and `bulk_client` handle its connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as fn
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    StringType,
    StructField,
    StructType,
)

from polydomo.errors import ConfigError
from polydomo.pipeline.bulk_partition import BODY, KEY, Order
from polydomo.sdk.channel import service_name
from polydomo.sdk.url import default_url, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Columns added to each row, in this order: name, type, description.
COLUMNS: Final = (
    ("result", "binary", "the reply; null if there is none"),
    ("outcome", "string", "done, failed, dead, cancelled, refused, timeout or unreachable"),
    ("error", "string", "error code if there is no result"),
    ("message", "string", "the error as a sentence"),
    ("attempts", "int", "how often the broker dispatched the job; null for jobs that are not durable"),
    ("submitted", "timestamp", "when the broker accepted the job"),
    ("finished", "timestamp", "when the job ended"),
)

# Forms of the result: bytes, text, or the list of its frames.
BINARY: Final = "binary"
TEXT: Final = "text"
FRAMES: Final = "frames"

WINDOW: Final = 256
LARGEST_WINDOW: Final = 1000  # default of the broker's `limits.client_jobs`, above which it stops reading
TIMEOUT: Final = 600.0
PATIENCE: Final = 60.0

# Error code: the reply is not JSON of the requested type.
NOT_DECODED: Final = "not-decoded"

_RUN: Final = re.compile(r"[A-Za-z0-9_.:@/+-]{1,64}")
_CORRUPT: Final = "__polydomo_corrupt"
_PLAIN: Final = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double", "boolean"})


def call(
    df: DataFrame,
    service: str,
    body: str | Column | None = None,
    *,
    url: str | None = None,
    key: str | Column | Sequence[str | Column] | None = None,
    run: str | None = None,
    durable: bool = True,
    decode: str | DataType = BINARY,
    window: int = WINDOW,
    timeout: float | None = TIMEOUT,
    deadline: float | None = None,
    patience: float = PATIENCE,
    prefix: str = "",
) -> DataFrame:
    """Return the rows with `result`, `outcome`, `error`, `message`, `attempts`, `submitted` and `finished` (`COLUMNS`).

    Nothing is sent until an action requests the rows. Failures are rows, never exceptions.

    - `body`: the column or expression to send. Binary is sent unchanged, text as UTF-8, a struct, map, array or number
      as JSON. Default: the whole row as a JSON object.
    - `url`: as for `polydomo.Client`. Durable jobs use NFP, at the same address, if the URL is an mdp:// or dcp:// one.
    - `key`: the column or columns that identify a row; default: its body. Two rows with the same key are one job, and
      the second is refused if its body differs.
    - `run`: identical rows of one run are the same job, also from different processes. Default: a new run per call.
    - `durable`: if False, jobs are not stored, and a job that is lost, or a task that Spark retries, runs again.
    - `decode`: "binary", "text", "frames" (a list of binary), or the type of a JSON result ("a int, b string" or a
      `DataType`).
    - `window`: maximum number of rows in flight per partition.
    - `timeout`: seconds per row; None: no limit. The job itself continues: the same `run` finds its result later.
    - `deadline`: seconds after which the broker gives up an unfinished job. The body must be a JSON object: NFP adds
      the deadline to it as a member `options`, which workers of other dialects see.
    - `patience`: seconds to wait for a broker, or for a worker of the service, before all remaining rows fail.
    - `prefix`: prepended to the names of the added columns.
    """
    order = Order(
        url=address(url, durable),
        service=service,
        run=_run(run),
        durable=durable,
        window=_window(window),
        timeout=_positive("timeout", timeout),
        patience=_positive("patience", patience) or 0.0,
        frames=decode == FRAMES,
        prefix=prefix,
        deadline=_positive("deadline", deadline),
    )
    if deadline is not None and not durable:
        raise ConfigError("deadline= requires NFP, so durable=True", hint="timeout= limits the wait")
    try:
        service_name(service)
    except ValueError as error:
        raise ConfigError(str(error), hint="") from None
    names = {name: f"{prefix}{name}" for name, _, _ in COLUMNS}
    _check_names(df.columns, names.values())
    sent = fn.struct("*") if body is None else _column(body)
    known = None if key is None else _columns(key)
    asked = df.select("*", _request(df, sent).alias(BODY), _known(df, known).alias(KEY))
    types = {"result": ArrayType(BinaryType()) if order.frames else BinaryType()}
    added = [StructField(names[name], types.get(name) or _type(kind)) for name, kind, _ in COLUMNS]
    answered = asked.mapInArrow(order.partition, StructType([*df.schema.fields, *added]))
    return _decoded(answered, decode, names)


def address(url: str | None, durable: bool) -> str:
    """Return the URL with a dialect that supports the request.

    Called on the driver, because executors have a different environment.
    """
    text = url or default_url()
    found = parse(text)
    if not durable and found.dialect == "nfp":
        return f"dcp{text[3:]}"  # NFP jobs are always durable
    if not durable or found.dialect == "nfp":
        return text
    if found.dialect == "memo":
        raise ConfigError(
            f"{text}: MemoDB has no durable jobs",
            hint="give the broker's ZeroMQ address (nfp://HOST:PORT), or durable=False",
        )
    return f"nfp{text[3:]}"


def _request(df: DataFrame, sent: Column) -> Column:
    """Return the request body as a binary column."""
    kind = df.select(sent.alias("body")).schema["body"].dataType.simpleString()
    if kind == "binary":
        return sent
    if kind == "string" or kind in _PLAIN or kind.startswith("decimal"):
        return sent.cast("string").cast("binary")
    if kind.startswith(("struct", "map", "array", "variant")):
        return fn.to_json(sent, {"ignoreNullFields": "false"}).cast("binary")
    raise ConfigError(
        f"a column of type {kind} cannot be sent", hint="put it into a struct, or cast it to string"
    )


def _known(df: DataFrame, columns: list[Column] | None) -> Column:
    if columns is None:
        return fn.lit(None).cast("binary")
    return fn.to_json(fn.struct(*columns), {"ignoreNullFields": "false"}).cast("binary")


def _decoded(rows: DataFrame, decode: str | DataType, names: dict[str, str]) -> DataFrame:
    name = names["result"]
    result = fn.col(f"`{name}`")
    if decode in (BINARY, FRAMES):
        return rows
    if decode == TEXT:
        return rows.withColumn(name, result.cast("string"))
    wanted = _type(decode) if isinstance(decode, str) else decode
    # Wrapped in an object any JSON type can be read, and a parse failure has a column to be reported in.
    read = StructType([StructField("value", wanted), StructField(_CORRUPT, StringType())])
    text = result.cast("string")
    found = fn.from_json(
        fn.concat(fn.lit('{"value":'), text, fn.lit("}")), read, {"columnNameOfCorruptRecord": _CORRUPT}
    )
    bad = result.isNotNull() & found[_CORRUPT].isNotNull()
    said = fn.concat(
        fn.lit(f"the result is not {wanted.simpleString()} in JSON: "), fn.substring(text, 1, 200)
    )
    changed = {
        names["outcome"]: fn.when(bad, "failed").otherwise(fn.col(f"`{names['outcome']}`")),
        names["error"]: fn.when(bad, NOT_DECODED).otherwise(fn.col(f"`{names['error']}`")),
        names["message"]: fn.when(bad, said).otherwise(fn.col(f"`{names['message']}`")),
        name: fn.when(~bad, found["value"]),
    }
    return rows.select(*[changed[c].alias(c) if c in changed else fn.col(f"`{c}`") for c in rows.columns])


def _type(text: str) -> DataType:
    """Parse Spark's type notation; a bare list of fields is a struct."""
    try:
        return DataType.fromDDL(text)
    except PySparkException as error:
        raise ConfigError(
            f"decode={text!r} is not a type: {error}",
            hint=f"give {BINARY}, {TEXT}, {FRAMES}, or a type as in 'a int, b string' or 'array<double>'",
        ) from None


def _column(given: str | Column) -> Column:
    return fn.col(given) if isinstance(given, str) else given


def _columns(given: str | Column | Sequence[str | Column]) -> list[Column]:
    several = [given] if isinstance(given, str | Column) else list(given)
    if not several:
        raise ConfigError(
            "key=[]: at least one key column is required", hint="leave key= out to use the body as the key"
        )
    return [_column(one) for one in several]


def _check_names(there: Sequence[str], added: Iterable[str]) -> None:
    taken = sorted(set(there) & {*added, BODY, KEY})
    if taken:
        raise ConfigError(
            f"the rows already have columns named {', '.join(taken)}",
            hint="rename them, or give a prefix= for the added columns",
        )


def _run(run: str | None) -> str:
    if run is None:
        return uuid4().hex
    if not _RUN.fullmatch(run):
        raise ConfigError(
            f"run={run!r} is not a valid run name",
            hint="1 to 64 letters, digits and _.:@/+-, such as 2026-11-16",
        )
    return run


def _window(window: int) -> int:
    if not 1 <= window <= LARGEST_WINDOW:
        raise ConfigError(f"window={window!r}: must be between 1 and {LARGEST_WINDOW} rows", hint="")
    return window


def _positive(name: str, value: float | None) -> float | None:
    if value is not None and value <= 0:
        raise ConfigError(f"{name}={value!r}: must be a positive number of seconds", hint="")
    return value
