"""web/proxies: whom a request is from that a trusted proxy passes on."""

from __future__ import annotations

import socket

import pytest

from polydomo.web.proxies import Proxies
from tests.support.broker import BrokerProcess
from tests.web.api.site import Site
from tests.web.desk import read_answer

PROXY = ("10.0.0.1", 4711)


def client(*headers: tuple[str, str]) -> str:
    given = [(name.encode(), value.encode()) for name, value in headers]
    return Proxies(["10.0.0.0/8", "fd00::/8"]).client(given, PROXY)


def test_only_listed_proxies_are_trusted() -> None:
    proxies = Proxies(["10.0.0.0/8", "192.0.2.1"])
    assert proxies.trusts(("10.9.8.7", 1))
    assert proxies.trusts(("::ffff:192.0.2.1", 1))
    assert not proxies.trusts(("192.0.2.2", 1))
    assert not proxies.trusts(None)
    assert not Proxies([]).trusts(("127.0.0.1", 1))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("x-forwarded-for", "203.0.113.7", "203.0.113.7"),
        ("x-forwarded-for", "198.51.100.1, 203.0.113.7, 10.0.0.9", "203.0.113.7"),
        ("x-forwarded-for", "203.0.113.7:1234", "203.0.113.7"),
        ("x-forwarded-for", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("x-forwarded-for", "2001:db8::1", "2001:db8::1"),
        ("x-forwarded-for", "203.0.113.7, unknown", "10.0.0.1"),
        ("x-forwarded-for", "", "10.0.0.1"),
        ("forwarded", "for=203.0.113.7", "203.0.113.7"),
        ("forwarded", 'For="[2001:db8::1]:4711";proto=https, for=10.0.0.2;by=10.0.0.1', "2001:db8::1"),
        ("forwarded", "proto=http;for=203.0.113.7;by=10.0.0.1", "203.0.113.7"),
        ("forwarded", "for=198.51.100.1, for=_hidden", "10.0.0.1"),
        ("forwarded", "proto=http", "10.0.0.1"),
        ("via", "203.0.113.7", "10.0.0.1"),
    ],
)
def test_right_most_address_that_is_no_proxy_is_the_client(name: str, value: str, expected: str) -> None:
    assert client((name, value)) == expected


def test_several_headers_of_one_name_are_one_list() -> None:
    assert client(("x-forwarded-for", "198.51.100.1"), ("x-forwarded-for", "203.0.113.7")) == "203.0.113.7"


def test_headers_that_do_not_agree_are_not_believed() -> None:
    assert client(("forwarded", "for=198.51.100.1"), ("x-forwarded-for", "203.0.113.7")) == "10.0.0.1"
    assert client(("forwarded", "for=203.0.113.7"), ("x-forwarded-for", "203.0.113.7")) == "203.0.113.7"


def _client_of_a_job(broker: BrokerProcess, source: str) -> str:
    """The name under which a job is known that says it was passed on."""
    host, _, port = broker.http.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20, source_address=(source, 0)) as sock:
        sock.sendall(
            b"POST /v1/services/s/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1\r\n"
            b"x-forwarded-for: 203.0.113.7\r\n\r\nx"
        )
        status, body = read_answer(sock)
    assert status == 202
    job = Site(broker.http).get("/v1/jobs?service=s&limit=1").json()["jobs"][0]
    assert job["id"].encode() in body
    return str(job["client"])


def test_request_of_a_trusted_proxy_is_its_client_s_and_of_nobody_else() -> None:
    with BrokerProcess(toml='[http]\ntrusted_proxies = ["127.0.0.9"]\n', http=True) as broker:
        assert _client_of_a_job(broker, "127.0.0.9") == "203.0.113.7"
    with BrokerProcess(toml='[http]\ntrusted_proxies = ["127.0.0.9"]\n', http=True) as broker:
        assert _client_of_a_job(broker, "127.0.0.8") == "127.0.0.8"
