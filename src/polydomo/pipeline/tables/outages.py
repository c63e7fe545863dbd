"""`outages`: sessions of failures, per service and per worker.

Failures of one service, or of one worker, at most GAP_S apart form a session. Sessions are split at midnight, so that a
refresh never needs more than the days next to the new ones: a service that fails now and then for weeks would otherwise
be one row that begins weeks ago. Adjacent parts of a session are marked (`before`, `after`), and `rollup.outages` joins
them.

New failures can only extend a session, join it with another, or make it an outage. Nothing is ever undone. So the rows
of days outside of a refresh stay correct.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from polydomo.core.failure import EXHAUSTED
from polydomo.ledger.schema import DEAD, FAILED
from polydomo.pipeline.tables import columns
from polydomo.pipeline.tables.columns import Batches, Words
from polydomo.pipeline.tables.counting import US
from polydomo.pipeline.tables.silver import ATTEMPTS, JOBS
from polydomo.pipeline.tables.spec import GoldTable, Objective, TableColumn, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from polydomo.pipeline.tables.columns import Flags, Ints

GAP_S: Final = 300  # maximum distance of two failures of one session
ENOUGH: Final = 3  # minimum failures of an outage

SPEC: Final = TableSpec(
    "outages",
    "gold",
    f"Sessions of failures, per service and per worker: failures at most {GAP_S} s apart. A failure is a "
    "run that ended as failed or dead, or a lost attempt; a cancelled job is none. A session over midnight "
    "has a row for each day.",
    ("what", "name", "start"),
    "day",
    (
        TableColumn("day", "date", "of start and end, in UTC"),
        TableColumn("what", "string", "service or worker"),
        TableColumn("name", "string", "its name"),
        TableColumn("start", "timestamp", "the first failure"),
        TableColumn("end", "timestamp", "the last one"),
        TableColumn("duration_s", "double", "seconds between them"),
        TableColumn("failures", "bigint", "lost attempts, and jobs that failed in another way"),
        TableColumn("jobs", "bigint", "that ended as failed or dead"),
        TableColumn("lost", "bigint", "lost attempts"),
        TableColumn("before", "boolean", "it continues from the previous day"),
        TableColumn("after", "boolean", "it continues on the next day"),
        TableColumn(
            "outage",
            "boolean",
            f"there were at least {ENOUGH} failures, including those beyond midnight; other sessions are kept because "
            "more failures may be added",
        ),
    ),
)

_COUNTS: Final = ("failures", "jobs", "lost")
_FLAGS: Final = ("before", "after", "outage")
_SCHEMA: Final = columns.schema(SPEC)

_GAP_US: Final = GAP_S * US
_DAY_US: Final = 86_400 * US


class _Failures(NamedTuple):
    """Single failures, or sessions of them, as columns. Times are in microseconds."""

    what: pa.Array
    name: pa.Array
    start: Ints
    end: Ints
    counts: dict[str, Ints]
    flags: dict[str, Flags]


def merged(rows: pa.Table) -> pa.Table:
    """Merge sessions of old and new failures."""
    return _sessions(
        _Failures(
            *(rows["what"], rows["name"]),
            *(columns.ints(rows["start"]), columns.ints(rows["end"])),
            {name: columns.ints(rows[name]) for name in _COUNTS},
            {name: columns.flags(rows[name]) for name in _FLAGS},
        )
    )


def _of_jobs(batches: Batches, _: tuple[Objective, ...]) -> Batches:
    for jobs in columns.portions(batches):
        ended = columns.equal(jobs["outcome"], FAILED) | columns.equal(jobs["outcome"], DEAD)
        failed = jobs.filter(pa.array(ended & columns.are_runs(jobs)))
        # If all attempts of a job were lost, the last of them is the failure; it is among the attempts.
        had_one = failed["dispatched"].is_valid().to_numpy() & failed["worker"].is_valid().to_numpy()
        had_one &= columns.ints(failed["attempts"]) > 0
        all_lost = columns.equal(failed["outcome"], DEAD) | columns.equal(failed["error"], EXHAUSTED)
        one = np.ones(failed.num_rows, np.int64)
        yield from _singles(failed, "finished", (~(had_one & all_lost)).astype(np.int64), one, 0 * one)


def _of_attempts(batches: Batches, _: tuple[Objective, ...]) -> Batches:
    for attempts in columns.portions(batches):
        lost = attempts.filter(pa.array(columns.flags(attempts["lost"])))
        one = np.ones(lost.num_rows, np.int64)
        yield from _singles(lost, "ended", one, 0 * one, one)


def _singles(rows: pa.Table, time: str, *counts: Ints) -> Batches:
    """Yield failures as sessions of their service, and of their worker if there was one."""
    at = columns.ints(rows[time])
    for what in ("service", "worker"):
        known = rows[what].is_valid().to_numpy()
        found = _Failures(
            pa.array([what] * int(known.sum()), pa.string()),
            rows[what].filter(pa.array(known)),
            at[known],
            at[known],
            {name: values[known] for name, values in zip(_COUNTS, counts, strict=True)},
            {name: np.zeros(int(known.sum()), np.bool_) for name in _FLAGS},
        )
        yield from _sessions(found).to_batches()


def _sessions(found: _Failures) -> pa.Table:
    """Join failures of a day that are near each other."""
    if not len(found.start):
        return _SCHEMA.empty_table()
    whats, names = Words.of(pa.chunked_array(found.what)), Words.of(pa.chunked_array(found.name))
    whose = names.codes * len(whats.names) + whats.codes
    order = np.lexsort((found.end, found.start, whose))
    whose, start, end = whose[order], found.start[order], found.end[order]
    another = np.concatenate(([True], whose[1:] != whose[:-1]))
    # The latest end of all earlier ones of the same service or worker.
    until = np.empty_like(end)
    for group in np.split(np.arange(len(end)), np.flatnonzero(another)[1:]):
        until[group[1:]] = np.maximum.accumulate(end[group[:-1]])
    until[another] = 0
    day = start // _DAY_US
    next_day = np.concatenate(([True], day[1:] != day[:-1]))
    firsts = np.flatnonzero(another | next_day | (start - until > _GAP_US))
    joined = _Failures(
        whats.said(whose[firsts] % len(whats.names)),
        names.said(whose[firsts] // len(whats.names)),
        start[firsts],
        np.maximum.reduceat(end, firsts),
        {name: np.add.reduceat(values[order], firsts) for name, values in found.counts.items()},
        {name: np.logical_or.reduceat(values[order], firsts) for name, values in found.flags.items()},
    )
    return _table(_beside(joined, another[firsts]))


def _beside(joined: _Failures, another: Flags) -> _Failures:
    """Mark sessions that continue on another day, and outages. `another`: the first session of a service, or of a
    worker."""
    near = ~another[1:] & (joined.start[1:] - joined.end[:-1] <= _GAP_US)
    no = [False]
    from_before, goes_on = np.concatenate((no, near)), np.concatenate((near, no))
    failures = joined.counts["failures"]
    # A session that continues on both sides is an outage by itself, so at most two neighbours matter.
    enough = failures + from_before * np.roll(failures, 1) + goes_on * np.roll(failures, -1) >= ENOUGH
    told = {"before": from_before, "after": goes_on, "outage": enough}
    return joined._replace(flags={name: joined.flags[name] | told[name] for name in _FLAGS})


def _table(rows: _Failures) -> pa.Table:
    given = {
        "day": pa.array((rows.start // _DAY_US).astype(np.int32)).cast(pa.date32()),
        "what": rows.what,
        "name": rows.name,
        "start": pa.array(rows.start),
        "end": pa.array(rows.end),
        "duration_s": (rows.end - rows.start) / US,
        **rows.counts,
        **rows.flags,
    }
    return pa.table({name: given[name] for name in SPEC.names()}).cast(_SCHEMA)


def _add_up(batches: Batches) -> Batches:
    yield from merged(pa.Table.from_batches(list(batches), _SCHEMA)).to_batches()


def merge(rows: DataFrame) -> DataFrame:
    """Merge sessions in Spark tasks, each with all rows of a service, or of a worker."""
    return rows.repartition("what", "name").mapInArrow(_add_up, SPEC.ddl()).repartition(SPEC.partition)


_RUNS: Final = ("outcome", "attempts", "part", "durable", "memo_hit", "repeat")  # columns that define a run

_OF_JOBS: Final = ("service", "worker", "error", "finished", "dispatched", *_RUNS)
_OF_ATTEMPTS: Final = ("service", "worker", "ended", "lost")

OUTAGES: Final = GoldTable(
    SPEC,
    {
        "jobs": columns.reading(JOBS, _OF_JOBS, SPEC, _of_jobs),
        "attempts": columns.reading(ATTEMPTS, _OF_ATTEMPTS, SPEC, _of_attempts),
    },
    merge,
    merged,
    reach=1,
)
