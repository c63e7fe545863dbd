"""`service_minute` from columns: the rows that some jobs add to the table, computed by numpy.

Spark aggregates percentile sketches through generic rows and interpreted expressions, and every sum along with them.
With Arrow columns the same is a sort by service and minute, sums over its runs, and sketches of whole runs: less than
half of the time (docs/explanation/pipeline.md). So a Spark task reads its files with Arrow and returns what they add,
one row per service and minute; Spark moves, merges and writes these.

The rules of `counting` apply: which rows are runs (`columns`), and sums in whole microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from polydomo.ledger.schema import OUTCOMES
from polydomo.pipeline.tables import columns, kll
from polydomo.pipeline.tables.columns import Words
from polydomo.pipeline.tables.counting import MINUTE_US, US
from polydomo.pipeline.tables.sketches import RANKS
from polydomo.pipeline.tables.spreading import Groups, spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from polydomo.pipeline.tables.columns import Ints

# Columns of silver's `jobs`, by use.
TIMES: Final = ("wait_s", "run_s", "total_s")
COLUMNS: Final = (
    *("service", "outcome", "finished", "queued", "attempts", "part"),
    *("durable", "memo_hit", "repeat", "bytes_in", "bytes_out"),
    *TIMES,
)

# The table's columns, by use.
COUNTS: Final = ("jobs", *OUTCOMES, "retries", "memo_hits", "bytes_in", "bytes_out")
SUMS: Final = (*TIMES, "waiting_s")  # of seconds; like `wait_max`, kept as whole microseconds in this module
SKETCHES: Final = ("wait_sketch", "run_sketch", "total_sketch")
PERCENTILES: Final = tuple(f"{name.removesuffix('_s')}_{label}" for name in TIMES for label in RANKS)
SCHEMA: Final = pa.schema(
    [
        ("day", pa.date32()),
        ("service", pa.string()),
        ("minute", pa.timestamp("us", tz="UTC")),
        *[(name, pa.int64()) for name in COUNTS],
        *[(name, pa.float64()) for name in ("rate", "error_rate", "queue", *SUMS, "wait_max", *PERCENTILES)],
        *[(name, pa.binary()) for name in SKETCHES],
    ]
)


def parts(jobs: pa.Table, k: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows that these jobs add: to the minutes in which they ended, and to those in which they waited."""
    wanted = columns.are_runs(jobs)
    runs = jobs if wanted.all() else jobs.filter(pa.array(wanted))
    if runs.num_rows == 0:
        return
    services = Words.of(runs["service"])
    finished = columns.ints(runs["finished"])
    minutes = finished // MINUTE_US
    begin, end = _waiting(runs, finished)
    yield _ended(runs, services, Groups.of(minutes, services.codes, len(services.names)), begin, end, k)
    before = np.flatnonzero(begin < minutes * MINUTE_US)
    if len(before):
        last = np.minimum(end[before], minutes[before] * MINUTE_US)
        yield _waited(services, *spread(services.codes[before], begin[before], last), k)


def _ended(runs: pa.Table, services: Words, groups: Groups, begin: Ints, end: Ints, k: int) -> pa.RecordBatch:
    outcomes = Words.of(runs["outcome"])
    known = outcomes.names.to_pylist()
    from_here = np.maximum(begin, columns.ints(runs["finished"]) // MINUTE_US * MINUTE_US)
    found: dict[str, Any] = {
        "jobs": groups.ends() - groups.starts,
        **{
            outcome: groups.total(outcomes.codes == (known.index(outcome) if outcome in known else -1))
            for outcome in OUTCOMES
        },
        "retries": groups.total(np.maximum(columns.ints(runs["attempts"]) - 1, 0)),
        "memo_hits": groups.total(columns.flags(runs["memo_hit"])),
        "bytes_in": groups.total(columns.ints(runs["bytes_in"])),
        "bytes_out": groups.total(columns.ints(runs["bytes_out"])),
        "waiting_s": groups.total(np.maximum(end - from_here, 0)),
    }
    for name in TIMES:
        of = name.removesuffix("_s")
        values = runs[name].to_numpy()[groups.order]  # NaN for null
        there = ~np.isnan(values)
        us = np.rint(np.where(there, values, -1 / US) * US).astype(np.int64)
        found[name] = np.add.reduceat(np.where(there, us, 0), groups.starts)
        if of == "wait":
            found["wait_max"] = np.maximum.reduceat(us, groups.starts)
        counts = np.add.reduceat(there.astype(np.int64), groups.starts)
        ordered = kll.sort_groups(values[there].astype(np.float32), counts)
        found[f"{of}_sketch"] = kll.sketches(ordered, np.cumsum(counts), k)
        found |= {f"{of}_{label}": _exact(ordered, counts, rank, k) for label, rank in RANKS.items()}
    return whole(services.said(groups.minor), groups.major, found)


def _exact(values: NDArray[np.float32], counts: Ints, rank: float, k: int) -> pa.Array:
    """Return a percentile of each group whose sketch has all values, identical to the sketch's; null for others."""
    known = (counts > 0) & (counts <= k)
    found = values[np.where(known, kll.places(counts, rank), 0)] if len(values) else np.zeros(len(counts))
    return pa.array(in_micros(found.astype(np.float64)), mask=~known)


def in_micros(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round to whole microseconds. The remaining digits of a float are noise."""
    rounded: NDArray[np.float64] = np.rint(seconds * US) / US
    return rounded


def _waited(services: Words, codes: Ints, minutes: Ints, spent: Ints, k: int) -> pa.RecordBatch:
    nothing = kll.sketches(np.empty(0, np.float32), np.zeros(len(codes), np.int64), k)
    found: dict[str, Any] = dict.fromkeys(COUNTS, 0 * spent) | dict.fromkeys(TIMES, 0 * spent)
    found |= {"waiting_s": spent, "wait_max": 0 * spent - 1} | dict.fromkeys(SKETCHES, nothing)
    return whole(services.said(codes), minutes, found | dict.fromkeys(PERCENTILES, pa.nulls(len(codes))))


def whole(services: pa.Array, minutes: Ints, found: dict[str, Any]) -> pa.RecordBatch:
    """Return rows of the table from the values of these services and minutes. `wait_max`: negative if no job waited."""
    jobs, longest = found["jobs"], found["wait_max"]
    errors = found["failed"] + found["dead"] + found["refused"]
    minute = pa.array(minutes * MINUTE_US).cast(pa.timestamp("us"))
    given = found | {
        "day": minute.cast(pa.date32()),
        "service": services,
        "minute": minute,
        "rate": jobs / 60.0,
        "error_rate": pa.array(errors / np.maximum(jobs, 1), mask=jobs == 0),
        "queue": found["waiting_s"] / float(MINUTE_US),
        "wait_max": pa.array(longest / US, mask=longest < 0),
        **{name: found[name] / US for name in SUMS},
    }
    arrays = [pa.array(given[field.name]).cast(field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _waiting(runs: pa.Table, finished: Ints) -> tuple[Ints, Ints]:
    """Return when each job was in the queue, in microseconds. For a job that never was, both are its end."""
    begin = columns.ints(runs["queued"], -1)
    wait = runs["wait_s"].to_numpy()
    waited = ~np.isnan(wait)
    gone = (columns.ints(runs["attempts"], 1) == 0) & ~columns.flags(runs["memo_hit"])
    end = np.where(waited, begin + np.rint(np.where(waited, wait, 0) * US).astype(np.int64), finished)
    # The wall clock may have been set back: no job waits beyond its end.
    end = np.minimum(end, finished)
    was = (begin >= 0) & (waited | gone) & (end > begin)
    return np.where(was, begin, finished), np.where(was, end, finished)
