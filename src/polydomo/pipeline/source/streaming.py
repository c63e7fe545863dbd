"""The streaming source: jobs as they end, each once, in the order of their ends.

An offset is the number of an end. Numbers only grow, also across restarts of the broker, and no end is added before one
that was seen; so a query restarted from its checkpoint continues where it was. The jobs must still be stored: keep
results (`retention`) for longer than a query may be stopped.
"""

# ruff: noqa: N802  (names are Spark's)
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from polydomo.errors import ConfigError
from polydomo.pipeline.source.asking import bounds, scan_ends
from polydomo.pipeline.source.options import Reading
from polydomo.pipeline.source.reading import Range, cut
from polydomo.pipeline.source.tables import EVENTS

ENDING = "ending"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader of one table."""

    def __init__(self, reading: Reading) -> None:
        if reading.table.name == EVENTS:
            raise ConfigError(
                "events cannot be read as a stream", hint="read them as a batch, or stream jobs"
            )
        wanted = reading.wanted
        if wanted.clients or wanted.keys or wanted.since is not None or wanted.before is not None:
            raise ConfigError(
                "a stream can be filtered by service and state only", hint="filter the rest with where()"
            )
        self.reading = reading
        self._target: int | None = None  # last offset of an available-now run

    def initialOffset(self) -> dict[str, int]:
        """Return the start of a query without a checkpoint."""
        return {ENDING: bounds(self.reading)[ENDING] if self.reading.latest else 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit from the option maxRowsPerBatch."""
        rows = self.reading.max_rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, int]:
        """Return the end of the next batch: everything stored, or as many rows as the limit allows."""
        begin = int(start[ENDING])
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = bounds(self.reading, begin, rows)[ENDING]
        if self._target is not None:
            end = min(end, self._target)
        return {ENDING: max(begin, end)}

    def reportLatestOffset(self) -> dict[str, int]:
        """Return the latest offset for the query's progress."""
        return {ENDING: bounds(self.reading)[ENDING]}

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the last offset: jobs that end later belong to the next run."""
        self._target = bounds(self.reading)[ENDING]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
        """Plan the tasks of a batch."""
        return cut(int(start[ENDING]), int(end[ENDING]), self.reading.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one partition."""
        assert isinstance(partition, Range)
        wanted = set(self.reading.wanted.states)
        for batch in scan_ends(self.reading, partition.after, partition.until):
            if len(wanted) > 1:
                batch = batch.filter(pa.compute.is_in(batch.column("state"), pa.array(sorted(wanted))))
            if batch.num_rows:
                yield batch
