"""server/endpoints: `tcp://HOST:PORT` and `ipc://PATH`."""

from __future__ import annotations

import pytest

from polydomo.errors import ConfigError
from polydomo.server.endpoints import Endpoint, parse, parse_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("tcp://127.0.0.1:5555", "127.0.0.1", 5555),
        ("tcp://broker.example.org:1", "broker.example.org", 1),
        ("tcp://localhost:65535/", "localhost", 65535),
        ("tcp://[::1]:5555", "::1", 5555),
        ("tcp://[fe80::1%eth0]:5555", "fe80::1%eth0", 5555),
    ],
)
def test_tcp_by_name_and_by_address(text: str, host: str, port: int) -> None:
    endpoint = parse(text)
    assert endpoint == Endpoint(host, port, "")
    assert not endpoint.is_ipc
    assert str(endpoint) == text.rstrip("/")
    assert parse(str(endpoint)) == endpoint


@pytest.mark.parametrize(("text", "unix"), [("ipc:///run/x.sock", "/run/x.sock"), ("ipc://@name", "\0name")])
def test_ipc_by_path_and_in_the_abstract_namespace(text: str, unix: str) -> None:
    endpoint = parse(text)
    assert endpoint.is_ipc
    assert endpoint.unix_path == unix
    assert str(endpoint) == text


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("tcp://*:5555", "", 5555),
        ("tcp://127.0.0.1:*", "127.0.0.1", 0),
        ("tcp://*:*", "", 0),
        ("tcp://x:0", "x", 0),
    ],
)
def test_stars_are_for_binding(text: str, host: str, port: int) -> None:
    assert parse(text, binding=True) == Endpoint(host, port, "")
    with pytest.raises(ConfigError, match="names no host and port"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5555",
        "127.0.0.1:5555",
        "tcp://",
        "tcp://host",
        "tcp://host:",
        "tcp://:5555",
        "tcp://host:port",
        "tcp://host:-1",
        "tcp://::1:5555",
        "tcp://host:5555/path",
        "udp://host:5555",
        "ipc://",
        " tcp://host:5555",
        "tcp://host:5555\x00",
    ],
)
def test_what_is_no_endpoint_is_told_what_one_looks_like(text: str) -> None:
    for binding in (False, True):
        with pytest.raises(ConfigError) as caught:
            parse(text, binding=binding)
        assert "tcp://" in caught.value.advice
        assert repr(text) in caught.value.message


def test_a_port_has_sixteen_bits() -> None:
    for binding in (False, True):
        with pytest.raises(ConfigError):
            parse("tcp://host:65536", binding=binding)


def test_a_line_end_is_no_part_of_an_endpoint() -> None:
    with pytest.raises(ConfigError):
        parse("tcp://host:5555\n")


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080),
        ("http://localhost:80/", "localhost", 80),
        ("[::1]:8080", "::1", 8080),
        ("*:8080", "", 8080),
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("127.0.0.1:*", "127.0.0.1", 0),
    ],
)
def test_an_address_for_http(text: str, host: str, port: int) -> None:
    assert parse_address(text)[:2] == (host, port)


@pytest.mark.parametrize(
    "text", ["8080", "localhost", "https://x:1", "x:99999", "tcp://127.0.0.1:1", ":80", ""]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="not an address"):
        parse_address(text)
