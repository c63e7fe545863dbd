"""Quotas of a running broker, as peers of several protocols meet them; and what a client takes that leaves its jobs."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
import zmq

from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import MdpClient, MdpWorker, Peers, peers_of
from tests.web.api.site import Site, is_problem

# Nobody authenticates here, so one principal is everybody. Several are in `tests/abuse/test_noisy_principals.py`.
TOML = """
[quotas.anonymous]
jobs = 40
stored = "1MiB"
connections = 12

[limits]
client_bytes = "100KiB"

[services.kept]
durable = true
"""

KIB = 1024


def opened(broker: BrokerProcess) -> http.client.HTTPConnection:
    host, _, port = broker.http.rpartition(":")
    return http.client.HTTPConnection(host, int(port), timeout=20)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(toml=TOML, http=True) as broker:
        yield broker


@pytest.fixture
def peers(broker: BrokerProcess) -> Iterator[Peers]:
    with peers_of(broker.endpoint) as peers:
        yield peers


@pytest.fixture
def site(broker: BrokerProcess) -> Site:
    return Site(broker.http)


def test_a_peer_that_cannot_be_told_of_a_refusal_is_held_back_instead(peers: Peers) -> None:
    client = peers(MdpClient)
    for number in range(400):
        client.request(b"slow", b"%d" % number)
    worker = peers(MdpWorker, b"slow")
    for number in range(400):
        task = worker.take()
        assert task.body == [b"%d" % number]
        worker.reply(task, [b"ok"])
    for _ in range(400):
        client.answer(b"slow")


def test_http_is_told_which_quota_and_when_to_try_again(site: Site, peers: Peers) -> None:
    ids = []
    headers = {"polydomo_client": "curl", "prefer": "respond-async"}
    for _ in range(100):
        answer = site.post("/v1/services/nobody/jobs?durable=false", b"x", **headers)
        if answer.status == 429:
            break
        assert answer.status == 202, answer
        ids.append(answer.json()["id"])
    found = is_problem(answer, 429, "quota")
    assert answer.headers["retry-after"] == "1"
    assert "anonymous" in found["detail"]
    assert 30 <= len(ids) <= 40
    assert site.get("/readyz").status == 200
    for job in ids:
        assert site.delete(f"/v1/jobs/{job}").status == 204
    wait_for(lambda: site.post("/v1/services/nobody/jobs", b"x", prefer="respond-async").status == 202)


def test_a_principal_has_so_many_connections_and_the_log_says_so(broker: BrokerProcess, site: Site) -> None:
    context = zmq.Context.instance()
    sockets = [context.socket(zmq.DEALER) for _ in range(13)]
    for socket in sockets:
        socket.linger = 0
        socket.connect(broker.endpoint)
    wait_for(lambda: "anonymous has 12 connections and may have 12" in broker.log())
    for socket in sockets:
        socket.close()
    counted = b'polydomo_principal_connections{principal="anonymous"} 1.0'  # the one that asks
    wait_for(lambda: counted in site.get("/metrics").body)
    with closing(MdpClient(broker.endpoint)) as client:
        assert client.call(b"mmi.service", [b"mmi.service"]).final == [b"200"]


def test_http_connections_count_from_their_first_request_on(broker: BrokerProcess, site: Site) -> None:
    wait_for(lambda: b'connections{principal="anonymous"} 1.0' in site.get("/metrics").body)
    with ExitStack() as stack:
        statuses = []
        for _ in range(14):
            connection = stack.enter_context(closing(opened(broker)))
            for _ in range(2):
                connection.request("GET", "/v1/broker")
                response = connection.getresponse()
                response.read()
            statuses.append(response.status)
        assert statuses == [200] * 12 + [429] * 2
        assert response.getheader("connection") == "close"
        assert site.get("/readyz").status == 200
    wait_for(lambda: site.get("/v1/broker").status == 200)


def test_the_same_key_with_another_body_is_unprocessable(site: Site) -> None:
    for path in ("/v1/services/kept/jobs", "/v1/services/plain/jobs?durable=false"):
        headers = {"idempotency_key": "order-4711", "prefer": "respond-async"}
        first = site.post(path, b"one", **headers)
        assert first.status == 202
        is_problem(site.post(path, b"two", **headers), 422, "key-reused")
        assert site.post(path, b"one", **headers).status == 202
        site.delete(f"/v1/jobs/{first.json()['id']}")


def fill(site: Site, path: str, size: int, client: str, most: int = 100) -> tuple[int, str]:
    """Submit durable jobs until one is refused. Return how many were accepted, and why no more."""
    for count in range(most):
        answer = site.post(path, bytes(size), polydomo_client=client, prefer="respond-async")
        if answer.status != 202:
            assert answer.status == 429
            return count, answer.json()["reason"]
    return most, ""


def test_jobs_that_a_client_leaves_to_the_disk_count_as_its_own_also_after_a_restart() -> None:
    toml = '[limits]\nclient_bytes = "100KiB"'
    with BrokerProcess(toml=toml, http=True) as broker:
        site = Site(broker.http)
        path = "/v1/services/nobody/jobs"
        count, reason = fill(site, path, 10 * KIB, "curl")
        assert (reason, count) == ("too-many-jobs", 10)
        assert fill(site, path, 10 * KIB, "other", 1) == (1, "")
        broker.kill()
        broker.start_again()
        site = Site(broker.http)
        count, reason = fill(site, path, 10 * KIB, "curl")
        assert (reason, count) == ("too-many-jobs", 1)  # as ever, the job that is too much is taken
        assert fill(site, path, 10 * KIB, "other", 1) == (1, "")
        assert site.get("/readyz").status == 200


def test_jobs_that_nobody_works_on_leave_the_broker_ready_also_after_a_restart() -> None:
    toml = '[limits]\nmemory = "1MiB"\nclient_bytes = "64MiB"\n[defaults]\ndurable = true'
    with BrokerProcess(toml=toml, http=True) as broker:
        assert fill(Site(broker.http), "/v1/services/nobody/jobs", 20 * KIB, "curl")[1] == "broker-full"
        for restart in (True, False):
            assert Site(broker.http).get("/readyz").status == 200
            with (
                closing(MdpClient(broker.endpoint)) as client,
                closing(MdpWorker(broker.endpoint, b"echo")) as worker,
            ):
                worker.fence()
                client.request(b"echo", bytes(20 * KIB))
                worker.reply(worker.take(), [b"ok"])
                assert client.answer(b"echo").final == [b"ok"]
            if restart:
                broker.kill()
                broker.start_again()


def test_a_quota_on_disk_holds_over_connections_and_restarts() -> None:
    with BrokerProcess(toml='[quotas.anonymous]\nstored = "200KiB"', http=True) as broker:
        path = "/v1/services/nobody/jobs"
        counts = [fill(Site(broker.http), path, 20 * KIB, f"client-{number}")[0] for number in range(3)]
        assert sum(counts) in (8, 9)
        broker.kill()
        broker.start_again()
        site = Site(broker.http)
        assert fill(site, path, 20 * KIB, "another")[1] == "quota"
        shown = site.get("/v1/broker").json()["store"]
        assert 150 * KIB < shown["bytes"] <= 200 * KIB
        assert site.post(path + "?durable=false", bytes(20 * KIB), prefer="respond-async").status == 202
