"""Arrow columns: their types, conversion to numpy, and which rows are counted (see `counting`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from polydomo.ledger.schema import DONE
from polydomo.pipeline.tables.counting import US
from polydomo.pipeline.tables.spec import Columnar, TableSpec, Work

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

Batches = Iterator[pa.RecordBatch]

TYPES: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
    "binary": pa.binary(),
}

# Rows processed at once: enough for long runs, and 70 to 180 MiB in addition to the rows themselves.
PORTION: Final = 500_000


def schema(spec: TableSpec) -> pa.Schema:
    """Return the Arrow schema of a table."""
    return pa.schema([(column.name, TYPES[column.kind]) for column in spec.columns])


def reading(source: TableSpec, names: tuple[str, ...], spec: TableSpec, work: Work) -> Columnar:
    """Describe a computation of gold rows from some columns of a silver table."""
    kinds = {column.name: column.kind for column in source.columns}
    return Columnar(names, tuple(name for name in names if kinds[name] == "string"), spec.ddl(), work)


def portions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine small batches into tables of at least PORTION rows."""
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


def ints(column: pa.ChunkedArray, null: int = 0) -> Ints:
    """Return integers; times as microseconds."""
    numbers: Ints = pc.fill_null(column.cast(pa.int64()), null).to_numpy()
    return numbers


def flags(column: pa.ChunkedArray) -> Flags:
    """Return booleans; null is false."""
    found: Flags = pc.fill_null(column, False).to_numpy()
    return found


def equal(column: pa.ChunkedArray, word: str) -> Flags:
    """Return where a column equals a word; null is false."""
    return flags(pc.equal(column, word))


def micros(column: pa.ChunkedArray, null: int = 0) -> Ints:
    """Convert a column of seconds to whole microseconds."""
    seconds = column.to_numpy()  # NaN for null
    there = ~np.isnan(seconds)
    found: Ints = np.where(there, np.rint(np.where(there, seconds, 0) * US), null).astype(np.int64)
    return found


def are_repeats(jobs: pa.Table) -> Flags:
    """Return which rows are repeated requests. A durable job is always a job of its own."""
    found: Flags = flags(jobs["repeat"]) & ~flags(jobs["durable"])
    return found


def are_runs(jobs: pa.Table) -> Flags:
    """Return which rows are runs. A result without an attempt that is not cached belongs to a fan-out parent."""
    whole = jobs["part"].is_null().to_numpy() & (ints(jobs["attempts"], 1) == 0)
    whole &= equal(jobs["outcome"], DONE) & ~flags(jobs["memo_hit"])
    found: Flags = ~are_repeats(jobs) & ~whole
    return found


def are_asked(jobs: pa.Table) -> Flags:
    """Return which rows are jobs that a client asked for."""
    found: Flags = jobs["part"].is_null().to_numpy() & ~are_repeats(jobs)
    return found


class Words(NamedTuple):
    """A dictionary-encoded column of text: `codes` are indexes of `names`. Null is the last of these."""

    codes: Ints
    names: pa.Array

    @classmethod
    def of(cls, words: pa.ChunkedArray) -> Words:
        coded = words if pa.types.is_dictionary(words.type) else words.dictionary_encode()
        whole = coded.unify_dictionaries().combine_chunks()
        found = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
        codes = found.indices.fill_null(len(found.dictionary)).to_numpy(zero_copy_only=False)
        null = pa.nulls(1, found.dictionary.type)
        return cls(codes.astype(np.int64), pa.concat_arrays([found.dictionary, null]).cast(pa.string()))

    def said(self, codes: Ints) -> pa.Array:
        """Return the texts of codes."""
        return self.names.take(pa.array(codes))
