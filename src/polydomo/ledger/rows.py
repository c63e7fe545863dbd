"""Ended jobs become columns.

This runs in the broker's own loop, so it is made for many jobs at once: one pass per column in C or in a list
comprehension, about a microsecond for all columns of a job that has nothing special about it. What only some jobs
have (a key, a deadline, parts) is looked at only for those.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy
import pyarrow
from pyarrow import compute

from polydomo.core import job as jobs
from polydomo.core.columns import Columns
from polydomo.core.job import Job
from polydomo.core.policy import FOREVER
from polydomo.core.targets import KINDS, Target
from polydomo.ledger.schema import CANCELLED, DEAD, DONE, FAILED, JOBS, REFUSED, Table

TYPES: Final[dict[str, Any]] = {
    "string": pyarrow.string(),
    "int32": pyarrow.int32(),
    "int64": pyarrow.int64(),
    "bool": pyarrow.bool_(),
    "timestamp": pyarrow.timestamp("us", "UTC"),
}

# Before such a job was accepted, or instead of that.
_REFUSALS: Final = (
    jobs.QUEUE_FULL,
    jobs.NO_MEMORY,
    jobs.DRAINING,
    jobs.BAD_SERVICE,
    jobs.TOO_MANY_SERVICES,
    jobs.STORE,
    jobs.DUPLICATE,
    jobs.BAD_TARGET,
)

_MICROS: Final = 1_000_000

# One text repeated is a dictionary of one entry, until a segment is written.
_WORD: Final = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())


def arrow_schema(table: Table, metadata: dict[bytes, bytes] | None = None) -> Any:
    """The table's schema in a segment."""
    fields = [pyarrow.field(column.name, TYPES[column.kind], column.nullable) for column in table.columns]
    return pyarrow.schema(fields, metadata)


@lru_cache(maxsize=65536)
def text(name: bytes) -> str:
    """A peer's name for people: itself if it is printable text, else its bytes in hexadecimal digits."""
    try:
        shown = name.decode()
    except UnicodeDecodeError:
        return "0x" + name.hex()
    return shown if shown.isprintable() else "0x" + name.hex()


def job_id(job: Job, run: str) -> str:
    """Its own, or the broker's run and a number; a part's is the whole's and which part."""
    extra = job.extra
    if extra is None:
        return f"{run}-{job.id}"
    return extra.uid if extra.parent is None else f"{extra.uid}/{extra.part}"


def batch_of(ended: list[Job], epoch: float, broker: str, run: str) -> Any:
    """A record batch of the table `jobs`, but for the ids of jobs that have none of their own: these are null here, and
    made from the last column by whoever writes the segment (`with_ids`). `epoch` is the wall time at the core's time
    0."""
    columns = Columns(ended)
    found = _plain(columns, ended, epoch)
    count = len(ended)
    found["broker"] = _word(broker, count)
    found["run"] = _word(run, count)
    if columns.failed:
        _add_failures(found, ended, columns.failed)
    if columns.special:
        _add_extras(found, ended, columns.special, epoch)
    arrays = [_column(found[column.name], column.kind) for column in JOBS.columns]
    return pyarrow.record_batch([*arrays, pyarrow.array(columns.ids, pyarrow.int64())], [*_NAMES, _NUMBER])


_NAMES: Final = [column.name for column in JOBS.columns]
_NUMBER: Final = "number"


def batch_of_rows(rows: list[dict[str, object]]) -> Any:
    """The same from rows that have been made otherwise, each with an id."""
    plain = pyarrow.RecordBatch.from_pylist(rows, arrow_schema(JOBS))
    arrays = [_column(plain.column(place), column.kind) for place, column in enumerate(JOBS.columns)]
    numbers = pyarrow.nulls(len(rows), pyarrow.int64())
    return pyarrow.record_batch([*arrays, numbers], [*_NAMES, _NUMBER])


def with_ids(table: Any, run: str) -> Any:
    """The table as it is written: every job has an id."""
    numbers = compute.cast(table[_NUMBER], pyarrow.string())
    made = compute.binary_join_element_wise(pyarrow.scalar(run), numbers, "-")
    own = table["job_id"].cast(pyarrow.string())
    return table.set_column(0, "job_id", compute.coalesce(own, made)).drop_columns([_NUMBER])


def _plain(columns: Columns, ended: list[Job], epoch: float) -> dict[str, Any]:
    """What every job has. Columns that `_add_…` change are numpy's arrays until then."""
    count = len(ended)
    submitted = _floats(columns.submitted)
    queued = _floats(columns.queued)
    started = _floats(columns.started)
    dispatched = _floats(columns.dispatched)
    finished = _floats(columns.finished)
    for place in columns.special:
        finished[place] = _end_of(ended[place])
    nothing = pyarrow.nulls(count)
    none = numpy.zeros(count, bool)
    return {
        "job_id": nothing,
        "parent": nothing,
        "part": nothing,
        "key": nothing,
        "service": _names(columns.services),
        "asked": _names(columns.asked),
        "dialect_in": _words(columns.dialects_in),
        "dialect_out": _words(columns.dialects_out),
        "client": _names(columns.clients),
        "principal": nothing,
        "worker": _names(columns.workers),
        "target": _word("any", count),
        "submitted": _wall(submitted, epoch),
        "queued": _wall(queued, epoch),
        "dispatched": _times(_wall(dispatched, epoch), dispatched > 0),
        "first_partial": _first_partials(ended, epoch) if any(columns.partials) else nothing,
        "finished": _wall(finished, epoch),
        "outcome": _word(DONE, count),
        "error": nothing,
        "attempts": _ints(columns.attempts),
        "partials": _ints(columns.partials),
        "bytes_in": _ints(columns.sizes_in),
        "bytes_out": _ints(columns.sizes_out),
        "durable": none,
        "memo_hit": none,
        "repeat": none,
        "priority": numpy.zeros(count, numpy.int32),
        "deadline": nothing,
        "waited_us": _lasted(queued, started, started > 0),
        "ran_us": _lasted(dispatched, finished, dispatched > 0),
        "took_us": _lasted(submitted, finished, finished >= submitted),
        "rebuilt": none,
    }


def _end_of(job: Job) -> float:
    """When its worker was done with it: that an end is being recorded is no work of its worker's."""
    return job.extra.answered if job.extra is not None and job.extra.answered else job.finished


def _add_failures(found: dict[str, Any], ended: Sequence[Job], failed: Sequence[int]) -> None:
    outcomes = [DONE] * len(ended)
    errors: list[str | None] = [None] * len(ended)
    for place in failed:
        job = ended[place]
        if job.failure is not None:
            outcomes[place] = outcome(job.failure.reason, is_durable(job))
            errors[place] = job.failure.reason
    found["outcome"] = _words(outcomes)
    found["error"] = _words(errors)


def outcome(reason: str, durable: bool) -> str:
    """How a job that failed for this reason ended: what the store says of a durable one."""
    if reason == jobs.CANCELLED:
        return CANCELLED
    if durable:
        return DEAD if reason == jobs.EXHAUSTED else FAILED
    return REFUSED if reason in _REFUSALS else FAILED


def is_durable(job: Job) -> bool:
    """Has the store a record of its own for it?"""
    extra = job.extra
    return extra is not None and extra.durable and extra.added


def _add_extras(found: dict[str, Any], ended: Sequence[Job], special: Sequence[int], epoch: float) -> None:
    """What those have that are durable or came with options."""
    count = len(ended)
    ids: list[str | None] = [None] * count
    parents: list[str | None] = [None] * count
    parts: list[int | None] = [None] * count
    keys: list[str | None] = [None] * count
    targets = ["any"] * count
    deadlines: list[int | None] = [None] * count
    durable, hits, repeats = numpy.zeros((3, count), bool)
    priorities = numpy.zeros(count, numpy.int32)
    attempts, submitted, finished = found["attempts"], found["submitted"], found["finished"]
    unknown = numpy.zeros(count, bool)
    began = numpy.zeros(count, numpy.int64)
    for place in special:
        job = ended[place]
        extra = job.extra
        assert extra is not None
        ids[place] = job_id(job, "")
        if extra.parent is not None and extra.parent.extra is not None:
            parents[place] = extra.parent.extra.uid
            parts[place] = extra.part
        if extra.key:
            keys[place] = text(extra.key)
        if extra.target is not None:
            targets[place] = target_text(extra.target)
        if extra.deadline < FOREVER:
            deadlines[place] = int((extra.deadline + epoch) * _MICROS)
        hits[place] = extra.hit
        repeats[place] = extra.repeats or extra.recalled or extra.leader is not None
        priorities[place] = extra.priority
        if extra.parent is None:
            submitted[place] = extra.submitted
        if extra.durable and extra.added:
            durable[place] = True
            attempts[place] = extra.number
            finished[place] = extra.ended
            if extra.began:
                began[place] = extra.began
        if extra.restored:
            unknown[place] = True
    found["job_id"] = pyarrow.array(ids, pyarrow.string())
    found["parent"], found["part"] = (
        pyarrow.array(parents, pyarrow.string()),
        pyarrow.array(parts, pyarrow.int32()),
    )
    found["key"], found["target"] = pyarrow.array(keys, pyarrow.string()), _words(targets)
    found["deadline"] = pyarrow.array(deadlines, pyarrow.int64())
    if began.any():
        other = numpy.asarray(found["dispatched"].fill_null(0))
        began = numpy.where(began > 0, began, other)
        found["dispatched"] = pyarrow.array(began, mask=began == 0)
    found["durable"], found["memo_hit"], found["repeat"] = durable, hits, repeats
    found["priority"] = priorities
    if unknown.any():  # the core's clock has only seen the part of their life behind the restart
        for name in ("waited_us", "took_us"):
            known = ~(unknown | numpy.asarray(found[name].is_null()))
            found[name] = pyarrow.array(numpy.asarray(found[name].fill_null(0)), mask=~known)


def target_text(target: Target) -> str:
    """Whom a job is for: a word, and names if there are some."""
    names = ",".join(text(name) for name in target.names)
    kind = KINDS[target.kind]
    return f"{kind}:{names}" if names else kind


def _floats(values: list[float]) -> Any:
    return numpy.fromiter(values, numpy.float64, len(values))


def _ints(values: list[int]) -> Any:
    return numpy.fromiter(values, numpy.int64, len(values))


def _wall(times: Any, epoch: float) -> Any:
    """The core's times as microseconds of wall time."""
    return ((times + epoch) * _MICROS).astype(numpy.int64)


def _times(micros: Any, known: Any) -> Any:
    return pyarrow.array(micros, mask=~known)


def _lasted(begin: Any, end: Any, known: Any) -> Any:
    """Microseconds between two of the core's times; null if one of them never came."""
    return _times(((end - begin) * _MICROS).astype(numpy.int64), known & (end >= begin))


def _first_partials(ended: Sequence[Job], epoch: float) -> Any:
    times = _floats([job.first_partial for job in ended])
    return _times(_wall(times, epoch), times > 0)


def _names(names: list[bytes] | list[bytes | None]) -> Any:
    """Few different ones: each is made readable once. Often they are all the same."""
    first = names[0]
    if first is not None and len(set(names)) == 1:
        return _word(text(first), len(names))
    coded = pyarrow.array(names, pyarrow.binary()).dictionary_encode()
    words = pyarrow.array([text(name) for name in coded.dictionary.to_pylist()], pyarrow.string())
    return pyarrow.DictionaryArray.from_arrays(coded.indices, words)


def _words(words: list[str] | list[str | None]) -> Any:
    first = words[0]
    if first is not None and len(set(words)) == 1:
        return _word(first, len(words))
    return pyarrow.array(words, pyarrow.string()).dictionary_encode()


def _word(word: str, count: int) -> Any:
    return pyarrow.DictionaryArray.from_arrays(
        pyarrow.array(numpy.zeros(count, numpy.int32)), pyarrow.array([word], pyarrow.string())
    )


def _column(values: Any, kind: str) -> Any:
    """In the type that all batches have."""
    wanted = _WORD if kind == "string" else TYPES[kind]
    if isinstance(values, numpy.ndarray):
        values = pyarrow.array(values)
    if values.type == wanted:
        return values
    if kind == "string" and pyarrow.types.is_string(values.type):
        return values.dictionary_encode()
    return values.cast(wanted)
