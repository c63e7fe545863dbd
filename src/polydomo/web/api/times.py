"""Times in the REST API are RFC 3339; inside they are microseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

# Seconds; beyond that nothing was submitted, and a store cannot hold it.
_LATEST: Final = 1e12

# Members of the catalogue's rows about durable jobs that are times.
_TIMES: Final = ("submitted", "dispatched", "finished", "started", "ended", "at")


def moment(micros: int | None) -> str | None:
    """Such as 2026-01-31T12:00:00.000000Z."""
    if micros is None:
        return None
    when = _EPOCH + timedelta(microseconds=micros)
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def read(text: str) -> int:
    """RFC 3339 (UTC where it does not say), or seconds since 1970. ValueError: it is no time."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            when = datetime.fromisoformat(text)
            return ((when if when.tzinfo is not None else when.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
        except OverflowError:
            raise ValueError(text) from None
    if not abs(seconds) < _LATEST:  # not for NaN either
        raise ValueError(text)
    return int(seconds * 1_000_000)


def dated(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the catalogue with its times as the API writes them, and those of the rows in it."""
    return {
        name: moment(value)
        if name in _TIMES
        else [dated(one) for one in value]
        if isinstance(value, list) and value and isinstance(value[0], dict)
        else value
        for name, value in row.items()
    }
