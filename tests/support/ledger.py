"""Hand-made segments of a ledger, for tests of their readers without a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from polydomo.ledger import schema
from polydomo.ledger.schema import LedgerTable

START: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)

TYPES: Final = {
    "string": pa.string(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}

BY_NAME: Final = {table.name: table for table in schema.TABLES}

# Numbers for names of segments and for missing ids.
_numbers = count(1)


def arrow_schema(table: LedgerTable | str) -> pa.Schema:
    """Return a table's schema as a broker writes it."""
    table = BY_NAME[table] if isinstance(table, str) else table
    return pa.schema([pa.field(c.name, TYPES[c.kind], c.nullable) for c in table.columns])


def job(**given: Any) -> dict[str, Any]:
    """Return a row of `jobs`: done by one worker in 30 ms, after 10 ms in the queue, by default.

    Times that are not given follow from `submitted` (default: START) and the durations.
    """
    number = next(_numbers)
    submitted = given.get("submitted", START)
    waited, ran = given.get("waited_us", 10_000), given.get("ran_us", 30_000)
    took = given.get("took_us", (waited or 0) + (ran or 0))
    dispatched = submitted + timedelta(microseconds=waited or 0)
    row: dict[str, Any] = {
        "job_id": f"job-{number}",
        "service": "echo",
        "dialect_in": "mdp",
        "dialect_out": "mdp",
        "client": "client-1",
        "worker": "worker-1",
        "broker": "polydomo",
        "run": "run-1",
        "target": "any",
        "submitted": submitted,
        "queued": submitted,
        "dispatched": dispatched,
        "finished": submitted + timedelta(microseconds=took or 0),
        "outcome": schema.DONE,
        "attempts": 1,
        "partials": 0,
        "bytes_in": 100,
        "bytes_out": 200,
        "durable": False,
        "memo_hit": False,
        "repeat": False,
        "priority": 0,
        "waited_us": waited,
        "ran_us": ran,
        "took_us": took,
        "rebuilt": False,
    } | given
    row.setdefault("asked", row["service"])
    return row


def attempt(**given: Any) -> dict[str, Any]:
    """Return a row of `attempts`: lost with its worker after 50 ms, by default."""
    dispatched = given.get("dispatched", START)
    ran = given.get("ran_us", 50_000)
    return {
        "job_id": f"job-{next(_numbers)}",
        "number": 1,
        "service": "echo",
        "worker": "worker-1",
        "dialect_out": "mdp",
        "broker": "polydomo",
        "run": "run-1",
        "dispatched": dispatched,
        "ended": dispatched + timedelta(microseconds=ran or 0),
        "outcome": "worker-lost",
        "ran_us": ran,
        "rebuilt": False,
    } | given


def event(**given: Any) -> dict[str, Any]:
    """Return a row of `events`: a worker joined, by default."""
    return {
        "event_id": f"run-1-{next(_numbers)}",
        "at": START,
        "kind": "joined",
        "role": "worker",
        "peer": "worker-1",
        "service": "echo",
        "dialect": "mdp",
        "broker": "polydomo",
        "run": "run-1",
    } | given


MAKERS: Final = {"jobs": job, "attempts": attempt, "events": event}


def write_segment(
    folder: str | Path,
    table: str,
    rows: Iterable[Mapping[str, Any]],
    name: str | None = None,
    *,
    extra: Mapping[str, pa.DataType] | None = None,
    without: Sequence[str] = (),
    row_group_size: int | None = None,
) -> Path:
    """Write one complete segment of `table` to the ledger at `folder`. Missing values have reasonable defaults.

    `extra`: columns of a later broker. `without`: columns that an older one does not have. An existing file of that
    name is replaced.
    """
    full = [MAKERS[table](**row) for row in rows]
    plan = arrow_schema(table)
    for column in without:
        plan = plan.remove(plan.get_field_index(column))
    for column, kind in (extra or {}).items():
        plan = plan.append(pa.field(column, kind, True))
    meta = {
        schema.META_VERSION: str(schema.VERSION).encode(),
        schema.META_TABLE: table.encode(),
        schema.META_BROKER: b"polydomo",
        schema.META_RUN: b"run-1",
    }
    data = pa.Table.from_pylist([{c: row.get(c) for c in plan.names} for row in full], schema=plan)
    path = Path(folder) / table / (name or f"{table}-20260301T120000-run1-{next(_numbers):06}.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}")
    pq.write_table(data.replace_schema_metadata(meta), aside, row_group_size=row_group_size)
    aside.replace(path)
    return path
