"""web/api/origins: other sites' pages do not get through a visitor's browser."""

from __future__ import annotations

import pytest

from polydomo.web.api.origins import is_foreign
from tests.web.api.site import Site


def asked(origin: str | None, host: str, listener: str = "127.0.0.1") -> bool:
    headers = [(b"host", host.encode()), (b"accept", b"*/*")]
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    return is_foreign({"type": "http", "headers": headers, "server": (listener, 8080)})


@pytest.mark.parametrize(
    ("origin", "host", "listener"),
    [
        (None, "anything", "127.0.0.1"),
        ("http://127.0.0.1:8080", "127.0.0.1:8080", "127.0.0.1"),
        ("http://localhost:8080", "localhost:8080", "127.0.0.1"),
        ("http://LOCALHOST:8080", "localhost:8080", "127.0.0.1"),
        ("http://[::1]:8080", "[::1]:8080", "::1"),
        ("http://broker.example:8080", "broker.example:8080", "10.0.0.5"),
    ],
)
def test_ones_own(origin: str | None, host: str, listener: str) -> None:
    assert not asked(origin, host, listener)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://evil.example", "127.0.0.1:8080"),
        ("http://127.0.0.1:9090", "127.0.0.1:8080"),
        ("null", "127.0.0.1:8080"),
        ("", "127.0.0.1:8080"),
        ("http://", ""),
        ("http://[", "["),
        ("http://evil.example:8080", "evil.example:8080"),  # a name of theirs that leads here
    ],
)
def test_others(origin: str, host: str) -> None:
    assert asked(origin, host)


def test_a_page_of_another_site_is_refused(site: Site) -> None:
    answer = site.post("/v1/services/echo/jobs", b"x", origin="http://evil.example", prefer="wait")
    assert answer.status == 403
    assert answer.json()["reason"] == "not-allowed"
    assert site.post("/v1/services/echo/jobs", b"x", prefer="wait").body == b"x"
