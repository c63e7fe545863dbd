"""Bulk calls: a DataFrame's rows through a service, each row a job, its result in the row.

    scored = call(orders, "score", url="mdp://broker:5555", run="2026-11-16")
    scored.where("outcome <> 'done'").groupBy("error").count().show()

A row's job has an id made of the `run`, the service and the row's key, or its body. The broker runs one job per id and
keeps its result, so a task that Spark repeats, or runs twice, finds the jobs of the first; so does a second action on
the same DataFrame, and another program with the same `run`. Rows that are the same are one job.

Execution is at least once all the same: a worker that is lost with a job in hand may have done it. `attempts` says how
often the broker gave the job to a worker.

What happens in a partition is in `bulk_partition`, on its connection in `bulk_nfp` or `bulk_client`.
"""

from __future__ import annotations

import os
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
from polydomo.sdk.url import DEFAULT_URL, VARIABLE, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What is added to each row, in this order: name, type, what it is.
COLUMNS: Final = (
    ("result", "binary", "the answer; null if there is none"),
    ("outcome", "string", "done, failed, dead, cancelled, refused, timeout or unreachable"),
    ("error", "string", "why there is no result: a stable word"),
    ("message", "string", "the same for people"),
    ("attempts", "int", "how often the broker gave the job to a worker; null where it keeps no record"),
    ("submitted", "timestamp", "when the broker took the job"),
    ("finished", "timestamp", "when it ended"),
)

# The result as bytes, as text, or as the list of its frames.
BINARY: Final = "binary"
TEXT: Final = "text"
FRAMES: Final = "frames"

WINDOW: Final = 256
LARGEST_WINDOW: Final = 1000  # the broker's `limits.client_jobs`, unless configured: it reads no further
TIMEOUT: Final = 600.0
PATIENCE: Final = 60.0

# An answer that is no JSON of the type that was asked for.
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
    """The same rows with `result`, `outcome`, `error`, `message`, `attempts`, `submitted` and `finished` (`COLUMNS`).

    Nothing is sent before an action asks for the rows. Failures are rows, never exceptions.

    - `body`: the column, or expression, that is sent. Binary goes as it is, text as UTF-8, a struct, map or array as
      JSON, a number as JSON. Default: the whole row as a JSON object.
    - `url`: as for `polydomo.Client`. Jobs that are kept go over NFP, at the same address, if it is an mdp:// or dcp://
      one.
    - `key`: the column or columns a row is known by; default: its body. Two rows with one key are one job, and the
      second is refused if it has another body.
    - `run`: rows of one run that are the same are the same job, whoever sends them. Default: a new one for each call.
    - `durable`: False: jobs are not kept, and what is lost on the way, or repeated by Spark, is run again.
    - `decode`: "binary", "text", "frames" (a list of binary), or a type ("a int, b string", `DataType`) that the result
      is, in JSON.
    - `window`: rows under way at a time, in each partition.
    - `timeout`: seconds for one row; None: as long as it takes. Its job goes on: the same `run` finds it later.
    - `deadline`: seconds after which a job that has not ended is given up by the broker. Its body must be a JSON
      object: NFP puts it in there, as a member `options` that workers of other dialects see.
    - `patience`: seconds to wait for a broker, or for somebody who offers the service, before all that is left fails.
    - `prefix`: stands before the names of the columns that are added.
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
        raise ConfigError("deadline= needs NFP, and so durable=True", hint="timeout= ends the waiting")
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
    """The URL, in a dialect that can say what is asked for. Read here, on the driver: executors have another
    environment."""
    text = url or os.environ.get(VARIABLE) or DEFAULT_URL
    found = parse(text)
    if not durable and found.dialect == "nfp":
        return f"dcp{text[3:]}"  # NFP's jobs are always kept
    if not durable or found.dialect == "nfp":
        return text
    if found.dialect == "memo":
        raise ConfigError(
            f"{text}: MemoDB's jobs are not kept",
            hint="give the broker's ZeroMQ address (nfp://HOST:PORT), or durable=False",
        )
    return f"nfp{text[3:]}"


def _request(df: DataFrame, sent: Column) -> Column:
    """As bytes."""
    kind = df.select(sent.alias("body")).schema["body"].dataType.simpleString()
    if kind == "binary":
        return sent
    if kind == "string" or kind in _PLAIN or kind.startswith("decimal"):
        return sent.cast("string").cast("binary")
    if kind.startswith(("struct", "map", "array", "variant")):
        return fn.to_json(sent, {"ignoreNullFields": "false"}).cast("binary")
    raise ConfigError(
        f"a {kind} has no form in which it could be sent", hint="put it into a struct, or cast it to string"
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
    # As a member of an object any type can be read, and what could not be has a place to be noted.
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
    """From Spark's own notation; a bare list of fields is a struct."""
    try:
        return DataType.fromDDL(text)
    except PySparkException as error:
        raise ConfigError(
            f"decode={text!r} is no type: {error}",
            hint=f"give {BINARY}, {TEXT}, {FRAMES}, or a type as in 'a int, b string' or 'array<double>'",
        ) from None


def _column(given: str | Column) -> Column:
    return fn.col(given) if isinstance(given, str) else given


def _columns(given: str | Column | Sequence[str | Column]) -> list[Column]:
    several = [given] if isinstance(given, str | Column) else list(given)
    if not several:
        raise ConfigError(
            "key=[]: a row is known by one column at least", hint="leave it out: then it is the body"
        )
    return [_column(one) for one in several]


def _check_names(there: Sequence[str], added: Iterable[str]) -> None:
    taken = sorted(set(there) & {*added, BODY, KEY})
    if taken:
        raise ConfigError(
            f"the rows have columns of their own called {', '.join(taken)}",
            hint="rename them, or give a prefix= for the columns that are added",
        )


def _run(run: str | None) -> str:
    if run is None:
        return uuid4().hex
    if not _RUN.fullmatch(run):
        raise ConfigError(
            f"run={run!r} is no name for a run",
            hint="1 to 64 letters, digits and _.:@/+-, such as 2026-11-16",
        )
    return run


def _window(window: int) -> int:
    if not 1 <= window <= LARGEST_WINDOW:
        raise ConfigError(f"window={window!r}: from 1 to {LARGEST_WINDOW} rows can be under way", hint="")
    return window


def _positive(name: str, value: float | None) -> float | None:
    if value is not None and value <= 0:
        raise ConfigError(f"{name}={value!r}: it is a number of seconds, and more than 0", hint="")
    return value
