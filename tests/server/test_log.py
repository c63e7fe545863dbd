"""The log's lines: text or JSON, and only what is worth a line."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from polydomo.server import log
from polydomo.server.settings import LogSection

logger = structlog.get_logger("polydomo")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Both logging libraries are set up for the whole process."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_json_lines_begin_with_when_how_bad_and_what() -> None:
    stream = io.StringIO()
    log.setup(LogSection(format="json"), stream)
    logger.warning("peer cut", peer="127.0.0.1:1", reason=ValueError("x"))
    line = json.loads(stream.getvalue())
    assert list(line) == ["timestamp", "level", "event", "peer", "reason"]
    assert (line["level"], line["event"], line["peer"]) == ("warning", "peer cut", "127.0.0.1:1")


def test_without_a_setup_the_brokers_lines_go_to_pythons_own_logging(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    structlog.reset_defaults()
    caplog.set_level(logging.INFO, "polydomo")
    log.Log().info("stopping", jobs=0)
    log.Log().warning("peer cut", reason="100%")
    assert caplog.record_tuples == [
        ("polydomo", logging.INFO, "stopping jobs=0"),
        ("polydomo", logging.WARNING, "peer cut reason=100%"),
    ]
    assert capsys.readouterr().out == ""
    stream = io.StringIO()
    log.setup(LogSection(format="json"), stream)
    log.Log().error("lost", job=7)
    assert json.loads(stream.getvalue())["job"] == 7


@pytest.mark.parametrize(("stream", "is_json"), [(io.StringIO(), True), (Terminal(), False)])
def test_auto_is_text_on_a_terminal_and_json_otherwise(stream: io.StringIO, is_json: bool) -> None:
    log.setup(LogSection(), stream)
    logger.info("hello", who="you")
    assert stream.getvalue().startswith("{") is is_json


def test_text_has_colours_only_on_a_terminal() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        log.setup(LogSection(format="text"), stream)
        logger.info("hello", who="you")
    assert "\x1b[" in terminal.getvalue()
    assert "\x1b[" not in pipe.getvalue()
    assert "hello who=you" in pipe.getvalue()


def test_a_new_level_applies_to_loggers_that_exist() -> None:
    stream = io.StringIO()
    log.setup(LogSection(level="warning"), stream)
    logger.info("quiet")
    log.setup(LogSection(level="debug"), stream)
    logger.debug("loud")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["loud"]


def test_lines_of_the_standard_library_come_out_in_the_same_form() -> None:
    stream = io.StringIO()
    log.setup(LogSection(), stream)
    logging.getLogger("asyncio").error("socket.accept() out of system resource")
    line = json.loads(stream.getvalue())
    assert (line["level"], line["event"]) == ("error", "socket.accept() out of system resource")


def test_a_traceback_in_text_does_not_show_the_values_of_variables() -> None:
    stream = Terminal()
    log.setup(LogSection(), stream)
    secret = "hunter" + "2"
    try:
        raise RuntimeError(f"boom of {len(secret)}")
    except RuntimeError:
        logger.exception("oops")
        logging.getLogger("asyncio").exception("oops")
    assert stream.getvalue().count("RuntimeError: boom of 7") == 2
    assert "hunter2" not in stream.getvalue()


def test_an_exception_is_one_line_of_json() -> None:
    stream = io.StringIO()
    log.setup(LogSection(), stream)
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        logger.exception("oops")
        logging.getLogger("asyncio").exception("oops")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert all("RuntimeError: boom" in json.loads(line)["exception"] for line in lines)


def test_a_line_that_cannot_be_written_stops_nobody() -> None:
    stream = io.StringIO()
    log.setup(LogSection(), stream)
    stream.close()
    log.Log().warning("nobody will read this")


def test_the_newest_lines_are_remembered() -> None:
    """For `get_logs`: in one form whatever is written, with lines of the standard library among them."""
    for form in ("text", "json"):
        log.recent.clear()
        stream = io.StringIO()
        log.setup(LogSection(format=form, level="info"), stream)  # type: ignore[arg-type]
        log.Log().warning("something happened", peer="x" * 5000)
        log.Log()._write("debug", "too little", {})
        logging.getLogger("asyncio").error("a line %s", "of asyncio")
        first, second = log.recent
        assert (first["level"], first["logger"], first["message"]) == (
            "WARNING",
            "polydomo",
            "something happened",
        )
        assert len(first["facts"]["peer"]) == log.LONGEST
        assert (second["level"], second["logger"], second["message"]) == (
            "ERROR",
            "asyncio",
            "a line of asyncio",
        )
        assert "something happened" in stream.getvalue()
    for number in range(log.REMEMBERED + 5):
        log.Log().info(str(number))
    assert len(log.recent) == log.REMEMBERED
    assert log.recent[-1]["message"] == str(log.REMEMBERED + 4)
