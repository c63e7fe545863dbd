"""The log: structured lines on stderr, text for people or JSON for programs.

Lines of the standard library's `logging` (asyncio's, mostly) come out in the same form. Every line is cleaned before
anybody sees it: secrets of the configuration are masked, control characters are shown instead of obeyed, and what is
too long is cut, because much of it is text from peers.
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

# How many lines are remembered.
REMEMBERED = 1000

# The newest lines, oldest first, for those who cannot see stderr (`get_logs`).
recent: deque[dict[str, Any]] = deque(maxlen=REMEMBERED)

# Characters of an event or of one fact, and of a traceback.
LONGEST = 1000
LONGEST_TRACEBACK = 20_000


class Log:
    """The broker's own lines. A program that has a broker in it and set up no structlog (a test, mostly) gets them
    through the standard library's logger `polydomo`: structlog by itself would print them between what it prints."""

    def info(self, event: str, **facts: object) -> None:
        """Worth knowing."""
        self._say("info", event, facts)

    def warning(self, event: str, **facts: object) -> None:
        """Worth looking at."""
        self._say("warning", event, facts)

    def error(self, event: str, **facts: object) -> None:
        """Something was lost or cannot be done."""
        self._say("error", event, facts)

    def _say(self, level: str, event: str, facts: dict[str, object]) -> None:
        """A line that cannot be written (a full disk, a closed pipe) is no reason for a broker to stop."""
        try:
            if structlog.is_configured():
                getattr(structlog.get_logger("polydomo"), level)(event, **facts)
            else:
                told = " ".join([event, *[f"{name}={_clean(value)}" for name, value in facts.items()]])
                getattr(logging.getLogger("polydomo"), level)("%s", told)
        except (OSError, ValueError):  # ValueError: the file was closed
            pass


def setup(section: LogSection, stream: TextIO | None = None) -> None:
    """May be called again, for a new level or format after a reload."""
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
    last = _json() if as_json else [_text(terminal)]
    structlog.configure(
        processors=[*before, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=False,  # a reload may change the level
    )
    _join_logging(stream, level, before, last)


def _text(colours: bool) -> Any:
    # Tracebacks are text already (`format_exc_info`): rich's would hold up the event loop for tens of milliseconds and
    # show the values of variables, which are no business of a log.
    return structlog.dev.ConsoleRenderer(
        colors=colours,
        pad_event_to=0,
        pad_level=False,
        exception_formatter=structlog.dev.plain_traceback,
    )


def _json() -> list[Any]:
    return [_order, structlog.processors.JSONRenderer()]


def _order(logger: Any, method: str, event: dict[str, Any]) -> dict[str, Any]:
    """When, how bad and what come first in every line."""
    return {key: event.pop(key) for key in ("timestamp", "level", "event") if key in event} | event


def _clean_line(logger: Any, method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Make everything in a line fit to be read."""
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
    """Nothing of a line is changed."""
    record = event.get("_record")  # of the standard library's logging
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
    # asyncio says at debug level which selector it uses: of no interest to anybody who debugs a broker.
    root.setLevel(max(level, logging.INFO))
