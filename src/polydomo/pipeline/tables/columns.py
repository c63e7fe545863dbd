"""Arrow's columns: their types, what they are in numpy, and which rows are counted (`counting` says why)."""

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

# So many rows are worked on at once: enough for long runs, and 70 to 180 MiB beside the rows themselves.
PORTION: Final = 500_000


def schema(spec: TableSpec) -> pa.Schema:
    """Of a table."""
    return pa.schema([(column.name, TYPES[column.kind]) for column in spec.columns])


def reading(source: TableSpec, names: tuple[str, ...], spec: TableSpec, work: Work) -> Columnar:
    """Rows of a gold table, from some columns of a silver table, as they are."""
    kinds = {column.name: column.kind for column in source.columns}
    return Columnar(names, tuple(name for name in names if kinds[name] == "string"), spec.ddl(), work)


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


def ints(column: pa.ChunkedArray, null: int = 0) -> Ints:
    """Whole numbers; times as microseconds."""
    numbers: Ints = pc.fill_null(column.cast(pa.int64()), null).to_numpy()
    return numbers


def flags(column: pa.ChunkedArray) -> Flags:
    """Null is no."""
    found: Flags = pc.fill_null(column, False).to_numpy()
    return found


def equal(column: pa.ChunkedArray, word: str) -> Flags:
    """Null is no."""
    return flags(pc.equal(column, word))


def micros(column: pa.ChunkedArray, null: int = 0) -> Ints:
    """Whole microseconds of a column of seconds."""
    seconds = column.to_numpy()  # NaN for null
    there = ~np.isnan(seconds)
    found: Ints = np.where(there, np.rint(np.where(there, seconds, 0) * US), null).astype(np.int64)
    return found


def are_repeats(jobs: pa.Table) -> Flags:
    """Asked for once more. What the store has a record of is a job of its own in any case."""
    found: Flags = flags(jobs["repeat"]) & ~flags(jobs["durable"])
    return found


def are_runs(jobs: pa.Table) -> Flags:
    """A worker did it, or should have. A result without any attempt, and not from memory, is that of a whole."""
    whole = jobs["part"].is_null().to_numpy() & (ints(jobs["attempts"], 1) == 0)
    whole &= equal(jobs["outcome"], DONE) & ~flags(jobs["memo_hit"])
    found: Flags = ~are_repeats(jobs) & ~whole
    return found


def are_asked(jobs: pa.Table) -> Flags:
    """A client wanted it."""
    found: Flags = jobs["part"].is_null().to_numpy() & ~are_repeats(jobs)
    return found


class Words(NamedTuple):
    """A column of texts: `codes` say which of the `names` each is. Null is the last of these."""

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
        """The texts themselves."""
        return self.names.take(pa.array(codes))
