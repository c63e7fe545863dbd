"""Conversion of job batches to Arrow columns.

It runs in the writer's thread on a whole segment at once: numpy and Arrow release the GIL for columns of that length,
while a thread that took the GIL after each small step would delay the broker's event loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy
import pyarrow
from pyarrow import compute

from polydomo.core.job_columns import FIELDS
from polydomo.ledger.job_batch import MICROS, UNKNOWN, JobBatch
from polydomo.ledger.schema import DONE, JOBS, LedgerTable

TYPES: Final[dict[str, Any]] = {
    "string": pyarrow.string(),
    "int32": pyarrow.int32(),
    "int64": pyarrow.int64(),
    "bool": pyarrow.bool_(),
    "timestamp": pyarrow.timestamp("us", "UTC"),
}


def arrow_schema(table: LedgerTable) -> Any:
    """Return the table's schema in a segment."""
    return pyarrow.schema(
        [pyarrow.field(column.name, TYPES[column.kind], column.nullable) for column in table.columns]
    )


def batch_of(table: LedgerTable, rows: Iterable[dict[str, object]], broker: str, run: str) -> Any:
    """Return a record batch of rows with times in microseconds; missing values are null."""
    whole = [row | {"broker": broker, "run": run} for row in rows]
    arrays = [_values([row.get(column.name) for row in whole], column.kind) for column in table.columns]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=arrow_schema(table))


class _Overrides(NamedTuple):
    """Values that replace a column's default in some rows."""

    rows: Any  # numpy array
    values: Any  # numpy array of numbers, or list of texts


_NONE: Final = _Overrides(numpy.zeros(0, numpy.int64), [])


def table_of(batches: Sequence[JobBatch], broker: str, run: str) -> Any:
    """Return the rows of the table `jobs`. Text columns are dictionary-encoded."""
    fields = _Fields(batches)
    overrides = _overrides(batches)
    defaults = _defaults(fields, broker, run)
    arrays = [_ids(fields["id"], run, overrides.get("job_id", _NONE))]
    arrays += [
        defaults[column.name].array(TYPES[column.kind], len(arrays[0]), overrides.get(column.name, _NONE))
        for column in JOBS.columns[1:]
    ]
    schema = [
        pyarrow.field(column.name, array.type, column.nullable)
        for column, array in zip(JOBS.columns, arrays, strict=True)
    ]
    return pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(schema))


def _overrides(batches: Sequence[JobBatch]) -> dict[str, _Overrides]:
    """Return the overrides by column, with rows counted from the first batch's first row."""
    rows: dict[str, list[Any]] = defaultdict(list)
    values: dict[str, Any] = {}  # lists of texts, arrays of numbers
    start = 0
    for batch in batches:
        for name, some in batch.overrides.items():
            rows[name].append(numpy.array(some.rows, numpy.int64) + start)
            values.setdefault(name, some.values[:0]).extend(some.values)
        start += batch.num_rows
    for name, some_values in values.items():
        if not isinstance(some_values, list):
            values[name] = numpy.array(some_values, numpy.int64)
    return {name: _Overrides(numpy.concatenate(parts), values[name]) for name, parts in rows.items()}


def _ids(numbers: Any, run: str, own: _Overrides) -> Any:
    """Return the jobs' own ids, or the broker's run and a number for jobs without one."""
    texts = _array(pyarrow.int64(), numbers).cast(pyarrow.string())
    prefix, between = _texts([run, "-"])
    made = compute.binary_join_element_wise(prefix, texts, between)
    if not len(own.rows):
        return made
    ids = numpy.full(len(numbers), None, object)
    ids[own.rows] = own.values
    return compute.coalesce(_texts(ids.tolist()), made)


class _Fields:
    """Numeric fields of all batches, by name."""

    def __init__(self, batches: Sequence[JobBatch]) -> None:
        self.batches = batches
        self.counts = [batch.num_rows for batch in batches]
        self._epoch = numpy.repeat([batch.epoch for batch in batches], self.counts)
        self._found: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        found = self._found.get(name)
        if found is None:
            data = b"".join([batch.fields[name] for batch in self.batches])
            found = self._found[name] = numpy.frombuffer(data, FIELDS[name])
        return found

    def wall(self, name: str, known: Any = None) -> _NumberColumn:
        """Return a time of the core as microseconds of wall time."""
        return _NumberColumn(((self[name] + self._epoch) * MICROS).astype(numpy.int64), known)

    def duration(self, begin: str, end: str, known: Any = True) -> _NumberColumn:
        """Return the microseconds between two times of the core; unknown if one of them is missing."""
        took = self[end] - self[begin]
        return _NumberColumn((took * MICROS).astype(numpy.int64), known & (took >= 0))

    def texts(self, name: str, of: Callable[[JobBatch], Iterable[str | None]]) -> _TextColumn:
        """Return the texts for a field of indices into the list `of` each batch; None becomes null."""
        words: dict[str, int] = {}
        table: list[int] = []
        starts = []
        for batch in self.batches:
            table.append(-1)  # for the index -1: no text
            starts.append(len(table))
            table += [-1 if word is None else words.setdefault(word, len(words)) for word in of(batch)]
        if not words or (len(words) == 1 and table.count(-1) == len(starts) and -1 not in self[name]):
            return _TextColumn.same(*words)
        indices = self[name] + numpy.repeat(numpy.array(starts, numpy.int32), self.counts)
        return _TextColumn(numpy.array(table, numpy.int32)[indices], words)


class _TextColumn:
    """Text column: the code of each row's text (-1: null), or one text for all rows."""

    def __init__(self, codes: Any, words: dict[str, int]) -> None:
        self._codes = codes  # None: all rows have the same text, or null
        self._words = words

    @classmethod
    def same(cls, *word: str) -> _TextColumn:
        return cls(None, {word[0]: 0} if word else {})

    def array(self, kind: Any, count: int, overrides: _Overrides) -> Any:
        words, codes = self._words, self._codes
        if codes is None:
            if not words and not len(overrides.rows):
                return pyarrow.nulls(count, kind)
            codes = numpy.full(count, len(words) - 1, numpy.int32)
        if len(overrides.rows):
            codes[overrides.rows] = [words.setdefault(word, len(words)) for word in overrides.values]
        indices = _array(pyarrow.int32(), codes, codes >= 0)
        return pyarrow.DictionaryArray.from_arrays(indices, _texts(list(words)))


class _NumberColumn:
    """Column of numbers, times or truth values, some of them unknown; or one value for all rows."""

    def __init__(self, values: Any, known: Any = None) -> None:
        self._values = values  # None: all are null
        self._known = known  # None: all values are known

    def array(self, kind: Any, count: int, overrides: _Overrides) -> Any:
        values, known = self._values, self._known
        if values is None and not len(overrides.rows):
            return pyarrow.nulls(count, kind)
        if values is None:
            values, known = 0, numpy.zeros(count, bool)
        if numpy.isscalar(values):
            values = numpy.full(count, values, _NUMPY[kind])
        if len(overrides.rows):
            values = values.copy()
            values[overrides.rows] = overrides.values
            known = numpy.ones(count, bool) if known is None else known.copy()
            known[overrides.rows] = overrides.values != UNKNOWN
        return _array(kind, values, known)


_NUMPY: Final[dict[Any, Any]] = {
    TYPES["int32"]: numpy.int32,
    TYPES["int64"]: numpy.int64,
    TYPES["bool"]: bool,
    TYPES["timestamp"]: numpy.int64,
}


def _defaults(fields: _Fields, broker: str, run: str) -> dict[str, _TextColumn | _NumberColumn]:
    """Return each column without its overrides."""
    was_dispatched = fields["dispatched"] > 0
    return {
        "parent": _TextColumn.same(),
        "part": _NumberColumn(None),
        "key": _TextColumn.same(),
        "service": fields.texts("service", lambda batch: batch.services),
        "asked": fields.texts("service", lambda batch: batch.services),
        "dialect_in": fields.texts("client", lambda batch: [peer.dialect for peer in batch.clients]),
        "dialect_out": fields.texts("worker", lambda batch: [peer.dialect for peer in batch.workers]),
        "client": fields.texts("client", lambda batch: [peer.name for peer in batch.clients]),
        "principal": fields.texts("client", lambda batch: [peer.principal for peer in batch.clients]),
        "worker": fields.texts("worker", lambda batch: [peer.name for peer in batch.workers]),
        "broker": _TextColumn.same(broker),
        "run": _TextColumn.same(run),
        "target": _TextColumn.same("any"),
        "submitted": fields.wall("submitted"),
        "queued": fields.wall("queued"),
        "dispatched": fields.wall("dispatched", was_dispatched),
        "first_partial": _NumberColumn(None),
        "finished": fields.wall("finished"),
        "outcome": _TextColumn.same(DONE),
        "error": _TextColumn.same(),
        "attempts": _NumberColumn(fields["attempts"]),
        "partials": _NumberColumn(fields["partials"]),
        "bytes_in": _NumberColumn(fields["bytes_in"]),
        "bytes_out": _NumberColumn(fields["bytes_out"]),
        "durable": _NumberColumn(False),
        "memo_hit": _NumberColumn(False),
        "repeat": _NumberColumn(False),
        "priority": _NumberColumn(0),
        "deadline": _NumberColumn(None),
        "waited_us": fields.duration("queued", "started", fields["started"] > 0),
        "ran_us": fields.duration("dispatched", "finished", was_dispatched),
        "took_us": fields.duration("submitted", "finished"),
        "rebuilt": _NumberColumn(False),
    }


# Arrays are made from buffers: `pyarrow.array` would import pandas if it is installed, which takes 40 MB.


def _values(values: list[object], kind: str) -> Any:
    """Return an array of the values; None becomes null."""
    if kind == "string":
        return _texts(values)
    known = numpy.array([value is not None for value in values], bool)
    filled = [0 if value is None else value for value in values]
    return _array(TYPES[kind], numpy.array(filled, _NUMPY[TYPES[kind]]), known)


def _texts(texts: list[object]) -> Any:
    """Return a text array; None becomes null."""
    known = numpy.array([text is not None for text in texts], bool)
    encoded = [b"" if text is None else str(text).encode("utf-8", "backslashreplace") for text in texts]
    ends = numpy.cumsum([0, *map(len, encoded)]).astype(numpy.int32)
    buffers = [_bits(known), pyarrow.py_buffer(ends), pyarrow.py_buffer(b"".join(encoded))]
    return pyarrow.Array.from_buffers(pyarrow.string(), len(texts), buffers)


def _array(kind: Any, values: Any, known: Any = None) -> Any:
    """Return an array of numbers or truth values that shares the memory of `values`."""
    count = len(values)
    if values.dtype == bool:
        values = numpy.packbits(values, bitorder="little")
    data = pyarrow.py_buffer(numpy.ascontiguousarray(values))
    return pyarrow.Array.from_buffers(kind, count, [_bits(known), data])


def _bits(known: Any) -> Any:
    """Return Arrow's validity bitmap; None if all values are known."""
    if known is None or known.all():
        return None
    return pyarrow.py_buffer(numpy.packbits(known, bitorder="little"))
