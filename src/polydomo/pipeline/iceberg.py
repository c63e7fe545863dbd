"""Conversion of our table and file descriptions to Iceberg's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from polydomo.pipeline.tables.spec import TableSpec

TYPES: Final[dict[str, IcebergType]] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "timestamp": TimestamptzType(),
    "date": DateType(),
    "binary": BinaryType(),
}

PROPERTIES: Final[dict[str, str]] = {
    "format-version": "2",
    # Added rows were compared with the existing ones: retrying after a concurrent change could count rows twice.
    "commit.retry.num-retries": "0",
    # A stream commits often: without these, each commit would be slower than the previous one.
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.parquet.compression-codec": "zstd",
}


def iceberg_schema(spec: TableSpec) -> Schema:
    """Return a table's schema. All columns are optional: a later version may add some that old files do not have."""
    return Schema(
        *[
            NestedField(number, column.name, TYPES[column.kind], required=False, doc=column.doc)
            for number, column in enumerate(spec.columns, 1)
        ]
    )


def partition_by(schema: Schema, column: str) -> PartitionSpec:
    """Partition by the column itself, without a transform, which any reader understands."""
    source = schema.find_field(column).field_id
    return PartitionSpec(
        PartitionField(source_id=source, field_id=1000, transform=IdentityTransform(), name=column)
    )


def missing(table: Table, spec: TableSpec) -> list[tuple[str, IcebergType, str]]:
    """Return the columns that the spec has and the table does not."""
    there = set(table.schema().column_names)
    return [(c.name, TYPES[c.kind], c.doc) for c in spec.columns if c.name not in there]


def data_file(table: Table, path: str) -> DataFile:
    """Return the manifest entry of a Parquet file: partition, row count, column bounds."""
    return parquet_file_to_data_file(table.io, table.metadata, path)


def live(entries: Iterable[ManifestEntry]) -> list[DataFile]:
    """Return the files that are part of the table."""
    return [entry.data_file for entry in entries if entry.status != ManifestEntryStatus.DELETED]


def added(entries: Iterable[ManifestEntry]) -> dict[int, list[DataFile]]:
    """Return the added files by snapshot id."""
    found: dict[int, list[DataFile]] = {}
    for entry in entries:
        number: Any = entry.snapshot_id
        if entry.status == ManifestEntryStatus.ADDED and number is not None:
            found.setdefault(number, []).append(entry.data_file)
    return found
