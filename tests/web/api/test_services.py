"""What is offered, who is there, what is remembered, what is dead."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from polydomo import web
from polydomo.core.names import printable
from polydomo.dialects.nfp import json_bodies
from polydomo.ledger.job_batch import text as ledger_text
from polydomo.server.server import BrokerServer
from polydomo.server.settings import Settings
from tests.support.broker import wait_for
from tests.support.peers import MdpClient, MdpWorker, Serving
from tests.web.api.conftest import Place
from tests.web.api.site import Site, is_problem


class TestServices:
    def test_the_list(self, site: Site) -> None:
        rows = {row["name"]: row for row in site.get("/v1/services").json()["services"]}
        assert rows["echo"]["workers"] == 1
        assert not any(name.startswith("mmi.") for name in rows)

    def test_page_by_page(self, site: Site) -> None:
        whole = [row["name"] for row in site.get("/v1/services").json()["services"]]
        seen: list[str] = []
        after = ""
        while after is not None:
            page = site.get(f"/v1/services?limit=1&after={after}").json()
            seen += [row["name"] for row in page["services"]]
            after = page["next"]
        assert seen == whole
        assert len(seen) >= 3

    def test_one(self, site: Site) -> None:
        found = site.get("/v1/services/echo").json()
        assert found["policy"]["timeout"] == 5.0
        assert len(found["worker_names"]) == found["workers"] == 1
        assert found["memo"] is None
        assert site.get("/v1/services/remembered").json()["memo"]["misses"] >= 0

    def test_one_that_only_has_settings(self, site: Site) -> None:
        assert site.get("/v1/services/dies").json()["policy"]["retries"] == 0

    def test_none(self, site: Site) -> None:
        for name in ("nobody", "a/b", "mmi.service", "%00", "jobs"):
            is_problem(site.get(f"/v1/services/{name}"), 404, "not-found")

    def test_etags(self, site: Site) -> None:
        answer = site.get("/v1/services/dies")
        tag = answer.headers["etag"]
        same = site.get("/v1/services/dies", if_none_match=f'"x", {tag}')
        assert (same.status, same.body, same.headers["etag"]) == (304, b"", tag)
        assert site.get("/v1/services/dies", if_none_match="*").status == 304
        assert site.get("/v1/services/dies", if_none_match='"x"').status == 200

    def test_pause_and_resume(self, place: Place) -> None:
        site = place.site
        assert site.post("/v1/services/echo/pause").json() == {"name": "echo", "paused": True}
        assert site.get("/v1/services/echo").json()["paused"] is True
        with MdpClient(place.broker.endpoint) as client:
            client.request(b"echo", b"later")
            wait_for(lambda: site.get("/v1/services/echo").json()["waiting"] == 1)
            assert site.post("/v1/services/echo/resume").json() == {"name": "echo", "paused": False}
            assert client.answer(b"echo").final == [b"later"]

    def test_nothing_to_pause(self, site: Site) -> None:
        is_problem(site.post("/v1/services/nobody/pause"), 404, "not-found")
        is_problem(site.post("/v1/services/mmi.service/resume"), 404, "not-found")


class TestMemo:
    def test_counted_and_forgotten(self, place: Place) -> None:
        site = place.site
        site.delete("/v1/services/remembered/memo")
        before = site.get("/v1/services/remembered/memo").json()
        for body in (b"one", b"two", b"one", b"one"):
            assert place.call(b"remembered", body) == body
        after = site.get("/v1/services/remembered/memo").json()
        assert after["on"] is True
        assert after["misses"] - before["misses"] == 2
        assert after["hits"] - before["hits"] == 2
        assert after["entries"] == 2
        assert site.delete("/v1/services/remembered/memo", b"one").json()["forgotten"] == 1
        assert site.delete("/v1/services/remembered/memo", b"three").json()["forgotten"] == 0
        assert site.delete("/v1/services/remembered/memo").json() == {"name": "remembered", "forgotten": 1}
        assert site.get("/v1/services/remembered/memo").json()["entries"] == 0

    def test_of_a_service_that_is_none(self, site: Site) -> None:
        is_problem(site.get("/v1/services/nobody/memo"), 404, "not-found")
        assert site.get("/v1/services/echo/memo").json()["on"] is False


class TestPeers:
    def test_workers(self, site: Site) -> None:
        found = site.get("/v1/workers?service=echo").json()
        assert [row["services"] for row in found["workers"]] == [["echo"]]
        assert found["workers"][0]["dialect"] == "mdp/0.2"
        assert site.get("/v1/workers?service=nobody").json() == {"workers": [], "next": None}
        assert site.get("/v1/workers?limit=1").json()["next"] == 1
        assert site.get("/v1/workers?skip=1000").json()["workers"] == []

    def test_clients(self, place: Place) -> None:
        with MdpClient(place.broker.endpoint) as client:
            client.call(b"echo", [b"x"])
            rows = place.site.get("/v1/clients").json()["clients"]
        assert any(row["dialect"] == "mdp/0.2" and row["submitted"] >= 1 for row in rows)

    def test_the_broker(self, place: Place) -> None:
        found = place.site.get("/v1/broker").json()
        assert found["zmq"] == [place.broker.endpoint]
        assert found["http"]["bound"] == [place.broker.http]


class TestInventory:
    def test_where_it_comes_from(self, place: Place) -> None:
        found = place.site.get("/v1/inventory").json()
        assert found["files"] == [str(place.inventory)]
        assert list(found["workers"]) == ["w-*", "w-1"]

    def test_of_a_worker(self, site: Site) -> None:
        assert site.get("/v1/inventory/w-1").json() == {"role": "echo", "number": 1}
        assert site.get("/v1/inventory/w-2").json() == {"role": "echo"}
        is_problem(site.get("/v1/inventory/other"), 404, "not-found")
        is_problem(site.get("/v1/inventory/" + "x" * 1001), 400, "malformed")

    def test_read_again(self, place: Place) -> None:
        good = place.inventory.read_text()
        try:
            place.inventory.write_text("workers: 5")
            is_problem(place.site.post("/v1/inventory"), 409, "conflict")
        finally:
            place.inventory.write_text(good)
        assert place.site.post("/v1/inventory").json() == {"changed": []}
        assert place.site.get("/v1/inventory/w-2").json() == {"role": "echo"}


class TestDeadLetters:
    @pytest.fixture
    def dead(self, place: Place) -> Iterator[dict[str, Any]]:
        """A job whose worker never answered."""
        worker: Serving = place.serve(b"dies", lambda worker, task: None)
        client = MdpClient(place.broker.endpoint)
        before = {row["id"] for row in _dead(place.site)}
        try:
            client.request(b"dies", b"hello")
            wait_for(lambda: {row["id"] for row in _dead(place.site)} - before)
            (row,) = [row for row in _dead(place.site) if row["id"] not in before]
            yield row
        finally:
            worker.stop()
            client.close()

    def test_listed_and_shown(self, site: Site, dead: dict[str, Any]) -> None:
        assert (dead["service"], dead["state"], dead["reason"]) == ("dies", "dead", "retries-exhausted")
        found = site.get(f"/v1/dead/{dead['id']}").json()
        assert found["request"] == ["hello"]
        assert len(found["history"]) == 1
        assert site.get("/v1/dead?service=other").json() == {"jobs": [], "next": None}
        assert dead["id"] in [
            row["id"] for row in site.get("/v1/dead?service=dies&limit=1000").json()["jobs"]
        ]

    def test_sent_again(self, site: Site, dead: dict[str, Any]) -> None:
        assert site.post(f"/v1/dead/{dead['id']}/resend").json() == {"id": dead["id"], "sent": True}
        is_problem(site.post(f"/v1/dead/{dead['id']}/resend"), 404, "not-found")

    def test_forgotten(self, site: Site, dead: dict[str, Any]) -> None:
        answer = site.delete(f"/v1/dead/{dead['id']}")
        assert (answer.status, answer.body) == (204, b"")
        is_problem(site.delete(f"/v1/dead/{dead['id']}"), 404, "not-found")

    def test_none(self, site: Site) -> None:
        for name in ("nothing", "%00", "a%2Fb"):
            is_problem(site.get(f"/v1/dead/{name}"), 404, "not-found")
        is_problem(site.get("/v1/dead?page=x"), 400, "malformed")


async def test_a_broker_that_keeps_and_shares_nothing() -> None:
    settings = Settings()
    settings.broker.zmq, settings.broker.http, settings.broker.data = [], ["127.0.0.1:0"], ""
    server = BrokerServer(settings, (web.join,))
    await server.start()
    site = Site(server.endpoints()["http"][0])

    def look() -> None:
        for path in ("/v1/dead", "/v1/dead/x", "/v1/files", "/v1/files/x"):
            is_problem(site.get(path), 501, "not-supported")
        is_problem(site.post("/v1/inventory"), 501, "not-supported")
        assert site.get("/v1/inventory").json()["file"] == ""
        assert site.get("/readyz").status == 200

    try:
        await asyncio.to_thread(look)
    finally:
        server.stop(drain=False)
        await server.wait()


def _dead(site: Site) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = site.get("/v1/dead?limit=1000").json()["jobs"]
    return found


class TestNamesThatAreNoText:
    """Names are shown in one form everywhere, and taken in that form."""

    SERVICE, WORKER, CLIENT = b"\xfe\x01service", b"\xca\xfeworker", b"\xbe\xefclient"

    @pytest.fixture
    def serving(self, place: Place) -> Iterator[Serving]:
        def worker(context: Any) -> MdpWorker:
            return MdpWorker(place.broker.endpoint, self.SERVICE, identity=self.WORKER, context=context)

        serving = Serving(worker)
        try:
            wait_for(lambda: self.SERVICE.hex() in place.site.get("/v1/services").body.decode())
            yield serving
        finally:
            serving.stop()

    def test_rest_takes_what_rest_shows(self, place: Place, serving: Serving) -> None:
        site = place.site
        (name,) = [
            row["name"]
            for row in site.get("/v1/services").json()["services"]
            if self.SERVICE.hex() in row["name"]
        ]
        assert name == f"0x{self.SERVICE.hex()}"
        (worker,) = site.get(f"/v1/services/{name}").json()["worker_names"]
        assert worker == f"0x{self.WORKER.hex()}"
        for target in ("any", worker, f'["{worker}"]'):
            path = f"/v1/services/{name}/jobs?durable=true&target={quote(target)}"
            answer = site.post(path, b"x", prefer="wait=10")
            assert (answer.status, answer.body) == (200, b"x"), answer
        (job, *_) = site.get(f"/v1/jobs?service={name}").json()["jobs"]
        assert (job["service"], job["worker"]) == (name, worker)
        assert site.post(f"/v1/services/{name}/pause").status == 200
        assert site.post(f"/v1/services/{name}/resume").status == 200

    def test_a_client_is_found_by_the_name_that_it_is_shown_with(self, place: Place) -> None:
        client = MdpClient(place.broker.endpoint, identity=self.CLIENT)
        try:
            client.request(b"dies", b"x")
            shown = f"0x{self.CLIENT.hex()}"
            wait_for(lambda: place.site.get(f"/v1/jobs?client={shown}").json()["jobs"])
            (job,) = place.site.get(f"/v1/jobs?client={shown}").json()["jobs"]
            assert job["client"] == shown
        finally:
            client.close()

    def test_the_ledger_shows_the_same(self) -> None:
        for name in (self.SERVICE, self.WORKER, b"echo", b"0xcafe"):
            assert ledger_text(name) == printable(name) == json.loads(json_bodies.quote_name(name))
