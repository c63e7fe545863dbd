"""Counts of jobs: /metrics, REST, the catalogue and the ledger say the same of a mix of everything."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families

from polydomo.core.counts import MEANINGS
from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import MdpClient, MdpWorker
from tests.web.api.site import Site
from tests.web.desk import Desk

TOML = """
[services.full]
queue = 2

[services.brief]
wait = 0.3

[services.known]
memo = true

[services.safe]
durable = true

[services.lost]
durable = true
retries = 0

[broker]
drain = "5s"
"""

OUTCOMES = ("done", "failed", "cancelled", "dead", "refused", "repeated")


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess("--ledger", "auto", toml=TOML, http=True) as process:
        yield process


def ledger_counts(folder: Path) -> Counter[str]:
    """Jobs by outcome, as anybody would count them: parts belong to their whole, a repeat to the job it repeats."""
    found: Counter[str] = Counter()
    for segment in (folder / "jobs").glob("*.parquet"):
        for row in pq.read_table(segment).to_pylist():
            if row["parent"] is None:
                repeat = row["repeat"] and row["outcome"] != "refused"
                found["repeated" if repeat else row["outcome"]] += 1
    return found


def figures(site: Site) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(site.get("/metrics").body.decode())
        for sample in family.samples
    }


def catalogue(client: MdpClient, task: str) -> Any:
    return json.loads(client.call(b"mmi.service.broker", [task.encode()]).final[0])


def check_agreement(site: Site, client: MdpClient) -> dict[str, Any]:
    """The sources that can be asked while the broker runs; returns the counts."""
    shown: dict[str, Any] = catalogue(client, "show_broker")
    rest = site.get("/v1/broker").json()
    metrics = figures(site)
    rows = catalogue(client, "show_services")
    pages = site.get("/v1/services?limit=1000").json()["services"]
    for name in ("submitted", "accepted", *MEANINGS):
        assert shown[name] == rest[name] == metrics[f"polydomo_jobs_{name}_total",], name
    for name in MEANINGS:
        assert sum(row[name] for row in rows) + shown["unlisted"][name] == shown[name], name
        assert sum(row[name] for row in pages) + shown["unlisted"][name] == shown[name], name
        by_service = [value for key, value in metrics.items() if key[0] == f"polydomo_service_{name}_total"]
        assert sum(by_service) == shown[name], name
    assert shown["submitted"] == shown["accepted"] + shown["refused"] + shown["undecided"]
    assert shown["submitted"] == sum(shown[name] for name in OUTCOMES) + shown["active"]
    return shown


def test_all_sources_agree_on_a_mix_of_everything(broker: BrokerProcess) -> None:
    desk, site = Desk(broker), Desk(broker).site
    client, asker = MdpClient(broker.endpoint), MdpClient(broker.endpoint)
    expected: Counter[str] = Counter()

    for number in range(5):  # in memory, over a foreign client; three are refused by the queue
        client.request(b"full", b"%d" % number)
    wait_for(lambda: catalogue(asker, "show_broker")["refused"] == 3)
    expected["refused"] += 3
    with desk.echo("full"):
        assert [client.answer(b"full").final for _ in range(2)] == [[b"0"], [b"1"]]
    expected["done"] += 2

    client.request(b"brief", b"nobody comes")
    wait_for(lambda: catalogue(asker, "show_broker")["failed"] == 1)
    expected["failed"] += 1
    cancelled = desk.job("safe", b"unwanted")
    assert site.delete(cancelled).status == 204
    expected["cancelled"] += 1

    with desk.echo("safe"):
        keyed = {"idempotency_key": "once"}
        assert desk.wait("safe", b"one", **keyed).body == b"one"
        assert desk.wait("safe", b"one", **keyed).body == b"one"
        expected["done"] += 1
        expected["repeated"] += 1
        assert desk.wait("safe", b"to all", query="target=all").status == 200  # one job, one part
        expected["done"] += 1
    with desk.echo("known"):
        for _ in range(3):
            assert desk.wait("known", b"same", query="durable=false").body == b"same"
    expected["done"] += 3

    desk.job("lost", b"dead letter")
    worker = MdpWorker(broker.endpoint, b"lost")
    worker.take()
    worker.close()
    wait_for(lambda: catalogue(asker, "show_broker")["dead"] == 1)
    expected["dead"] += 1

    shown = check_agreement(site, asker)
    assert {name: shown[name] for name in OUTCOMES} == {name: expected[name] for name in OUTCOMES}
    assert shown["active"] == 0

    client.request(b"late", b"waits when the broker stops")
    wait_for(lambda: catalogue(asker, "show_broker")["active"] == 1)
    expected["failed"] += 1  # it had been accepted
    client.close()
    asker.close()
    broker.stop()
    assert ledger_counts(broker.data / "ledger") == +expected


def test_counts_survive_the_last_worker_and_the_service(broker: BrokerProcess) -> None:
    desk, site = Desk(broker), Desk(broker).site
    with desk.echo("passing"):
        assert desk.wait("passing", b"x", query="durable=false").body == b"x"
    wait_for(lambda: site.get("/v1/services/passing").json()["workers"] == 0)
    assert site.get("/v1/services/passing").json()["done"] == 1
    assert figures(site)["polydomo_service_done_total", "passing"] == 1
    asker = MdpClient(broker.endpoint)
    assert [row["done"] for row in catalogue(asker, "show_services") if row["name"] == "passing"] == [1]
    asker.close()
