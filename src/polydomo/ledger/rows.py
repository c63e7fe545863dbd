"""Ended jobs become columns.

This runs in the broker's own loop, so it is made for many jobs at once: the numbers that `core.columns` has noted
become columns by numpy. What only some jobs have (a key, a deadline, parts) is looked at only for those.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy
import pyarrow
from pyarrow import compute

from polydomo.core import job as jobs
from polydomo.core.columns import FIELDS, ROW_SIZE, Rows
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


def arrow_schema(table: Table, *, coded: bool = False) -> Any:
    """The table's schema in a segment. `coded`: before it is written, when words (but not ids) are in dictionaries."""
    kinds = [
        _WORD if coded and column.kind == "string" and column.name not in table.key else TYPES[column.kind]
        for column in table.columns
    ]
    return pyarrow.schema(
        [
            pyarrow.field(column.name, kind, column.nullable)
            for column, kind in zip(table.columns, kinds, strict=True)
        ]
    )


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


def batch_of(rows: Rows, epoch: float, broker: str, run: str) -> Any:
    """A record batch of the table `jobs`, but for the ids of jobs that have none of their own: these are null here, and
    made from the last column by whoever writes the segment (`with_ids`). `epoch` is the wall time at the core's time
    0."""
    numbers = numpy.frombuffer(rows.buffer, _ROW, rows.count)
    found = _plain(rows, numbers, epoch)
    found["broker"] = _word(broker, rows.count)
    found["run"] = _word(run, rows.count)
    if rows.failed:
        _add_failures(found, rows.failed, rows.count)
    if rows.special:
        _add_extras(found, rows.special, rows.count, epoch)
    arrays = [_column(found[column.name], column.kind, rows.count) for column in JOBS.columns]
    return pyarrow.record_batch([*arrays, _array(pyarrow.int64(), numbers["id"])], [*_NAMES, _NUMBER])


_ROW: Final = numpy.dtype(
    {"names": [name for name, _ in FIELDS], "formats": [kind for _, kind in FIELDS], "itemsize": ROW_SIZE}
)
_NAMES: Final = [column.name for column in JOBS.columns]
_NUMBER: Final = "number"


def batch_of_rows(rows: list[dict[str, object]]) -> Any:
    """The same from rows that have been made otherwise, each with an id."""
    plain = pyarrow.RecordBatch.from_pylist(rows, arrow_schema(JOBS))
    arrays = [
        _column(plain.column(place), column.kind, len(rows)) for place, column in enumerate(JOBS.columns)
    ]
    numbers = pyarrow.nulls(len(rows), pyarrow.int64())
    return pyarrow.record_batch([*arrays, numbers], [*_NAMES, _NUMBER])


def with_ids(table: Any, run: str) -> Any:
    """The table as it is written: every job has an id."""
    numbers = compute.cast(table[_NUMBER], pyarrow.string())
    made = compute.binary_join_element_wise(pyarrow.scalar(run), numbers, "-")
    own = table["job_id"].cast(pyarrow.string())
    return table.set_column(0, "job_id", compute.coalesce(own, made)).drop_columns([_NUMBER])


def _plain(rows: Rows, numbers: Any, epoch: float) -> dict[str, Any]:
    """What every job has. Columns that `_add_…` change are numpy's arrays until then."""
    count = rows.count
    submitted, queued, started = numbers["submitted"], numbers["queued"], numbers["started"]
    dispatched, finished = numbers["dispatched"], numbers["finished"]
    if rows.special:
        finished = finished.copy()
        for place, job in rows.special.items():
            finished[place] = _end_of(job)
    was_dispatched = dispatched > 0
    services = [text(service.name) for service in rows.services]
    clients, workers = list(rows.clients), list(rows.workers)
    service = _coded(numbers["service"], services)
    none = numpy.zeros(count, bool)
    return {
        "job_id": None,
        "parent": None,
        "part": None,
        "key": None,
        "service": service,
        "asked": _asked(service, rows.aliases) if rows.aliases else service,
        "dialect_in": _shared(numbers["client"], [client.dialect for client in clients]),
        "dialect_out": _shared(numbers["worker"], [worker.dialect for worker in workers]),
        "client": _coded(numbers["client"], [text(client.name) for client in clients]),
        "principal": None,
        "worker": _coded(numbers["worker"], [text(worker.name) for worker in workers]),
        "target": _word("any", count),
        "submitted": _wall(submitted, epoch),
        "queued": _wall(queued, epoch),
        "dispatched": _Maybe(_wall(dispatched, epoch), was_dispatched),
        "first_partial": _first_partials(rows, epoch) if rows.first_partials else None,
        "finished": _wall(finished, epoch),
        "outcome": _word(DONE, count),
        "error": None,
        "attempts": numbers["attempts"].copy() if rows.special else numbers["attempts"],
        "partials": numbers["partials"],
        "bytes_in": numbers["bytes_in"],
        "bytes_out": numbers["bytes_out"],
        "durable": none,
        "memo_hit": none,
        "repeat": none,
        "priority": numpy.zeros(count, numpy.int32),
        "deadline": None,
        "waited_us": _lasted(queued, started, started > 0),
        "ran_us": _lasted(dispatched, finished, was_dispatched),
        "took_us": _lasted(submitted, finished, finished >= submitted),
        "rebuilt": none,
    }


def _end_of(job: Job) -> float:
    """When its worker was done with it: that an end is being recorded is no work of its worker's."""
    return job.extra.answered if job.extra is not None and job.extra.answered else job.finished


def _add_failures(found: dict[str, Any], failed: Mapping[int, Job], count: int) -> None:
    outcomes = [DONE] * count
    errors: list[str | None] = [None] * count
    for place, job in failed.items():
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


def _add_extras(found: dict[str, Any], special: Mapping[int, Job], count: int, epoch: float) -> None:
    """What those have that are durable or came with options."""
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
    for place, job in special.items():
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
        other = found["dispatched"]
        found["dispatched"] = _Maybe(numpy.where(began > 0, began, other.values), (began > 0) | other.known)
    found["durable"], found["memo_hit"], found["repeat"] = durable, hits, repeats
    found["priority"] = priorities
    if unknown.any():  # the core's clock has only seen the part of their life behind the restart
        for name in ("waited_us", "took_us"):
            found[name] = _Maybe(found[name].values, found[name].known & ~unknown)


def target_text(target: Target) -> str:
    """Whom a job is for: a word, and names if there are some."""
    names = ",".join(text(name) for name in target.names)
    kind = KINDS[target.kind]
    return f"{kind}:{names}" if names else kind


def _wall(times: Any, epoch: float) -> Any:
    """The core's times as microseconds of wall time."""
    return ((times + epoch) * _MICROS).astype(numpy.int64)


class _Maybe(NamedTuple):
    """Numbers that not every job has."""

    values: Any
    known: Any


def _lasted(begin: Any, end: Any, known: Any) -> _Maybe:
    """Microseconds between two of the core's times; unknown if one of them never came."""
    return _Maybe(((end - begin) * _MICROS).astype(numpy.int64), known & (end >= begin))


def _first_partials(rows: Rows, epoch: float) -> Any:
    times = numpy.zeros(rows.count)
    times[list(rows.first_partials)] = list(rows.first_partials.values())
    return _Maybe(_wall(times, epoch), times > 0)


def _coded(codes: Any, words: list[str]) -> Any:
    """A word for each code; below 0: none."""
    if len(words) == 1 and not codes.any():
        return _word(words[0], len(codes))
    known = codes >= 0
    indices = _array(pyarrow.int32(), codes, None if known.all() else known)
    return pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(words, pyarrow.string()))


def _shared(codes: Any, words: list[str]) -> Any:
    """The same where few words belong to many codes."""
    different = dict.fromkeys(words)
    if len(different) == len(words):
        return _coded(codes, words)
    places = {word: place for place, word in enumerate(different)}
    table = numpy.array([*[places[word] for word in words], -1], numpy.int32)  # the last one is code -1
    return _coded(table[codes], list(different))


def _asked(service: Any, aliases: Mapping[int, bytes]) -> Any:
    names = service.to_pylist()
    for place, name in aliases.items():
        names[place] = text(name)
    return _words(names)


def _words(words: list[str] | list[str | None]) -> Any:
    first = words[0]
    if first is not None and len(set(words)) == 1:
        return _word(first, len(words))
    return pyarrow.array(words, pyarrow.string()).dictionary_encode()


@lru_cache(maxsize=64)
def _word(word: str, count: int) -> Any:
    indices = _array(pyarrow.int32(), numpy.zeros(count, numpy.int32))
    return pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array([word], pyarrow.string()))


@lru_cache(maxsize=64)
def _nothing(kind: Any, count: int) -> Any:
    return pyarrow.nulls(count, kind)


def _column(values: Any, kind: str, count: int) -> Any:
    """In the type that all batches have. No values: nobody has one."""
    wanted = _WORD if kind == "string" else TYPES[kind]
    if values is None:
        return _nothing(wanted, count)
    if isinstance(values, numpy.ndarray):
        return _array(wanted, values)
    if isinstance(values, _Maybe):
        return _array(wanted, values.values, values.known)
    if values.type == wanted:
        return values
    if kind == "string" and pyarrow.types.is_string(values.type):
        return values.dictionary_encode()
    return values.cast(wanted)


def _array(kind: Any, values: Any, known: Any = None) -> Any:
    """Numbers as they lie in memory: `pyarrow.array` looks at them first, and asks pandas about them."""
    count = len(values)
    if values.dtype == bool:
        values = numpy.packbits(values, bitorder="little")
    bits = None if known is None else pyarrow.py_buffer(numpy.packbits(known, bitorder="little"))
    data = pyarrow.py_buffer(numpy.ascontiguousarray(values))
    return pyarrow.Array.from_buffers(kind, count, [bits, data])
