"""The batch source: stored jobs, read by several tasks in order of arrival, filtered by the broker."""

# ruff: noqa: N802  (names are Spark's)
from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from polydomo.pipeline.source.asking import bounds, scan
from polydomo.pipeline.source.options import WORTH, Reading, Wanted, micros
from polydomo.pipeline.source.tables import EVENTS

# Columns that the broker can filter by, and the fields of Wanted.
_WORDS = {"service": "services", "state": "states", "client": "clients", "key": "keys", "parent": "parents"}
_WORDS_OF_EVENTS = {"service": "services", "job_id": "jobs"}


class Range(InputPartition):
    """Jobs numbered after `after`, up to `until`."""

    def __init__(self, after: int, until: int) -> None:
        super().__init__((after, until))
        self.after = after
        self.until = until


class Reader(DataSourceReader):
    """Batch reader of one table."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.wanted = reading.wanted

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take over the filters that the broker supports and yield the rest for Spark."""
        for one in filters:
            narrowed = self._pushed(one)
            if narrowed is None:
                yield one
            else:
                self.wanted = narrowed

    def partitions(self) -> list[Range]:
        """Plan the tasks on the driver, where an unreachable broker is reported before any task."""
        found = bounds(self.reading)
        if self.wanted.nothing or not found["last"]:
            return []
        if self.wanted.jobs:  # a few, by id
            return [Range(0, found["last"])]
        return cut(found["first"] - 1, found["last"], self.reading.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of one partition."""
        assert isinstance(partition, Range)
        return scan(self.reading, self.wanted, partition.after, partition.until)

    def _pushed(self, one: Filter) -> Wanted | None:
        """Return the filter narrowed by a condition; None if the broker does not support it."""
        path: tuple[str, ...] = getattr(one, "attribute", ())
        if len(path) != 1:
            return None
        name = path[0]
        words = _WORDS_OF_EVENTS if self.reading.table.name == EVENTS else _WORDS
        if name in words and isinstance(one, EqualTo | In):
            values = tuple(one.value) if isinstance(one, In) else (one.value,)
            texts = all(isinstance(value, str) for value in values)
            return self.wanted.narrowed(words[name], values) if texts else None
        if name == "submitted" and self.reading.table.name != EVENTS:
            return self._timed(one)
        return None

    def _timed(self, one: Filter) -> Wanted | None:
        value: Any = getattr(one, "value", None)
        if not isinstance(value, datetime):
            return None
        at = micros(value)
        if isinstance(one, GreaterThanOrEqual):
            return self.wanted.from_time(at)
        if isinstance(one, GreaterThan):
            return self.wanted.from_time(at + 1)
        if isinstance(one, LessThan):
            return self.wanted.to_time(at)
        if isinstance(one, LessThanOrEqual):
            return self.wanted.to_time(at + 1)
        if isinstance(one, EqualTo):
            return self.wanted.from_time(at).to_time(at + 1)
        return None


def cut(after: int, until: int, most: int) -> list[Range]:
    """Split into ranges of about the same size, as many as are worthwhile."""
    span = until - after
    if span <= 0:
        return []
    parts = min(most, -(-span // WORTH))
    edges = [after + span * number // parts for number in range(parts + 1)]
    return [Range(edges[number], edges[number + 1]) for number in range(parts)]
