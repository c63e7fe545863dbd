"""web/api/origins: names that the broker answers to, and other sites' pages."""

from __future__ import annotations

from typing import Any

import pytest

from polydomo.web.api.origin_guard import AUTHORITY, OriginGuard
from tests.support.broker import BrokerProcess
from tests.web.api.site import Site, is_problem


def reason(
    guard: OriginGuard, *hosts: str, origin: str | None = None, version: str = "1.1", **scope: Any
) -> str:
    """Why a request is refused; empty: it is not."""
    headers = [(b"host", host.encode()) for host in hosts] + [(b"accept", b"*/*")]
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    found = guard.check({"type": "http", "http_version": version, "headers": headers, **scope})
    return "" if found is None else str(found.members["reason"])


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.0.0.1:8080", "10.1.2.3:8080", "[::1]", "[::1]:8080", "[fe80::1%25eth0]:8080",
        "localhost", "LocalHost:8080", "localhost.",
    ],
)  # fmt: skip
def test_addresses_and_localhost_are_always_answered(host: str) -> None:
    assert reason(OriginGuard([], []), host) == ""


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "2130706433"],
)
def test_name_that_is_not_ours_is_misdirected(host: str) -> None:
    assert reason(OriginGuard([], []), host) == "misdirected"


@pytest.mark.parametrize(
    "host",
    [
        "",
        " ",
        "a b",
        "user@localhost",
        "localhost:x",
        "localhost/",
        "[::1",
        "::1",
        "localhost:123456",
        "\xff",
    ],
)
def test_host_that_is_none_is_malformed(host: str) -> None:
    assert reason(OriginGuard([], []), host) == "malformed"


def test_exactly_one_host_is_asked_for() -> None:
    guard = OriginGuard([], [])
    assert reason(guard) == "malformed"
    assert reason(guard, "localhost", "localhost") == "malformed"
    assert reason(guard, "localhost", "evil.example") == "malformed"


def test_http_1_0_needs_no_host_but_must_not_have_a_wrong_one() -> None:
    guard = OriginGuard([], [])
    assert reason(guard, version="1.0") == ""
    assert reason(guard, "evil.example", version="1.0") == "misdirected"
    assert reason(guard, "localhost", "localhost", version="1.0") == "malformed"


def test_names_of_the_settings_and_of_listeners_are_answered() -> None:
    guard = OriginGuard(["Broker.Example", "*.cluster.local"], [], ["door.example", "10.0.0.5"])
    for host in (
        "broker.example",
        "BROKER.example.:80",
        "a.cluster.local",
        "a.b.cluster.local:1",
        "door.example",
    ):
        assert reason(guard, host) == ""
    for host in ("cluster.local", "evilcluster.local", "x.broker.example"):
        assert reason(guard, host) == "misdirected"
    assert reason(OriginGuard(["*"], []), "evil.example") == ""
    assert reason(OriginGuard(["*"], [])) == "malformed"


def test_authority_of_an_absolute_target_counts_too() -> None:
    guard = OriginGuard([], [])
    assert reason(guard, "localhost", **{AUTHORITY: b"localhost:8080"}) == ""
    assert reason(guard, "localhost", **{AUTHORITY: b"evil.example"}) == "misdirected"
    assert reason(guard, "evil.example", **{AUTHORITY: b"localhost"}) == "misdirected"
    assert reason(guard, "localhost", **{AUTHORITY: b""}) == "malformed"


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (None, "127.0.0.1"),
        ("http://127.0.0.1:8080", "127.0.0.1:8080"),
        ("http://LOCALHOST:8080", "localhost:8080"),
        ("http://[::1]:8080", "[::1]:8080"),
        ("https://broker.example", "broker.example"),  # behind a proxy
        ("https://dash.example", "127.0.0.1:8080"),
    ],
)
def test_own_pages_and_those_of_the_settings_may_use_it(origin: str | None, host: str) -> None:
    assert reason(OriginGuard(["broker.example"], ["https://dash.example"]), host, origin=origin) == ""


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://127.0.0.1:9090",
        "null",
        "",
        "http://",
        "http://[",
        "http://dash.example",
    ],
)
def test_other_pages_may_not(origin: str) -> None:
    assert reason(OriginGuard([], ["https://dash.example"]), "127.0.0.1:8080", origin=origin) == "not-allowed"


def test_a_page_of_another_site_is_refused(site: Site) -> None:
    answer = site.post("/v1/services/echo/jobs", b"x", origin="http://evil.example", prefer="wait")
    found = is_problem(answer, 403, "not-allowed")
    assert "http.origins" in found["detail"]
    assert "access-control-allow-origin" not in answer.headers
    assert site.post("/v1/services/echo/jobs", b"x", prefer="wait").body == b"x"


def test_page_that_may_use_the_broker_can_ask_before_and_read_the_answer() -> None:
    toml = '[http]\norigins = ["https://dash.example"]\nhosts = ["broker.example"]\n'
    page = {"origin": "https://dash.example"}
    with BrokerProcess(toml=toml, http=True) as broker:
        site = Site(broker.http)
        asked = {
            "access_control_request_method": "PUT",
            "access_control_request_headers": "prefer,idempotency-key",
        }
        before = site.ask("OPTIONS", "/v1/services/s/jobs", **page, **asked)
        assert before.status == 200
        assert before.headers["access-control-allow-origin"] == "https://dash.example"
        assert "PUT" in before.headers["access-control-allow-methods"]
        assert "idempotency-key" in before.headers["access-control-allow-headers"].lower()
        assert "Origin" in before.headers["vary"]
        answer = site.get("/v1/services", **page)
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == "https://dash.example"
        assert "access-control-allow-credentials" not in answer.headers
        assert "access-control-allow-origin" not in site.get("/v1/services").headers
        is_problem(
            site.ask("OPTIONS", "/v1/services", origin="https://evil.example", **asked), 403, "not-allowed"
        )
