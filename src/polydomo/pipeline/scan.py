"""Whole files of a table, read by Arrow in Spark tasks, for computations on columns (`spec.Columnar`).

Passing rows from Spark's reader to a Python function costs more than most such functions. So the function gets the
names of the files and reads them itself: only the needed columns, some hundred thousand rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from polydomo.pipeline import files
from polydomo.pipeline.tables.columns import TYPES
from polydomo.pipeline.tables.spec import Columnar, Objective, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from polydomo.pipeline.edit import TableFile

# Tasks per core: small tasks balance the load.
_TASKS: Final = 4

# Rows read at once.
_ROWS: Final = 500_000

# Prefixes of pyiceberg's properties that concern files.
_FILES: Final = ("s3.", "gcs.", "adls.", "hdfs.", "oss.", "hf.", "client.", "py-io-impl")


class FileStore(NamedTuple):
    """Access to files from any process: local ones directly, others through pyiceberg."""

    properties: dict[str, str]

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> FileStore:
        """Select the file properties of a catalog. Its own address and password are not passed to tasks."""
        return cls({key: value for key, value in properties.items() if key.startswith(_FILES)})

    def open(self, path: str) -> Any:
        """Open a file for reading."""
        if files.is_local(path):
            return pa.OSFile(str(files.local(path)), "rb")
        from pyiceberg.io import load_file_io

        return load_file_io(self.properties, path).new_input(path).open()


def scan(
    spark: SparkSession,
    store: FileStore,
    spec: TableSpec,
    pieces: Sequence[TableFile],
    columnar: Columnar,
    objectives: tuple[Objective, ...] = (),
) -> DataFrame:
    """Compute the rows that these files add, in Spark tasks."""
    shares = _dealt(pieces, _TASKS * spark.sparkContext.defaultParallelism)
    kinds = _kinds(spec, columnar.columns)
    words, work = columnar.words, columnar.work

    def task(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from work(_rows(store, shares[number], kinds, words), objectives)

    return spark.range(0, len(shares), 1, max(1, len(shares))).mapInArrow(task, columnar.schema)


def scan_here(
    store: FileStore,
    spec: TableSpec,
    pieces: Sequence[TableFile],
    columnar: Columnar,
    objectives: tuple[Objective, ...] = (),
) -> list[pa.RecordBatch]:
    """Compute the rows that these files add, without Spark."""
    paths = [piece.path for piece in pieces]
    return list(
        columnar.work(_rows(store, paths, _kinds(spec, columnar.columns), columnar.words), objectives)
    )


def read_here(store: FileStore, spec: TableSpec, pieces: Sequence[TableFile]) -> list[pa.RecordBatch]:
    """Return all rows of these files of a table."""
    return list(_rows(store, [piece.path for piece in pieces], _kinds(spec, spec.names()), ()))


def _kinds(spec: TableSpec, wanted: Sequence[str]) -> dict[str, pa.DataType]:
    return {column.name: TYPES[column.kind] for column in spec.columns if column.name in wanted}


def _dealt(pieces: Sequence[TableFile], most: int) -> list[list[str]]:
    """Distribute the files over shares of about the same size."""
    shares: list[list[str]] = [[] for _ in range(min(most, len(pieces)))]
    sizes = [0] * len(shares)
    for piece in sorted(pieces, key=lambda piece: piece.size, reverse=True):
        least = sizes.index(min(sizes))
        shares[least].append(piece.path)
        sizes[least] += piece.size
    return shares


def _rows(
    store: FileStore, paths: Sequence[str], kinds: dict[str, pa.DataType], words: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with store.open(path) as source, pq.ParquetFile(source, read_dictionary=list(words)) as file:
            there = [name for name in kinds if name in file.schema_arrow.names]
            for batch in file.iter_batches(_ROWS, columns=there, use_threads=False):
                yield _whole(batch, kinds, words)


def _whole(batch: pa.RecordBatch, kinds: dict[str, pa.DataType], words: tuple[str, ...]) -> pa.RecordBatch:
    """Return the batch with all columns in their types: an older file may lack some."""
    found = {}
    for name, kind in kinds.items():
        wanted = pa.dictionary(pa.int32(), kind) if name in words else kind
        if name in batch.schema.names:
            column = batch.column(name)
            found[name] = column if column.type == wanted else column.cast(wanted)
        else:
            found[name] = pa.nulls(batch.num_rows, wanted)
    return pa.RecordBatch.from_pydict(found)
