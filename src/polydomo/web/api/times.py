"""Times: RFC 3339 in the REST API, microseconds since 1970 inside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

# Limit in seconds: stores cannot hold later times.
_LATEST: Final = 1e12

# Fields of the management service's rows about durable jobs that are times.
_TIMES: Final = ("submitted", "dispatched", "finished", "started", "ended", "at")


def format_time(micros: int | None) -> str | None:
    """Return a time such as 2026-01-31T12:00:00.000000Z."""
    if micros is None:
        return None
    when = _EPOCH + timedelta(microseconds=micros)
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_time(text: str) -> int:
    """Parse RFC 3339 (UTC by default) or seconds since 1970; raise ValueError for anything else."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            when = datetime.fromisoformat(text)
            return ((when if when.tzinfo is not None else when.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
        except OverflowError:
            raise ValueError(text) from None
    if not abs(seconds) < _LATEST:  # false for NaN, too
        raise ValueError(text)
    return int(seconds * 1_000_000)


def format_times(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the management service, and the rows within it, with times as RFC 3339."""
    return {
        name: format_time(value)
        if name in _TIMES
        else [format_times(one) for one in value]
        if isinstance(value, list) and value and isinstance(value[0], dict)
        else value
        for name, value in row.items()
    }
