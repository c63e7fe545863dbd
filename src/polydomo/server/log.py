"""The log: structured lines on stderr, as text or JSON.

Messages of the standard library's `logging` (mostly asyncio's) have the same form. Every line is cleaned, because much
of it is text from peers: secrets of the configuration are masked, control characters are escaped, and long texts are
truncated.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from datetime import UTC, datetime
from typing import Any, TextIO

import structlog

from polydomo.redaction import redact
from polydomo.safe_text import safe, safe_line
from polydomo.server.settings import LogSection

# Number of entries that are kept in memory.
REMEMBERED = 1000

# The latest entries, oldest first, for the task `get_logs`.
recent: deque[dict[str, Any]] = deque(maxlen=REMEMBERED)

# Longest text of an event or of one of its values, and longest traceback, in characters.
LONGEST = 1000
LONGEST_TRACEBACK = 20_000


class Log:
    """Logger of the broker.

    If structlog is not configured, as in a program that embeds a broker, messages go to the standard library's logger
    `polydomo`; structlog by itself would print them to stdout.
    """

    def info(self, event: str, **facts: object) -> None:
        """Log an event of normal operation."""
        self._write("info", event, facts)

    def warning(self, event: str, **facts: object) -> None:
        """Log an event that may need attention."""
        self._write("warning", event, facts)

    def error(self, event: str, **facts: object) -> None:
        """Log a loss or a failure."""
        self._write("error", event, facts)

    def _write(self, level: str, event: str, facts: dict[str, object]) -> None:
        """Write a line; ignore that it cannot be written (a full disk, a closed pipe)."""
        try:
            if structlog.is_configured():
                getattr(structlog.get_logger("polydomo"), level)(event, **facts)
            else:
                line = " ".join([event, *[f"{name}={_clean(value)}" for name, value in facts.items()]])
                getattr(logging.getLogger("polydomo"), level)("%s", line)
        except (OSError, ValueError):  # ValueError: the file was closed
            pass


def setup(section: LogSection, stream: TextIO | None = None) -> None:
    """Configure the log; may be called again after a reload."""
    stream = sys.stderr if stream is None else stream
    terminal = stream.isatty()
    as_json = section.format == "json" or (section.format == "auto" and not terminal)
    level = logging.getLevelNamesMapping()[section.level.upper()]
    before: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.format_exc_info,
        _clean_line,
        _remember,
        structlog.processors.TimeStamper(fmt="iso", utc=True)
        if as_json
        else structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
    ]
    last: list[Any] = [_order, structlog.processors.JSONRenderer()] if as_json else [_text(terminal)]
    structlog.configure(
        processors=[*before, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=False,  # a reload may change the level
    )
    _join_logging(stream, level, before, last)


def _text(colours: bool) -> Any:
    # Tracebacks are text already (`format_exc_info`): rich's would block the event loop for tens of milliseconds and
    # show the values of variables.
    return structlog.dev.ConsoleRenderer(
        colors=colours,
        pad_event_to=0,
        pad_level=False,
        exception_formatter=structlog.dev.plain_traceback,
    )


def _order(logger: Any, method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Put timestamp, level and event first."""
    return {key: event.pop(key) for key in ("timestamp", "level", "event") if key in event} | event


def _clean_line(logger: Any, method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Mask secrets, escape control characters and truncate all values."""
    for name, value in event.items():
        if name == "exception":
            event[name] = safe(redact(value[-2 * LONGEST_TRACEBACK :])[-LONGEST_TRACEBACK:])
        elif not name.startswith("_"):
            event[name] = _clean(value)
    return event


def _clean(value: object) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_clean(one) for one in value[:LONGEST]]
    if isinstance(value, dict):
        return {_clean(str(name)): _clean(one) for name, one in value.items()}
    return safe_line(redact(str(value)[: 20 * LONGEST]), LONGEST)


def _remember(logger: Any, method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Keep an entry in memory; the line is not changed."""
    record = event.get("_record")  # from the standard library's logging
    facts = {
        name: str(value)[:LONGEST]
        for name, value in event.items()
        if not name.startswith("_") and name not in ("event", "level", "exception")
    }
    recent.append(
        {
            "ts": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": str(event.get("level", method)).upper(),
            "logger": "polydomo" if record is None else record.name,
            "message": str(event.get("event", "")),
            **({"facts": facts} if facts else {}),
        }
    )
    return event


def _join_logging(stream: TextIO, level: int, before: list[Any], last: list[Any]) -> None:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=before,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    # At debug level asyncio only logs which selector it uses.
    root.setLevel(max(level, logging.INFO))
