"""uvicorn's inner parts are what `web.connection` takes them for."""

from __future__ import annotations

import inspect
import tomllib
from importlib.metadata import version
from pathlib import Path

import httptools
import pytest
from packaging.requirements import Requirement
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from polydomo.web.connection import HttpConnection


def test_installed_version_is_one_of_those_that_are_known() -> None:
    project = tomllib.loads(Path(__file__, "../../../pyproject.toml").resolve().read_text())["project"]
    requirement = next(
        found for text in project["dependencies"] if (found := Requirement(text)).name == "uvicorn"
    )
    assert requirement.specifier.contains(version("uvicorn"))
    assert any(bound.operator == "<" for bound in requirement.specifier), "inner parts change: name an end"


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("__init__", ["self", "config", "server_state", "app_state", "_loop"]),
        ("connection_made", ["self", "transport"]),
        ("connection_lost", ["self", "exc"]),
        ("data_received", ["self", "data"]),
        ("on_message_begin", ["self"]),
        ("on_header", ["self", "name", "value"]),
        ("on_headers_complete", ["self"]),
        ("on_body", ["self", "body"]),
        ("on_message_complete", ["self"]),
        ("on_response_complete", ["self"]),
        ("_start_asgi_task", ["self", "cycle", "app"]),
        ("pause_writing", ["self"]),
        ("resume_writing", ["self"]),
    ],
)
def test_methods_that_are_overridden_are_there(name: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(HttpToolsProtocol, name)).parameters) == parameters
    assert name in vars(HttpConnection), "it is not overridden any more: drop it here"


def test_every_override_is_in_the_list_above() -> None:
    """A method of ours must not take the name of one of uvicorn's by chance."""
    listed = {name for name, _ in test_methods_that_are_overridden_are_there.pytestmark[0].args[1]}
    inherited = {name for name in vars(HttpToolsProtocol) if callable(getattr(HttpToolsProtocol, name))}
    assert {name for name in vars(HttpConnection) if name in inherited} == listed


def test_attributes_that_are_used_are_set_where_they_are_expected() -> None:
    assert {"total_requests", "connections", "tasks", "default_headers"} <= vars(ServerState()).keys()
    assert 200 in httptools_impl.STATUS_LINE
    source = inspect.getsource(HttpToolsProtocol.__init__)
    for name in (
        "parser",
        "transport",
        "flow",
        "client",
        "pipeline",
        "scope",
        "headers",
        "cycle",
        "connections",
    ):
        assert f"self.{name}" in source
    source = inspect.getsource(RequestResponseCycle.__init__)
    for name in (
        "body", "disconnected", "keep_alive", "message_event", "more_body", "response_complete",
        "response_started", "transport",
    ):  # fmt: skip
        assert f"self.{name}" in source
    assert {"pause_reading", "resume_reading", "drain"} <= vars(FlowControl).keys()
    assert "write_paused" in inspect.getsource(FlowControl.__init__)
    assert "read_paused" in inspect.getsource(FlowControl.__init__)


def test_later_requests_wait_left_in_the_pipeline() -> None:
    assert "self.pipeline.appendleft((self.cycle, app))" in inspect.getsource(
        HttpToolsProtocol.on_headers_complete
    )
    assert "self.pipeline.pop()" in inspect.getsource(HttpToolsProtocol.on_response_complete)


def test_parser_tells_of_chunks_and_trailers() -> None:
    heard: list[str] = []

    class Hearing:
        def on_headers_complete(self) -> None:
            heard.append("head")

        def on_chunk_header(self) -> None:
            heard.append("chunk")

        def on_body(self, body: bytes) -> None:
            heard.append("body")

        def on_header(self, name: bytes, value: bytes) -> None:
            heard.append(name.decode())

    parser = httptools.HttpRequestParser(Hearing())
    parser.feed_data(
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\na\r\n0\r\nTrailer-1: b\r\n\r\n"
    )
    assert heard == ["Transfer-Encoding", "head", "chunk", "body", "chunk", "Trailer-1"]
