"""Sheets of ended jobs become Arrow's columns.

This runs in the writer's thread, on a whole segment at once: numpy and Arrow work outside Python's lock on columns of
such length, and a thread that asked for the lock after each small step would hold up the broker's loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy
import pyarrow
from pyarrow import compute

from polydomo.core.job_columns import FIELDS
from polydomo.ledger.job_batch import UNKNOWN, JobBatch
from polydomo.ledger.schema import DONE, JOBS, Table

TYPES: Final[dict[str, Any]] = {
    "string": pyarrow.string(),
    "int32": pyarrow.int32(),
    "int64": pyarrow.int64(),
    "bool": pyarrow.bool_(),
    "timestamp": pyarrow.timestamp("us", "UTC"),
}

_MICROS: Final = 1_000_000


def arrow_schema(table: Table) -> Any:
    """The table's schema in a segment."""
    return pyarrow.schema(
        [pyarrow.field(column.name, TYPES[column.kind], column.nullable) for column in table.columns]
    )


def batch_of(table: Table, rows: Iterable[dict[str, object]], broker: str, run: str) -> Any:
    """A record batch of rows with microseconds as times; what a row does not say is null."""
    whole = [row | {"broker": broker, "run": run} for row in rows]
    arrays = [_values([row.get(column.name) for row in whole], column.kind) for column in table.columns]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=arrow_schema(table))


class _Beside(NamedTuple):
    """What a column holds in some places instead of the usual."""

    places: Any  # numpy's
    values: Any  # numbers, numpy's too, or a list of texts


_NOTHING: Final = _Beside(numpy.zeros(0, numpy.int64), [])


def table_of(sheets: Sequence[JobBatch], broker: str, run: str) -> Any:
    """The sheets' rows of the table `jobs`. Words are in dictionaries, where a column has some."""
    numbers = _Numbered(sheets)
    beside = _beside(sheets)
    usual = _usual(numbers, broker, run)
    arrays = [_ids(numbers["id"], run, beside.get("job_id", _NOTHING))]
    arrays += [
        usual[column.name].array(TYPES[column.kind], len(arrays[0]), beside.get(column.name, _NOTHING))
        for column in JOBS.columns[1:]
    ]
    fields = [
        pyarrow.field(column.name, array.type, column.nullable)
        for column, array in zip(JOBS.columns, arrays, strict=True)
    ]
    return pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(fields))


def _beside(sheets: Sequence[JobBatch]) -> dict[str, _Beside]:
    """By column; places are counted from the first sheet's first row."""
    places: dict[str, list[Any]] = defaultdict(list)
    texts: dict[str, list[str]] = defaultdict(list)
    numbers: dict[str, list[Any]] = defaultdict(list)
    start = 0
    for sheet in sheets:
        for name, some in sheet.beside.texts.items():
            places[name].append(numpy.array(some.places, numpy.int64) + start)
            texts[name] += some.values
        for name, others in sheet.beside.numbers.items():
            places[name].append(numpy.array(others.places, numpy.int64) + start)
            numbers[name].append(numpy.array(others.values, numpy.int64))
        start += sheet.num_rows
    values = texts | {name: numpy.concatenate(parts) for name, parts in numbers.items()}
    return {name: _Beside(numpy.concatenate(parts), values[name]) for name, parts in places.items()}


def _ids(numbers: Any, run: str, own: _Beside) -> Any:
    """Jobs that have no id of their own get the broker's run and their number as one."""
    texts = _array(pyarrow.int64(), numbers).cast(pyarrow.string())
    prefix, between = _texts([run, "-"])
    made = compute.binary_join_element_wise(prefix, texts, between)
    if not len(own.places):
        return made
    ids = numpy.full(len(numbers), None, object)
    ids[own.places] = own.values
    return compute.coalesce(_texts(ids.tolist()), made)


class _Numbered:
    """The numbers of all sheets."""

    def __init__(self, sheets: Sequence[JobBatch]) -> None:
        self.sheets = sheets
        self.counts = [sheet.num_rows for sheet in sheets]
        self._epoch = numpy.repeat([sheet.epoch for sheet in sheets], self.counts)
        self._found: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        found = self._found.get(name)
        if found is None:
            data = b"".join([sheet.fields[name] for sheet in self.sheets])
            found = self._found[name] = numpy.frombuffer(data, FIELDS[name])
        return found

    def wall(self, name: str, known: Any = None) -> _Numbers:
        """A time of the core's as microseconds of wall time."""
        return _Numbers(((self[name] + self._epoch) * _MICROS).astype(numpy.int64), known)

    def lasted(self, begin: str, end: str, known: Any = True) -> _Numbers:
        """Microseconds between two of the core's times; unknown if one of them never came."""
        took = self[end] - self[begin]
        return _Numbers((took * _MICROS).astype(numpy.int64), known & (took >= 0))

    def words(self, name: str, of: Callable[[JobBatch], Iterable[str]]) -> _Words:
        """The words for a column of places in the sheets' own lists."""
        words: dict[str, int] = {}
        table: list[int] = []
        starts = []
        for sheet in self.sheets:
            table.append(-1)  # for -1, none
            starts.append(len(table))
            table += [words.setdefault(word, len(words)) for word in of(sheet)]
        if len(words) == 1 and -1 not in self[name]:
            return _Words.same(*words)
        places = self[name] + numpy.repeat(numpy.array(starts, numpy.int32), self.counts)
        return _Words(numpy.array(table, numpy.int32)[places], words)


class _Words:
    """A column of words: which of them stands in each row (-1: none), or the same in all."""

    def __init__(self, codes: Any, words: dict[str, int]) -> None:
        self._codes = codes  # None: the same in all, if there is one
        self._words = words

    @classmethod
    def same(cls, *word: str) -> _Words:
        return cls(None, {word[0]: 0} if word else {})

    def array(self, kind: Any, count: int, beside: _Beside) -> Any:
        words, codes = self._words, self._codes
        if codes is None:
            if not words and not len(beside.places):
                return pyarrow.nulls(count, kind)
            codes = numpy.full(count, len(words) - 1, numpy.int32)
        if len(beside.places):
            codes[beside.places] = [words.setdefault(word, len(words)) for word in beside.values]
        indices = _array(pyarrow.int32(), codes, codes >= 0)
        return pyarrow.DictionaryArray.from_arrays(indices, _texts(list(words)))


class _Numbers:
    """A column of numbers, times or truths, of which some may be unknown; or the same in all."""

    def __init__(self, values: Any, known: Any = None) -> None:
        self._values = values  # None: nobody has one
        self._known = known  # None: everybody has one, if anybody has

    def array(self, kind: Any, count: int, beside: _Beside) -> Any:
        values, known = self._values, self._known
        if values is None and not len(beside.places):
            return pyarrow.nulls(count, kind)
        if values is None:
            values, known = 0, numpy.zeros(count, bool)
        if numpy.isscalar(values):
            values = numpy.full(count, values, _NUMPY[kind])
        if len(beside.places):
            values = values.copy()
            values[beside.places] = beside.values
            known = numpy.ones(count, bool) if known is None else known.copy()
            known[beside.places] = beside.values != UNKNOWN
        return _array(kind, values, known)


_NUMPY: Final[dict[Any, Any]] = {
    TYPES["int32"]: numpy.int32,
    TYPES["int64"]: numpy.int64,
    TYPES["bool"]: bool,
    TYPES["timestamp"]: numpy.int64,
}


def _usual(numbers: _Numbered, broker: str, run: str) -> dict[str, _Words | _Numbers]:
    """What every job has, and what those have that nothing special is noted of."""
    was_dispatched = numbers["dispatched"] > 0
    return {
        "parent": _Words.same(),
        "part": _Numbers(None),
        "key": _Words.same(),
        "service": numbers.words("service", lambda sheet: sheet.services),
        "asked": numbers.words("service", lambda sheet: sheet.services),
        "dialect_in": numbers.words("client", lambda sheet: [peer.dialect for peer in sheet.clients]),
        "dialect_out": numbers.words("worker", lambda sheet: [peer.dialect for peer in sheet.workers]),
        "client": numbers.words("client", lambda sheet: [peer.name for peer in sheet.clients]),
        "principal": _Words.same(),
        "worker": numbers.words("worker", lambda sheet: [peer.name for peer in sheet.workers]),
        "broker": _Words.same(broker),
        "run": _Words.same(run),
        "target": _Words.same("any"),
        "submitted": numbers.wall("submitted"),
        "queued": numbers.wall("queued"),
        "dispatched": numbers.wall("dispatched", was_dispatched),
        "first_partial": _Numbers(None),
        "finished": numbers.wall("finished"),
        "outcome": _Words.same(DONE),
        "error": _Words.same(),
        "attempts": _Numbers(numbers["attempts"]),
        "partials": _Numbers(numbers["partials"]),
        "bytes_in": _Numbers(numbers["bytes_in"]),
        "bytes_out": _Numbers(numbers["bytes_out"]),
        "durable": _Numbers(False),
        "memo_hit": _Numbers(False),
        "repeat": _Numbers(False),
        "priority": _Numbers(0),
        "deadline": _Numbers(None),
        "waited_us": numbers.lasted("queued", "started", numbers["started"] > 0),
        "ran_us": numbers.lasted("dispatched", "finished", was_dispatched),
        "took_us": numbers.lasted("submitted", "finished"),
        "rebuilt": _Numbers(False),
    }


# Arrays are made of their parts: `pyarrow.array` would ask pandas about the values first, and so load it if it is
# there, which takes 40 MB.


def _values(values: list[object], kind: str) -> Any:
    """A column of them; None: unknown."""
    if kind == "string":
        return _texts(values)
    known = numpy.array([value is not None for value in values], bool)
    filled = [0 if value is None else value for value in values]
    return _array(TYPES[kind], numpy.array(filled, _NUMPY[TYPES[kind]]), known)


def _texts(texts: list[object]) -> Any:
    """A column of texts; None: unknown."""
    known = numpy.array([text is not None for text in texts], bool)
    encoded = [b"" if text is None else str(text).encode("utf-8", "backslashreplace") for text in texts]
    ends = numpy.cumsum([0, *map(len, encoded)]).astype(numpy.int32)
    buffers = [_bits(known), pyarrow.py_buffer(ends), pyarrow.py_buffer(b"".join(encoded))]
    return pyarrow.Array.from_buffers(pyarrow.string(), len(texts), buffers)


def _array(kind: Any, values: Any, known: Any = None) -> Any:
    """A column of numbers as they lie in memory, or of truths."""
    count = len(values)
    if values.dtype == bool:
        values = numpy.packbits(values, bitorder="little")
    data = pyarrow.py_buffer(numpy.ascontiguousarray(values))
    return pyarrow.Array.from_buffers(kind, count, [_bits(known), data])


def _bits(known: Any) -> Any:
    """Which of them are known, for Arrow. None: all."""
    if known is None or known.all():
        return None
    return pyarrow.py_buffer(numpy.packbits(known, bitorder="little"))
