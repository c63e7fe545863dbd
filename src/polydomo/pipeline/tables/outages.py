"""`outages`: sessions of failure, per service and per worker.

Failures of one service, or of one worker, that are not more than GAP apart belong together. What comes out is cut at
midnight, so that a refresh never needs more than the days beside the new ones: a service that fails now and then for
weeks would otherwise be one row that begins weeks ago. Two pieces that belong together say so (`before`, `after`), and
`rollup.outages` joins them.

All that can happen to a row when failures are added is that it grows, joins another, or becomes an outage. Nothing is
ever taken back. So what a row says of a day that is out of reach of a refresh stays true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from polydomo.core.job import EXHAUSTED
from polydomo.ledger.schema import DEAD, FAILED
from polydomo.pipeline.tables import columns
from polydomo.pipeline.tables.columns import Batches, Words
from polydomo.pipeline.tables.counting import US
from polydomo.pipeline.tables.silver import ATTEMPTS, JOBS
from polydomo.pipeline.tables.spec import GoldTable, Objective, TableColumn, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from polydomo.pipeline.tables.columns import Flags, Ints

GAP_S: Final = 300  # failures that are further apart are not of one session
ENOUGH: Final = 3  # failures that make a session an outage

SPEC: Final = TableSpec(
    "outages",
    "gold",
    f"Sessions of failure, per service and per worker: failures that are at most {GAP_S} s apart. A failure is a "
    "run that ended as failed or dead, or an attempt that was lost; a cancelled job is none. A session over midnight "
    "has a row for each day.",
    ("what", "name", "start"),
    "day",
    (
        TableColumn("day", "date", "of start and end, in UTC"),
        TableColumn("what", "string", "service or worker"),
        TableColumn("name", "string", "which"),
        TableColumn("start", "timestamp", "the first failure"),
        TableColumn("end", "timestamp", "the last one"),
        TableColumn("duration_s", "double", "seconds between them"),
        TableColumn("failures", "bigint", "lost attempts, and jobs that failed in another way"),
        TableColumn("jobs", "bigint", "that ended as failed or dead"),
        TableColumn("lost", "bigint", "attempts that were lost"),
        TableColumn("before", "boolean", "it goes on from the day before"),
        TableColumn("after", "boolean", "it goes on on the day after"),
        TableColumn(
            "outage",
            "boolean",
            f"there were at least {ENOUGH} failures, those beyond midnight included; the others are kept because more "
            "may be added",
        ),
    ),
)

_COUNTS: Final = ("failures", "jobs", "lost")
_FLAGS: Final = ("before", "after", "outage")
_SCHEMA: Final = columns.schema(SPEC)

_GAP_US: Final = GAP_S * US
_DAY_US: Final = 86_400 * US


class _Failures(NamedTuple):
    """Single ones, or sessions of them: what each row of a table says. Times are in microseconds."""

    what: pa.Array
    name: pa.Array
    start: Ints
    end: Ints
    counts: dict[str, Ints]
    flags: dict[str, Flags]


def merged(rows: pa.Table) -> pa.Table:
    """Sessions of sessions."""
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
        # Of a job whose attempts were all lost, the last of these is the failure; it is among the attempts.
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
    """A failure is one of its service, and one of its worker if it had one."""
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
    """Join those of a day that are near each other."""
    if not len(found.start):
        return _SCHEMA.empty_table()
    whats, names = Words.of(pa.chunked_array(found.what)), Words.of(pa.chunked_array(found.name))
    whose = names.codes * len(whats.names) + whats.codes
    order = np.lexsort((found.end, found.start, whose))
    whose, start, end = whose[order], found.start[order], found.end[order]
    another = np.concatenate(([True], whose[1:] != whose[:-1]))
    # The latest end of all that began before, of the same one.
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
    """What the sessions before and behind say: those that are near are on another day. `another`: the first of a
    service, or of a worker."""
    near = ~another[1:] & (joined.start[1:] - joined.end[:-1] <= _GAP_US)
    no = [False]
    from_before, goes_on = np.concatenate((no, near)), np.concatenate((near, no))
    failures = joined.counts["failures"]
    # One that goes on at both ends is long enough to be an outage by itself: no more than two are ever to be added.
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
    """The same, where Spark's tasks are: one has all rows of a service, or of a worker."""
    return rows.repartition("what", "name").mapInArrow(_add_up, SPEC.ddl()).repartition(SPEC.partition)


_RUNS: Final = ("outcome", "attempts", "part", "durable", "memo_hit", "repeat")  # say what is one

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
