"""`spark.read.format("polydomo")`: the entry point of the data source."""

# ruff: noqa: N802  (names are Spark's)
from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from polydomo.errors import ConfigError
from polydomo.pipeline.source import tables
from polydomo.pipeline.source.asking import Catalogue
from polydomo.pipeline.source.options import Reading, Writing, reading, writing
from polydomo.pipeline.source.reading import Reader
from polydomo.pipeline.source.streaming import StreamReader
from polydomo.pipeline.source.writing import StreamWriter, Writer, check_schema


class PolydomoSource(DataSource):
    """The data source: creates readers and writers from options."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "polydomo"

    def schema(self) -> StructType:
        """Return the schema of the table."""
        return tables.spark_schema(reading(self.options).table)

    def reader(self, schema: StructType) -> Reader:
        """Return a batch reader."""
        return Reader(self._reading(schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        """Return a stream reader."""
        return StreamReader(self._reading(schema))

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        """Return a batch writer. Submitted jobs cannot be withdrawn."""
        if overwrite:
            raise ConfigError("jobs can only be appended", hint='write with mode("append")')
        return Writer(self._writing(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return a stream writer."""
        if overwrite:
            raise ConfigError("jobs can only be appended", hint='write with outputMode("append")')
        return StreamWriter(self._writing(schema))

    def _writing(self, schema: StructType) -> Writing:
        """Check options, schema and broker on the driver, before any task."""
        found = writing(self.options)
        check_schema(schema, found)
        with Catalogue(found.url, found.patience) as catalogue:
            catalogue.ask("scan_bounds")
        return found

    def _reading(self, schema: StructType) -> Reading:
        found = reading(self.options)
        if schema != tables.spark_schema(found.table):
            raise ConfigError(
                f"the table {found.table.name} has a fixed schema",
                hint="leave out schema(), and select()",
            )
        return found
