"""The ledger's tables as Spark schemas."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from polydomo.ledger.schema import LedgerTable

TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "bool": BooleanType(),
    "timestamp": TimestampType(),
}


def spark_schema(table: LedgerTable) -> StructType:
    """Return the schema for reading segments. All columns are nullable: required values are checked, not assumed."""
    return StructType([StructField(column.name, TYPES[column.kind], True) for column in table.columns])
