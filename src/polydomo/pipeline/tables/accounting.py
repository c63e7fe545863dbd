"""Tables per day: who used what (`client_day`), what memory saved (`memo_savings`), which protocols were spoken
(`dialect_mix`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from polydomo.ledger.schema import OUTCOMES
from polydomo.pipeline.tables.counting import (
    ENDS,
    count_of,
    is_asked,
    is_repeat,
    is_run,
    ratio,
    total,
    total_s,
    truth,
)
from polydomo.pipeline.tables.spec import GoldTable, Objective, TableColumn, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_DAY: Final = TableColumn("day", "date", "on which the jobs ended, in UTC")
_SERVICE: Final = TableColumn("service", "string", "who did it, or should have")

CLIENTS: Final = TableSpec(
    "client_day",
    "gold",
    "What each client used on each day. Counts what was asked for: a job for several workers is one job. Its parts' "
    "time is in run_s of the rows that are not durable, since a part never is. Durable jobs have rows of their own: "
    "their totals per client, service and outcome are those of the broker's store.",
    ("day", "principal", "client", "service", "durable"),
    "day",
    (
        _DAY,
        TableColumn("principal", "string", "who the client proved to be; null: nobody"),
        TableColumn("client", "string", "its name, or identity"),
        _SERVICE,
        TableColumn("durable", "boolean", "the jobs were kept on disk"),
        TableColumn("jobs", "bigint", "that ended on this day"),
        *ENDS,
        TableColumn("repeats", "bigint", "jobs that were asked for once more; not among jobs"),
        TableColumn("parts", "bigint", "parts of jobs for several workers; not among jobs"),
        TableColumn("memo_hits", "bigint", "jobs that were answered from memory"),
        TableColumn("run_s", "double", "seconds of workers' time, of each job's or part's latest attempt"),
        TableColumn("wait_s", "double", "seconds that jobs waited for their first dispatch"),
        TableColumn("bytes_in", "bigint", "of requests"),
        TableColumn("bytes_out", "bigint", "of answers, repeats' included"),
    ),
)

MEMO: Final = TableSpec(
    "memo_savings",
    "gold",
    "What remembered answers saved, per service and day. Counts runs. A service that remembers nothing has only "
    "misses.",
    ("day", "service"),
    "day",
    (
        _DAY,
        _SERVICE,
        TableColumn("hits", "bigint", "jobs that were answered from memory"),
        TableColumn("misses", "bigint", "jobs that a worker did, with a result"),
        TableColumn("hit_rate", "double", "hits / (hits + misses); null if there were neither"),
        TableColumn("misses_s", "double", "seconds of workers' time for the misses"),
        TableColumn(
            "saved_s",
            "double",
            "estimate of the workers' time that hits saved: hits * misses_s / misses; null without misses",
        ),
        TableColumn("bytes_out", "bigint", "of the answers from memory"),
    ),
)

DIALECTS: Final = TableSpec(
    "dialect_mix",
    "gold",
    "Which protocols clients and workers spoke, per service and day. Counts what was asked for, repeats included.",
    ("day", "dialect_in", "dialect_out", "service"),
    "day",
    (
        _DAY,
        TableColumn("dialect_in", "string", "the clients' protocol"),
        TableColumn("dialect_out", "string", "the workers' protocol; null: no worker had it, or several did"),
        _SERVICE,
        TableColumn("jobs", "bigint", "that ended on this day"),
        TableColumn("bytes_in", "bigint", "of requests"),
        TableColumn("bytes_out", "bigint", "of answers"),
    ),
)

Silver = Mapping[str, "DataFrame"]
Objectives = tuple[Objective, ...]

_CLIENT_COUNTS: Final = ("jobs", *OUTCOMES, "repeats", "parts", "memo_hits", "bytes_in", "bytes_out")
_CLIENT_TIMES: Final = ("run_s", "wait_s")


def client_delta(silver: Silver, objectives: Objectives = ()) -> DataFrame:
    """From silver's `jobs`."""
    asked, part = is_asked(), F.col("part").isNotNull()
    rows = silver["jobs"].select(
        *("day", "principal", "client", "service", "bytes_in", "bytes_out", "run_s"),
        truth("durable").alias("durable"),
        F.when(asked, F.col("outcome")).alias("outcome"),
        is_repeat().alias("repeat"),
        part.alias("part"),
        (asked & truth("memo_hit")).alias("memo_hit"),
        F.when(asked, F.col("wait_s")).alias("wait_s"),
    )
    return _in_order(
        rows.groupBy(*CLIENTS.key).agg(
            F.count("outcome").alias("jobs"),
            *[count_of(F.col("outcome") == outcome).alias(outcome) for outcome in OUTCOMES],
            count_of(F.col("repeat")).alias("repeats"),
            count_of(F.col("part")).alias("parts"),
            count_of(F.col("memo_hit")).alias("memo_hits"),
            *[total(name).alias(name) for name in ("bytes_in", "bytes_out")],
            *[total_s(name).alias(name) for name in _CLIENT_TIMES],
        ),
        CLIENTS,
    )


def client_merge(rows: DataFrame) -> DataFrame:
    """One row per key."""
    return _in_order(_added(rows, CLIENTS, _CLIENT_COUNTS, _CLIENT_TIMES), CLIENTS)


def memo_delta(silver: Silver, objectives: Objectives = ()) -> DataFrame:
    """From silver's `jobs`."""
    hit = truth("memo_hit")
    miss = (F.col("outcome") == "done") & ~hit & F.col("run_s").isNotNull()
    found = (
        silver["jobs"]
        .where(is_run())
        .groupBy("day", "service")
        .agg(
            count_of(hit).alias("hits"),
            count_of(miss).alias("misses"),
            total_s(F.when(miss, F.col("run_s"))).alias("misses_s"),
            total(F.when(hit, F.col("bytes_out"))).alias("bytes_out"),
        )
    )
    return _saved(found)


def memo_merge(rows: DataFrame) -> DataFrame:
    """One row per key."""
    return _saved(_added(rows, MEMO, ("hits", "misses", "bytes_out"), ("misses_s",)))


def dialect_delta(silver: Silver, objectives: Objectives = ()) -> DataFrame:
    """From silver's `jobs`."""
    found = (
        silver["jobs"]
        .where("part IS NULL")
        .groupBy(*DIALECTS.key)
        .agg(
            F.count(F.lit(1)).alias("jobs"),
            *[total(name).alias(name) for name in ("bytes_in", "bytes_out")],
        )
    )
    return _in_order(found, DIALECTS)


def dialect_merge(rows: DataFrame) -> DataFrame:
    """One row per key."""
    return _in_order(_added(rows, DIALECTS, ("jobs", "bytes_in", "bytes_out"), ()), DIALECTS)


def _saved(rows: DataFrame) -> DataFrame:
    hits, misses = F.col("hits"), F.col("misses")
    saved: list[Column] = [
        ratio(hits, hits + misses).alias("hit_rate"),
        ratio(hits * F.col("misses_s"), misses).alias("saved_s"),
    ]
    return _in_order(rows.select("*", *saved), MEMO)


def _added(rows: DataFrame, spec: TableSpec, counts: Sequence[str], times: Sequence[str]) -> DataFrame:
    return rows.groupBy(*spec.key).agg(
        *[total(name).alias(name) for name in counts], *[total_s(name).alias(name) for name in times]
    )


def _in_order(rows: DataFrame, spec: TableSpec) -> DataFrame:
    return rows.select(*spec.names())


CLIENT_DAY: Final = GoldTable(CLIENTS, ("jobs",), client_delta, client_merge)
MEMO_SAVINGS: Final = GoldTable(MEMO, ("jobs",), memo_delta, memo_merge)
DIALECT_MIX: Final = GoldTable(DIALECTS, ("jobs",), dialect_delta, dialect_merge)
