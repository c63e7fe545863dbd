"""A broker that keeps nothing on disk, in this process: the API is the same, as far as memory goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from polydomo import web
from polydomo.server.server import BrokerServer
from polydomo.server.settings import Settings
from tests.web.api.site import Answer, Site, is_problem


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    settings = Settings()
    settings.broker.zmq = ["tcp://127.0.0.1:*"]
    settings.broker.http = ["127.0.0.1:*"]
    settings.broker.data = ""
    server = BrokerServer(settings, (web.join,))
    await server.start()
    try:
        yield Site(server.endpoints()["http"][0])
    finally:
        server.stop()
        await server.wait()


async def ask(site: Site, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
    return await asyncio.to_thread(site.ask, method, path, body, **headers)


async def test_a_job_s_life(site: Site) -> None:
    accepted = await ask(site, "POST", "/v1/services/s/jobs", b"x")
    assert (accepted.status, accepted.json()["durable"]) == (202, False)
    path = accepted.headers["location"]
    listed = await ask(site, "GET", "/v1/jobs")
    assert [job["id"] for job in listed.json()["jobs"]] == [accepted.json()["id"]]
    following = asyncio.ensure_future(ask(site, "GET", f"{path}/events"))
    attempt = await ask(site, "POST", "/v1/workers/poll", b'{"services": ["s"]}')
    assert (attempt.status, attempt.body) == (200, b"x")
    assert (await ask(site, "GET", path)).json()["state"] == "running"
    await ask(site, "PUT", f"{attempt.headers['location']}/result", b"y")
    assert (await following).body.endswith(b"id: end\nevent: result\ndata: y\n\n")
    assert (await ask(site, "GET", f"{path}/result")).body == b"y"
    assert (await ask(site, "GET", path)).json()["state"] == "done"
    assert (await ask(site, "GET", f"{path}/events")).body == b"id: end\nevent: result\ndata: y\n\n"
    is_problem(await ask(site, "DELETE", path), 409, "conflict")
    assert (await ask(site, "GET", "/v1/jobs")).json() == {"jobs": [], "next": None}


async def test_what_cannot_be_kept_lives_in_memory_whatever_its_client_wishes(site: Site) -> None:
    accepted = await ask(site, "POST", "/v1/services/s/jobs?durable=true", b"x")
    assert (accepted.status, accepted.json()["durable"]) == (202, False)
    assert (await ask(site, "DELETE", accepted.headers["location"])).status == 204
    is_problem(await ask(site, "GET", f"{accepted.headers['location']}/result"), 410, "cancelled")
