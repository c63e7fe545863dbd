"""server/endpoints: `tcp://HOST:PORT` and `ipc://PATH`."""

from __future__ import annotations

import pytest

from polydomo.errors import ConfigError
from polydomo.server.endpoints import (
    Endpoint,
    Listener,
    endpoint_part,
    is_any_port,
    parse,
    parse_address,
    parse_listener,
    with_port_of,
)
from polydomo.server.identification import BY_KEY, Identification


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
    assert parse_address(text) == Listener(Endpoint(host, port, ""), BY_KEY)


@pytest.mark.parametrize(
    "text", ["8080", "localhost", "https://x", "ftp://x:1", "x:99999", "tcp://127.0.0.1:1", ":80", ""]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="not an address"):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "principal"),
    [
        ("tcp://0.0.0.0:5556?principal=legacy", "legacy"),
        ("tcp://0.0.0.0:5556/?principal=a.b-c_d@e", "a.b-c_d@e"),
        ("ipc:///run/x.sock?principal=anonymous", "anonymous"),
        (f"tcp://*:*?principal={'a' * 64}", "a" * 64),
        ("tcp://127.0.0.1:1?principal=a%40b", "a@b"),
    ],
)
def test_a_listener_may_name_the_principal_of_its_peers(text: str, principal: str) -> None:
    listener = parse_listener(text)
    assert listener.identification == Identification(principal=principal)
    assert listener.identification.is_given
    assert listener.endpoint == parse(endpoint_part(text), binding=True)


def test_an_http_listener_may_name_the_principal_of_its_peers() -> None:
    for text in ("127.0.0.1:8080?principal=local", "http://127.0.0.1:8080/?principal=local"):
        assert parse_address(text) == Listener(
            Endpoint("127.0.0.1", 8080, ""), Identification(principal="local")
        )


def test_a_unix_socket_may_take_the_user_as_principal() -> None:
    assert parse_listener("ipc:///run/x.sock?auth=user") == Listener(
        Endpoint("", 0, "/run/x.sock"), Identification(by_user=True)
    )


def test_peers_of_a_listener_without_options_need_a_key() -> None:
    assert parse_listener("tcp://*:1") == Listener(Endpoint("", 1, ""), BY_KEY)
    assert not BY_KEY.is_given


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tcp://h:1?", "unknown option ''"),
        ("tcp://h:1?user=x", "unknown option 'user=x'"),
        ("tcp://h:1?auth=none", "unknown option 'auth=none'"),
        ("tcp://h:1?auth=user", "only the user of a local process"),
        ("tcp://h:1?principal=", "'' cannot be a principal's name"),
        ("tcp://h:1?principal=user:root", "'user:root' cannot be a principal's name"),
        ("tcp://h:1?principal=-x", "cannot be a principal's name"),
        (f"tcp://h:1?principal={'a' * 65}", "cannot be a principal's name"),
        ("tcp://h:1?principal=x\n", "cannot be a principal's name"),
        ("ipc:///x?principal=a&auth=user", "cannot be a principal's name"),
        ("ipc:///x?auth=user&principal=a", "unknown option"),
    ],
)
def test_invalid_options_of_a_listener_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_listener(text)
    assert message in caught.value.message
    assert caught.value.advice


def test_an_endpoint_to_connect_to_has_no_options() -> None:
    with pytest.raises(ConfigError, match="not an endpoint"):
        parse("tcp://h:1?principal=x")


def test_a_port_that_the_system_chose_keeps_the_options() -> None:
    for text in ("tcp://127.0.0.1:*?principal=x", "127.0.0.1:0?principal=x"):
        assert is_any_port(text)
    assert with_port_of("tcp://h:*?principal=x", "tcp://h:7") == "tcp://h:7?principal=x"
    assert with_port_of("tcp://h:*", "tcp://h:7") == "tcp://h:7"
    assert with_port_of("https://h:*?principal=x", "https://h:7") == "https://h:7?principal=x"
    assert not is_any_port("tcp://h:1?principal=x:0")
    assert with_port_of("tcp://h:1?principal=x", "tcp://h:1") == "tcp://h:1?principal=x"


def test_tls_is_for_http_and_nng() -> None:
    assert parse_address("https://*:8443") == Listener(Endpoint("", 8443, "", tls=True), BY_KEY)
    endpoint, identification = parse_listener("tls+tcp://[::1]:1?principal=x", tls=True)
    assert endpoint == Endpoint("::1", 1, "", tls=True)
    assert identification.principal == "x"
    assert str(endpoint) == "tls+tcp://[::1]:1"
    assert not parse_listener("tcp://h:1", tls=True).endpoint.tls
    with pytest.raises(ConfigError, match="ZeroMQ has no TLS") as caught:
        parse_listener("tls+tcp://*:1")
    assert "security.curve" in caught.value.advice
