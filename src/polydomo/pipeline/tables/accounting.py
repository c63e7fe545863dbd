"""Daily tables: usage per client (`client_day`), savings of the result cache (`memo_savings`), protocols
(`dialect_mix`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from polydomo.ledger.schema import DONE, OUTCOMES
from polydomo.pipeline.tables import columns
from polydomo.pipeline.tables.counting import ENDS
from polydomo.pipeline.tables.silver import JOBS
from polydomo.pipeline.tables.spec import Objective, TableColumn, TableSpec
from polydomo.pipeline.tables.sums import Sums, ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DAY: Final = TableColumn("day", "date", "on which the jobs ended, in UTC")
_SERVICE: Final = TableColumn("service", "string", "the service that ran it, or should have")

CLIENTS: Final = TableSpec(
    "client_day",
    "gold",
    "Usage of each client on each day. Counts asked jobs: a job for several workers is one job. The run time of its "
    "parts is in run_s of the rows that are not durable, since a part never is. Durable jobs have separate rows: "
    "their totals per client, service and outcome match the broker's store.",
    ("day", "principal", "client", "service", "durable"),
    "day",
    (
        _DAY,
        TableColumn("principal", "string", "the client's authenticated principal; null: none"),
        TableColumn("client", "string", "its name, or identity"),
        _SERVICE,
        TableColumn("durable", "boolean", "the jobs were durable"),
        TableColumn("jobs", "bigint", "that ended on this day"),
        *ENDS,
        TableColumn("repeats", "bigint", "repeated requests of a job; not among jobs"),
        TableColumn("parts", "bigint", "parts of jobs for several workers; not among jobs"),
        TableColumn("memo_hits", "bigint", "jobs with a cached result"),
        TableColumn("run_s", "double", "seconds of workers' time, of each job's or part's latest attempt"),
        TableColumn("wait_s", "double", "seconds that jobs waited for their first dispatch"),
        TableColumn("bytes_in", "bigint", "of requests"),
        TableColumn("bytes_out", "bigint", "of replies, including those of repeats"),
    ),
)

MEMO: Final = TableSpec(
    "memo_savings",
    "gold",
    "Savings of the result cache, per service and day. Counts runs. A service without a cache has only "
    "misses.",
    ("day", "service"),
    "day",
    (
        _DAY,
        _SERVICE,
        TableColumn("hits", "bigint", "jobs with a cached result"),
        TableColumn("misses", "bigint", "jobs that a worker ran, with a result"),
        TableColumn("hit_rate", "double", "hits / (hits + misses); null if there were neither"),
        TableColumn("misses_s", "double", "seconds of workers' time for the misses"),
        TableColumn(
            "saved_s",
            "double",
            "estimated workers' time saved by hits: hits * misses_s / misses; null without misses",
        ),
        TableColumn("bytes_out", "bigint", "of the cached results"),
    ),
)

DIALECTS: Final = TableSpec(
    "dialect_mix",
    "gold",
    "Protocols of clients and workers, per service and day. Counts asked jobs, including repeats.",
    ("day", "dialect_in", "dialect_out", "service"),
    "day",
    (
        _DAY,
        TableColumn("dialect_in", "string", "the clients' protocol"),
        TableColumn("dialect_out", "string", "the workers' protocol; null: no worker ran it, or several did"),
        _SERVICE,
        TableColumn("jobs", "bigint", "that ended on this day"),
        TableColumn("bytes_in", "bigint", "of requests"),
        TableColumn("bytes_out", "bigint", "of replies"),
    ),
)

Objectives = tuple[Objective, ...]

_CLIENTS: Final = Sums(
    CLIENTS,
    ("jobs", *OUTCOMES, "repeats", "parts", "memo_hits", "bytes_in", "bytes_out"),
    ("run_s", "wait_s"),
)


def _client_parts(jobs: pa.Table, _: Objectives) -> pa.Table:
    asked = columns.are_asked(jobs)
    ends = {outcome: asked & columns.equal(jobs["outcome"], outcome) for outcome in OUTCOMES}
    counts = {
        "jobs": asked & jobs["outcome"].is_valid().to_numpy(),
        **ends,
        "repeats": columns.are_repeats(jobs),
        "parts": jobs["part"].is_valid().to_numpy(),
        "memo_hits": asked & columns.flags(jobs["memo_hit"]),
        **_bytes(jobs),
        "run_s": columns.micros(jobs["run_s"]),
        "wait_s": asked * columns.micros(jobs["wait_s"]),
    }
    keys = {name: jobs[name] for name in CLIENTS.key} | {"durable": columns.flags(jobs["durable"])}
    return _CLIENTS.summed(keys, counts)


def _saved(found: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    hits, misses = found["hits"], found["misses"]
    return {"hit_rate": ratio(hits, hits + misses), "saved_s": ratio(hits * found["misses_s"], misses)}


_MEMO: Final = Sums(MEMO, ("hits", "misses", "bytes_out"), ("misses_s",), _saved)


def _memo_parts(jobs: pa.Table, _: Objectives) -> pa.Table:
    runs = jobs.filter(pa.array(columns.are_runs(jobs)))
    hits = columns.flags(runs["memo_hit"])
    misses = columns.equal(runs["outcome"], DONE) & ~hits & runs["run_s"].is_valid().to_numpy()
    counts = {
        "hits": hits,
        "misses": misses,
        "misses_s": misses * columns.micros(runs["run_s"]),
        "bytes_out": hits * columns.ints(runs["bytes_out"]),
    }
    return _MEMO.summed({name: runs[name] for name in MEMO.key}, counts)


_DIALECTS: Final = Sums(DIALECTS, ("jobs", "bytes_in", "bytes_out"))


def _dialect_parts(jobs: pa.Table, _: Objectives) -> pa.Table:
    asked = jobs.filter(jobs["part"].is_null())
    keys = {name: asked[name] for name in DIALECTS.key}
    return _DIALECTS.summed(keys, {"jobs": np.ones(asked.num_rows, np.int64), **_bytes(asked)})


def _bytes(jobs: pa.Table) -> dict[str, Any]:
    return {name: columns.ints(jobs[name]) for name in ("bytes_in", "bytes_out")}


_FLAGS: Final = ("durable", "repeat", "part", "memo_hit", "outcome")

CLIENT_DAY: Final = _CLIENTS.table(
    JOBS, (*CLIENTS.key[:-1], *_FLAGS, "bytes_in", "bytes_out", "run_s", "wait_s"), _client_parts
)
MEMO_SAVINGS: Final = _MEMO.table(JOBS, (*MEMO.key, *_FLAGS, "attempts", "bytes_out", "run_s"), _memo_parts)
DIALECT_MIX: Final = _DIALECTS.table(JOBS, (*DIALECTS.key, "part", "bytes_in", "bytes_out"), _dialect_parts)
