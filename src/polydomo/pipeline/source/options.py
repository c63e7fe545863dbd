"""Options of the data source: parsing and validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from polydomo.errors import ConfigError
from polydomo.pipeline.source import tables
from polydomo.sdk.url import default_url, parse

# Seconds for one reply of the broker, and for connecting to it.
TIMEOUT: Final = 60.0
REACH: Final = 10.0

# Rows per reply.
PAGE: Final = 5000

# Maximum number of tasks, and minimum number of rows per task.
PARTITIONS: Final = 4
WORTH: Final = 20_000

READING: Final = (
    "url",
    "table",
    "service",
    "state",
    "client",
    "key",
    "since",
    "before",
    "partitions",
    "page",
    "timeout",
    "maxRowsPerBatch",
    "startingOffset",
)
WRITING: Final = ("url", "service", "run", "window", "timeout", "patience")

STATES: Final = ("waiting", "delayed", "running", "done", "failed", "cancelled", "dead")


@dataclass(frozen=True)
class Wanted:
    """Filter passed to the broker; empty or None matches all. Times are microseconds since 1970."""

    services: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    since: int | None = None
    before: int | None = None
    nothing: bool = False  # the conditions contradict each other

    def narrowed(self, name: str, values: tuple[str, ...]) -> Wanted:
        """Return the filter with an additional condition on a field."""
        there: tuple[str, ...] = getattr(self, name)
        both = tuple(value for value in values if value in there) if there else tuple(dict.fromkeys(values))
        found: dict[str, Any] = {name: both}
        return replace(self, **found, nothing=self.nothing or not both)

    def from_time(self, micros: int) -> Wanted:
        """Return the filter limited to jobs submitted at or after a time."""
        return replace(self, since=micros if self.since is None else max(self.since, micros))

    def to_time(self, micros: int) -> Wanted:
        """Return the filter limited to jobs submitted before a time."""
        return replace(self, before=micros if self.before is None else min(self.before, micros))


@dataclass(frozen=True)
class Reading:
    """Validated options of `spark.read.format("polydomo")`."""

    url: str
    table: tables.Table
    wanted: Wanted
    partitions: int
    page: int
    timeout: float
    max_rows: int | None
    latest: bool  # a new stream starts with jobs that end from now on


@dataclass(frozen=True)
class Writing:
    """Validated options of `df.write.format("polydomo")`."""

    url: str
    service: str | None
    run: str | None
    window: int
    timeout: float
    patience: float


def reading(given: Mapping[str, str]) -> Reading:
    """Validate the options for reading."""
    options = _known(given, READING, "reading")
    name = options.get("table", tables.JOBS)
    table = tables.TABLES.get(name)
    if table is None:
        raise ConfigError(
            f"there is no table {name!r}", hint=f"option table is one of {', '.join(tables.TABLES)}"
        )
    wanted = Wanted(states=table.states)
    if table.name == tables.EVENTS and ("state" in options or "key" in options):
        raise ConfigError(
            "events cannot be filtered by state or key", hint="join them with the table jobs by id"
        )
    for option, field in (("service", "services"), ("client", "clients"), ("key", "keys")):
        if option in options:
            wanted = wanted.narrowed(field, (options[option],))
    if "state" in options:
        states = tuple(state.strip() for state in options["state"].split(","))
        for state in states:
            if state not in STATES:
                raise ConfigError(f"there is no state {state!r}", hint=f"states: {', '.join(STATES)}")
        wanted = wanted.narrowed("states", states)
        if wanted.nothing:
            raise ConfigError(
                f"the table {table.name} has no jobs in state {options['state']}",
                hint=f"its states are {', '.join(table.states)}",
            )
    if "since" in options:
        wanted = wanted.from_time(_time("since", options["since"]))
    if "before" in options:
        wanted = wanted.to_time(_time("before", options["before"]))
    offset = options.get("startingOffset", "earliest")
    if offset not in ("earliest", "latest"):
        raise ConfigError(f"startingOffset={offset!r}", hint="must be earliest or latest")
    rows = options.get("maxRowsPerBatch")
    return Reading(
        url=_url(options),
        table=table,
        wanted=wanted,
        partitions=_number(options, "partitions", PARTITIONS, 1000),
        page=_number(options, "page", PAGE, 10_000),
        timeout=_seconds(options, "timeout", TIMEOUT),
        max_rows=None if rows is None else _number(options, "maxRowsPerBatch", 1, 100_000),
        latest=offset == "latest",
    )


def writing(given: Mapping[str, str]) -> Writing:
    """Validate the options for writing."""
    options = _known(given, WRITING, "writing")
    return Writing(
        url=_kept(_url(options)),
        service=options.get("service"),
        run=options.get("run"),
        window=_number(options, "window", 256, 1000),
        timeout=_seconds(options, "timeout", TIMEOUT),
        patience=_seconds(options, "patience", REACH),
    )


# Spark's own options, which are passed along.
_SPARKS: Final = ("path", "checkpointlocation", "querytimeout")


def _known(given: Mapping[str, str], names: tuple[str, ...], what: str) -> dict[str, str]:
    """Return the options in their canonical spelling: Spark passes them in any case."""
    spelled = {name.lower(): name for name in names}
    unknown = sorted(name for name in given if name.lower() not in spelled and name.lower() not in _SPARKS)
    if unknown:
        raise ConfigError(
            f"unknown option {', '.join(unknown)} for {what}",
            hint=f"options: {', '.join(names)}; see the how-to",
        )
    return {spelled[name.lower()]: value for name, value in given.items() if name.lower() in spelled}


def _url(options: Mapping[str, str]) -> str:
    text = options.get("url") or default_url()
    parse(text)
    return text


def _kept(url: str) -> str:
    from polydomo.pipeline.bulk import address

    return address(url, durable=True)


def _number(options: Mapping[str, str], name: str, usual: int, most: int) -> int:
    text = options.get(name, str(usual))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
        raise ConfigError(f"{name}={text!r}", hint=f"must be a whole number from 1 to {most:,}")
    return int(text)


def _seconds(options: Mapping[str, str], name: str, usual: float) -> float:
    text = options.get(name, str(usual))
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigError(f"{name}={text!r}", hint="must be a positive number of seconds")
    return value


def _time(name: str, text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{name}={text!r} is not a time",
            hint="write 2026-11-16 or 2026-11-16T08:00:00Z; without a zone it is UTC",
        ) from None
    return micros(moment)


def micros(moment: datetime) -> int:
    """Return microseconds since 1970; a time without a zone is UTC."""
    whole = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = whole - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds
