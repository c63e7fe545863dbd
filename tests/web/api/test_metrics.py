"""Figures for Prometheus, health, readiness."""

from __future__ import annotations

import asyncio
import signal
from types import SimpleNamespace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from polydomo.core.policy import BrokerLimits, Policy
from polydomo.services.management import ManagementService
from polydomo.store.errors import StoreFull
from polydomo.web.api import health, metrics
from tests.support.broker import BrokerProcess, wait_for
from tests.support.core import make_broker
from tests.support.peers import MdpClient, MdpWorker
from tests.web.api.conftest import Place
from tests.web.api.site import Site, is_problem


def figures(site: Site) -> dict[tuple[str, ...], float]:
    """All of them, by name and labels' values."""
    answer = site.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


class TestMetrics:
    def test_jobs_are_counted(self, place: Place) -> None:
        before = figures(place.site)
        for _ in range(3):
            place.call(b"echo", b"x")
        after = figures(place.site)

        def grown(*name: str) -> float:
            return after[name] - before[name]

        assert grown("polydomo_jobs_accepted_total") == 3
        assert grown("polydomo_jobs_done_total") == 3
        assert grown("polydomo_service_done_total", "echo") == 3
        assert grown("polydomo_jobs_failed_total") == 0
        assert grown("polydomo_http_requests_total") >= 1

    def test_what_is_there(self, site: Site) -> None:
        found = figures(site)
        assert found["polydomo_service_workers", "echo"] == 1
        assert found["polydomo_workers", "mdp/0.2", "idle"] >= 2
        assert found["polydomo_connections", "zmq"] >= 2
        assert found["polydomo_connections", "http"] >= 1
        assert found["polydomo_store_trouble",] == 0
        assert found["polydomo_store_commits_total",] >= 0
        assert found["polydomo_jobs_active",] >= 0
        assert found["process_resident_memory_bytes",] > 0

    def test_memos(self, place: Place) -> None:
        before = figures(place.site)["polydomo_memo_hits_total",]
        for _ in range(3):
            place.call(b"remembered", b"metrics")
        found = figures(place.site)
        assert found["polydomo_memo_hits_total",] - before >= 2
        assert found["polydomo_memo_bytes",] > 0

    def test_principals(self, site: Site) -> None:
        found = figures(site)
        assert found["polydomo_principals",] >= 1
        assert found["polydomo_principal_connections", "anonymous"] >= 2
        assert found["polydomo_principal_jobs", "anonymous"] >= 0
        assert found["polydomo_principal_refused_total", "anonymous"] == 0

    def test_only_the_principals_that_take_most_become_time_series(self) -> None:
        broker = make_broker(BrokerLimits(), Policy())
        for number in range(metrics.PRINCIPALS + 50):
            broker.principals.get(f"oidc:{number}").stored = number
        server: Any = SimpleNamespace(broker=broker)
        count, *rest = metrics.BrokerCollector(server)._principals()
        assert count.values[()] == metrics.PRINCIPALS + 50
        assert len(rest) == 5
        names = {(f"oidc:{number}",) for number in range(50, metrics.PRINCIPALS + 50)}
        assert all(set(metric.values) == names for metric in rest)

    def test_made_up_services_do_not_become_time_series(self) -> None:
        broker = make_broker(BrokerLimits(), Policy())
        for number in range(metrics.SERVICES + 50):
            broker.services.keep(broker.services.find(b"s%d" % number))
        broker.services.policies = {b"s249": Policy()}
        server: Any = SimpleNamespace(broker=broker, management=ManagementService(broker, "test"))
        collector = metrics.BrokerCollector(server)
        asyncio.run(collector.choose())
        found = list(collector._services())
        assert found[0].values[()] == metrics.SERVICES + 50
        assert found[1].labels == ("service",)
        assert len(found[1].values) == metrics.SERVICES
        assert ("s249",) in found[1].values


class TestHealth:
    def test_alive_and_ready(self, site: Site) -> None:
        assert site.get("/healthz").json() == {"status": "ok"}
        assert site.get("/readyz").json() == {"status": "ready"}

    def test_not_ready_while_it_stops(self) -> None:
        with BrokerProcess(http=True) as broker:
            site = Site(broker.http)
            worker, client = MdpWorker(broker.endpoint, b"slow"), MdpClient(broker.endpoint)
            client.request(b"slow", b"x")
            task = worker.take()
            broker.signal(signal.SIGTERM)
            wait_for(lambda: site.get("/readyz").status == 503)
            assert "stopping" in is_problem(site.get("/readyz"), 503, "not-ready")["detail"]
            assert site.get("/healthz").status == 200
            worker.reply(task, [b"y"])
            assert client.answer(b"slow").final == [b"y"]
            assert broker.process.wait(10) == 0
            worker.close()
            client.close()

    def test_a_store_in_trouble(self) -> None:
        broker = SimpleNamespace(accounting=SimpleNamespace(draining=False, memory=0, memory_limit=10))
        watch = SimpleNamespace(trouble=StoreFull("the disk is full"))
        server: Any = SimpleNamespace(broker=broker, store_watch=watch)
        assert "the disk is full" in health._not_ready_reason(server)
        watch.trouble = None
        assert health._not_ready_reason(server) == ""

    def test_no_room_for_jobs(self) -> None:
        broker = SimpleNamespace(accounting=SimpleNamespace(draining=False, memory=11, memory_limit=10))
        server: Any = SimpleNamespace(broker=broker, store_watch=None)
        assert "limits.memory" in health._not_ready_reason(server)
