"""`service_minute` from columns: what some jobs add to the table, worked out by numpy.

Spark aggregates percentile sketches through generic rows and interpreted expressions, and beside them every sum. Over
Arrow's columns the same is a sort by service and minute, sums over its runs, and sketches that are made of whole runs:
less than half of the time (docs/explanation/pipeline.md). So a task of Spark's reads its files by Arrow and hands on
what they add, one row per service and minute; Spark moves, merges and writes these.

The rules are those of `counting`, said once more for columns: who is a run, and that sums are of whole microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from polydomo.ledger.schema import DONE, OUTCOMES
from polydomo.pipeline.tables import kll
from polydomo.pipeline.tables.counting import MINUTE_US, US
from polydomo.pipeline.tables.sketches import RANKS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

# Columns of silver's `jobs`, by what is done with them.
TIMES: Final = ("wait_s", "run_s", "total_s")
WORDS: Final = ("service", "outcome")
COLUMNS: Final = (
    *WORDS,
    *("finished", "queued", "attempts", "part", "durable", "memo_hit", "repeat", "bytes_in", "bytes_out"),
    *TIMES,
)

# So many rows are worked on at once: enough for long runs, and 70 to 180 MiB beside the rows themselves.
PORTION: Final = 500_000

# What comes out, beside `service` and `minute`. Times are whole microseconds; `wait_max` may be null.
COUNTS: Final = ("jobs", *OUTCOMES, "retries", "memo_hits", "bytes_in", "bytes_out")
SUMS_US: Final = ("wait_us", "run_us", "total_us", "waiting_us", "wait_max_us")
SKETCHES: Final = ("wait_sketch", "run_sketch", "total_sketch")
PERCENTILES: Final = tuple(f"{name.removesuffix('_s')}_{label}" for name in TIMES for label in RANKS)
SCHEMA: Final = pa.schema(
    [
        ("service", pa.string()),
        ("minute", pa.timestamp("us", tz="UTC")),
        *[(name, pa.int64()) for name in (*COUNTS, *SUMS_US)],
        *[(name, pa.float64()) for name in PERCENTILES],
        *[(name, pa.binary()) for name in SKETCHES],
    ]
)


def portions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Small batches put together."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= PORTION:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if held:
        yield pa.Table.from_batches(held)


def parts(jobs: pa.Table, k: int) -> Iterator[pa.RecordBatch]:
    """What these jobs add: to the minutes in which they ended, and to earlier ones in which they waited."""
    wanted = _are_runs(jobs)
    runs = jobs if wanted.all() else jobs.filter(pa.array(wanted))
    if runs.num_rows == 0:
        return
    services = _encoded(runs["service"])
    codes = (
        services.indices.fill_null(len(services.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    names = pa.concat_arrays([services.dictionary, pa.nulls(1, services.dictionary.type)]).cast(pa.string())
    finished = _ints(runs["finished"])
    minutes = finished // MINUTE_US
    begin, end = _waiting(runs, finished)
    yield _ended(runs, names, _Groups.of(minutes, codes, len(names)), begin, end, k)
    before = np.flatnonzero(begin < minutes * MINUTE_US)
    if len(before):
        last = np.minimum(end[before], minutes[before] * MINUTE_US)
        yield _waited(names, *spread(codes[before], begin[before], last), k)


class _Groups(NamedTuple):
    """Rows by two numbers: `order` puts those that agree in both side by side, and each such run begins at one of
    `starts`. `major` and `minor`: the runs' numbers; they rise from run to run."""

    order: Ints
    starts: Ints
    major: Ints
    minor: Ints

    @classmethod
    def of(cls, major: Ints, minor: Ints, width: int) -> _Groups:
        """`width`: the minor numbers are below."""
        first = major.min()
        keys = (major - first) * width + minor
        order = np.argsort(keys, kind="stable")
        there = keys[order]
        starts = np.flatnonzero(np.concatenate(([True], there[1:] != there[:-1])))
        return cls(order, starts, there[starts] // width + first, there[starts] % width)

    def ends(self) -> Ints:
        return np.append(self.starts[1:], len(self.order))

    def total(self, values: NDArray[Any]) -> Ints:
        """Of each run; of values that are in the rows' own order."""
        return np.add.reduceat(values[self.order].astype(np.int64), self.starts)


def _ended(
    runs: pa.Table, names: pa.Array, groups: _Groups, begin: Ints, end: Ints, k: int
) -> pa.RecordBatch:
    outcomes = _encoded(runs["outcome"])
    which = outcomes.indices.fill_null(len(outcomes.dictionary)).to_numpy(zero_copy_only=False)
    known = [*outcomes.dictionary.to_pylist(), None]
    from_here = np.maximum(begin, _ints(runs["finished"]) // MINUTE_US * MINUTE_US)
    found: dict[str, Any] = {
        "jobs": groups.ends() - groups.starts,
        **{
            outcome: groups.total(which == known.index(outcome)) if outcome in known else 0
            for outcome in OUTCOMES
        },
        "retries": groups.total(np.maximum(_ints(runs["attempts"]) - 1, 0)),
        "memo_hits": groups.total(_flags(runs["memo_hit"])),
        "bytes_in": groups.total(_ints(runs["bytes_in"])),
        "bytes_out": groups.total(_ints(runs["bytes_out"])),
        "waiting_us": groups.total(np.maximum(end - from_here, 0)),
    }
    for name in TIMES:
        of = name.removesuffix("_s")
        values = runs[name].to_numpy()[groups.order]  # NaN for null
        there = ~np.isnan(values)
        us = np.rint(np.where(there, values, -1 / US) * US).astype(np.int64)
        found[f"{of}_us"] = np.add.reduceat(np.where(there, us, 0), groups.starts)
        if of == "wait":
            longest = np.maximum.reduceat(us, groups.starts)
            found["wait_max_us"] = pa.array(longest, mask=longest < 0)
        counts = np.add.reduceat(there.astype(np.int64), groups.starts)
        ordered = _sorted(values[there].astype(np.float32), counts)
        found[f"{of}_sketch"] = kll.sketches(ordered, np.cumsum(counts), k)
        found |= {f"{of}_{label}": _exact(ordered, counts, rank, k) for label, rank in RANKS.items()}
    return _batch(names, groups.minor, groups.major, found)


def _sorted(values: NDArray[np.float32], counts: Ints) -> NDArray[np.float32]:
    """Each group for itself. None is negative, so that their bits are in the same order as they are."""
    keys = np.repeat(np.arange(len(counts), dtype=np.uint64) << np.uint64(32), counts)
    keys |= np.abs(values).view(np.uint32)
    keys.sort()
    return keys.astype(np.uint32).view(np.float32)


def _exact(values: NDArray[np.float32], counts: Ints, rank: float, k: int) -> pa.Array:
    """A percentile of each group whose sketch has all of its values, as its sketch has it; null of others."""
    known = (counts > 0) & (counts <= k)
    below = np.ceil(np.round(rank * counts, 7)).astype(np.int64)
    last = np.cumsum(counts) - counts + np.maximum(below, 1) - 1
    found = values[np.where(known, last, 0)] if len(values) else np.zeros(len(counts), np.float32)
    return pa.array(in_micros(found.astype(np.float64)), mask=~known)


def in_micros(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Percentiles are in whole microseconds. What floats add behind them is noise."""
    rounded: NDArray[np.float64] = np.rint(seconds * US) / US
    return rounded


def _waited(names: pa.Array, codes: Ints, minutes: Ints, spent: Ints, k: int) -> pa.RecordBatch:
    nothing = kll.sketches(np.empty(0, np.float32), np.zeros(len(codes), np.int64), k)
    found: dict[str, Any] = dict.fromkeys(SKETCHES, nothing) | {"waiting_us": spent}
    return _batch(
        names, codes, minutes, found | dict.fromkeys(("wait_max_us", *PERCENTILES), pa.nulls(len(codes)))
    )


def _batch(names: pa.Array, codes: Ints, minutes: Ints, found: dict[str, Any]) -> pa.RecordBatch:
    """What is not found, or one number, is so in every row."""
    keys: dict[str, Any] = {"service": names.take(pa.array(codes)), "minute": pa.array(minutes * MINUTE_US)}
    columns = []
    for field in SCHEMA:
        value = keys.get(field.name, found.get(field.name, 0))
        if isinstance(value, int):
            value = np.full(len(codes), value, np.int64)
        columns.append((value if isinstance(value, pa.Array) else pa.array(value)).cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def spread(codes: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """The microseconds of intervals (begin < end), given to each minute that they fall into, by code: codes, minutes
    and microseconds. Minutes within are counted by where intervals begin and end, not one by one: a million intervals
    of an hour within the same hour are a few hundred numbers."""
    first, last = begin // MINUTE_US, (end - 1) // MINUTE_US
    over = last > first
    # In the first minute and, if it is another one, in the last. Between them, all of each.
    at = np.concatenate((first, last[over], first[over] + 1, last[over]))
    of = np.concatenate((codes, *[codes[over]] * 3))
    spent = np.concatenate(
        (
            np.minimum(end, (first + 1) * MINUTE_US) - begin,
            (end - last * MINUTE_US)[over],
            np.zeros(2 * over.sum(), np.int64),
        )
    )
    step = np.zeros(len(at), np.int64)
    number = over.sum()
    step[len(at) - 2 * number : len(at) - number] = 1
    step[len(at) - number :] = -1
    zero = at.min()
    groups = _Groups.of(of, at - zero, int(at.max() - zero) + 1)
    minutes = groups.minor + zero
    under_way = np.cumsum(
        groups.total(step)
    )  # all that begins for a code ends before the next code's first minute
    # A minute where nothing begins or ends is like the one before it.
    until = np.append(minutes[1:], minutes[-1:] + 1)
    length = np.where(under_way > 0, until - minutes, 1)
    where = np.repeat(np.arange(len(minutes)), length)
    off = np.arange(len(where)) - np.repeat(np.cumsum(length) - length, length)
    whole = under_way[where] * MINUTE_US + np.where(off == 0, groups.total(spent)[where], 0)
    some = whole > 0
    return groups.major[where][some], (minutes[where] + off)[some], whole[some]


def _waiting(runs: pa.Table, finished: Ints) -> tuple[Ints, Ints]:
    """When each job was in the queue, in microseconds. Of one that never was, both are when it ended."""
    begin = _ints(runs["queued"], -1)
    wait = runs["wait_s"].to_numpy()
    waited = ~np.isnan(wait)
    gone = (_ints(runs["attempts"], 1) == 0) & ~_flags(runs["memo_hit"])
    end = np.where(waited, begin + np.rint(np.where(waited, wait, 0) * US).astype(np.int64), finished)
    # The wall clock may have been set back meanwhile: nothing waits longer than until its end.
    end = np.minimum(end, finished)
    was = (begin >= 0) & (waited | gone) & (end > begin)
    return np.where(was, begin, finished), np.where(was, end, finished)


def _are_runs(jobs: pa.Table) -> Flags:
    """As `counting.is_run`."""
    memo_hit = _flags(jobs["memo_hit"])
    done: Flags = pc.fill_null(pc.equal(jobs["outcome"], DONE), False).to_numpy()
    whole = jobs["part"].is_null().to_numpy() & (_ints(jobs["attempts"], 1) == 0) & done & ~memo_hit
    runs: Flags = ~(_flags(jobs["repeat"]) & ~_flags(jobs["durable"])) & ~whole
    return runs


def _encoded(words: pa.ChunkedArray) -> pa.DictionaryArray:
    """Each word once, and which of them it is."""
    coded = words if pa.types.is_dictionary(words.type) else words.dictionary_encode()
    whole = coded.unify_dictionaries().combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def _ints(column: pa.ChunkedArray, null: int = 0) -> Ints:
    numbers: Ints = pc.fill_null(column.cast(pa.int64()), null).to_numpy()
    return numbers


def _flags(column: pa.ChunkedArray) -> Flags:
    flags: Flags = pc.fill_null(column, False).to_numpy()
    return flags
