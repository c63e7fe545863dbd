"""Queries of the data source to a live broker's catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

import msgspec
import pyarrow as pa

from polydomo.errors import ConfigError, Unreachable, WorkerError
from polydomo.pipeline.source.options import REACH, Reading, Wanted
from polydomo.pipeline.source.tables import EVENTS, Table, arrow_schema
from polydomo.sdk.client import CATALOGUE
from polydomo.sdk.sync import SyncClient


class Catalogue:
    """One connection to a broker's catalogue."""

    def __init__(self, url: str, timeout: float) -> None:
        self.url = url
        self._client = SyncClient(url, timeout=timeout, connect_timeout=min(timeout, REACH))

    def ask(self, task: str, **kwargs: Any) -> Any:
        """Call a task and return its decoded JSON reply."""
        return msgspec.json.decode(self._frame(task, kwargs))

    def columns(self, task: str, **kwargs: Any) -> tuple[dict[str, list[Any]], int | None]:
        """Call a task that returns rows by columns; return them and the position to continue from."""
        said = msgspec.msgpack.decode(self._frame(task, kwargs))
        return said["columns"], said["next"]

    def _frame(self, task: str, kwargs: dict[str, Any]) -> bytes:
        given = {name: value for name, value in kwargs.items() if value is not None}
        question = msgspec.json.encode({"task": task, "kwargs": given})
        try:
            return self._client.request(CATALOGUE, [question])[0]
        except Unreachable as error:
            raise Unreachable(
                f"the data source cannot reach a broker at {self.url}: {error.message}",
                hint="check that it is running; option url gives its address, 'polydomo doctor' looks for it",
            ) from None
        except WorkerError as error:
            if "no task" in error.message:
                raise ConfigError(
                    f"the broker at {self.url} is older than this data source", hint="update the broker"
                ) from None
            raise ConfigError(f"error from the broker at {self.url}: {error.message}", hint="") from None

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def __enter__(self) -> Catalogue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def bounds(reading: Reading, after: int | None = None, rows: int | None = None) -> dict[str, int]:
    """Return the result of the broker's `scan_bounds`. Errors carry a hint."""
    try:
        with Catalogue(reading.url, reading.timeout) as catalogue:
            found: dict[str, int] = catalogue.ask("scan_bounds", after=after, rows=rows)
            return found
    except TimeoutError as error:
        raise Unreachable(str(error)) from None


def scan(reading: Reading, wanted: Wanted, after: int, until: int) -> Iterator[pa.RecordBatch]:
    """Yield jobs, or their events, that arrived after `after`, up to `until`."""
    if wanted.nothing:
        return
    table = reading.table
    # The broker's filter takes one value of each kind.
    asked = [
        {"service": service, "state": state, "client": client, "key": key, "parent": parent, "job": job}
        for service in wanted.services or (None,)
        for state in wanted.states or (None,)
        for client in wanted.clients or (None,)
        for key in wanted.keys or (None,)
        for parent in wanted.parents or (None,)
        for job in wanted.jobs or (None,)
    ]
    fixed = {"until": until, "since": wanted.since, "before": wanted.before}
    with Catalogue(reading.url, reading.timeout) as catalogue:
        for one in asked:
            if table.name == EVENTS:
                chosen = {name: one[name] for name in ("service", "client", "job")}
                task, more = "scan_events", {"limit": min(reading.page, 1000), **chosen}
            else:
                chosen = {name: one[name] for name in ("service", "state", "client", "key", "parent")}
                task = "scan_jobs"
                more = {"limit": reading.page, "request": table.request, "result": table.result, **chosen}
            yield from _pages(catalogue, table, task, after, {**fixed, **more})


def scan_ends(reading: Reading, after: int, until: int) -> Iterator[pa.RecordBatch]:
    """Yield jobs that ended after `after`, up to `until`."""
    table, wanted = reading.table, reading.wanted
    # All in one scan, whatever the filter: the order of ends has no other index.
    one_state = wanted.states[0] if len(wanted.states) == 1 else None
    more = {
        "until": until,
        "limit": reading.page,
        "service": wanted.services[0] if wanted.services else None,
        "state": one_state,
        "request": table.request,
        "result": table.result,
    }
    with Catalogue(reading.url, reading.timeout) as catalogue:
        yield from _pages(catalogue, table, "scan_endings", after, more)


def _pages(
    catalogue: Catalogue, table: Table, task: str, after: int, kwargs: dict[str, Any]
) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(table)
    start: int | None = after
    while start is not None:
        columns, start = catalogue.columns(task, after=start, **kwargs)
        arrays = [pa.array(columns[field.name], field.type) for field in schema]
        if len(arrays[0]):
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
