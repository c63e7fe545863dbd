"""Every route and method is for this broker's own names only, and so is what is no route."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import Any

import pytest
from starlette.routing import Route

from polydomo.server.server import BrokerServer
from polydomo.server.settings import Settings
from polydomo.web.api.app import make_app
from tests.web.api.conftest import Place
from tests.web.api.site import Site
from tests.web.desk import read_answer

WRONG = {
    "foreign": ("host: evil.example", 421, "misdirected"),
    "missing": ("x-host: 127.0.0.1", 400, "malformed"),
    "twice": ("host: 127.0.0.1\r\nhost: 127.0.0.1", 400, "malformed"),
    "both": ("host: 127.0.0.1\r\nhost: evil.example", 400, "malformed"),
}


async def routes() -> list[tuple[str, str]]:
    """Every method and path there is, with something for the parameters, and some that are not there."""
    settings = Settings()
    settings.broker.data = ""
    server: Any = BrokerServer(settings)
    server.loop = asyncio.get_running_loop()
    server.attempt_secret = bytes(32)  # as `start` sets it
    found = set()
    for route in make_app(server).routes:
        assert isinstance(route, Route)
        path = re.sub(r"{[^}]*}", "x", route.path)
        found |= {(method, path) for method in route.methods or ()}
    paths = {path for _, path in found} | {"/no/such/path"}
    found |= {(method, path) for method in ("HEAD", "OPTIONS", "PATCH", "TRACE") for path in paths}
    return sorted(found | {("GET", "/no/such/path")})


def ask(site: Site, request: str) -> tuple[int, bytes]:
    host, _, port = site.place.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        sock.sendall(request.encode())
        if request.startswith("HEAD"):
            return int(sock.recv(65536).split()[1]), b""
        return read_answer(sock)


@pytest.mark.parametrize("kind", WRONG)
async def test_wrong_host_is_refused_on_every_route_with_every_method(site: Site, kind: str) -> None:
    headers, status, reason = WRONG[kind]
    asked = await routes()
    assert len(asked) > 100
    assert {"/healthz", "/metrics", "/docs", "/openapi.json", "/v1/inventory"} <= {path for _, path in asked}
    for method, path in asked:
        found, body = ask(site, f"{method} {path} HTTP/1.1\r\n{headers}\r\nconnection: close\r\n\r\n")
        assert found == status, (method, path)
        assert method == "HEAD" or f'"{reason}"'.encode() in body, (method, path, body)


def test_inventory_is_not_told_to_a_page_that_had_its_name_resolved_to_the_broker(place: Place) -> None:
    asked = "GET /v1/inventory/w-1 HTTP/1.1\r\nhost: %s\r\n\r\n"
    status, body = ask(place.site, asked % "rebound.evil.example:8080")
    assert status == 421
    assert b"http.hosts" in body
    assert b"number" not in body
    assert ask(place.site, asked % "127.0.0.1")[0] == 200


def test_absolute_target_with_another_host_is_refused(site: Site) -> None:
    asked = "GET http://%s/healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    assert ask(site, asked % "127.0.0.1:8080")[0] == 200
    assert ask(site, asked % "evil.example")[0] == 421
