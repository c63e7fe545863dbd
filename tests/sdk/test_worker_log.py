"""A worker's log about its brokers: once for all its sessions, and not at every attempt."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from polydomo.sdk import Worker
from polydomo.sdk.clock import VirtualClock
from polydomo.sdk.testing import LocalBroker
from polydomo.sdk.url import parse
from polydomo.sdk.worker_log import REPEAT_AFTER, WorkerLog
from tests.sdk.support import until
from tests.support.broker import BrokerProcess

ONE, TWO = parse("mdp://one:1,two:2").addresses


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "polydomo.sdk")
    return caplog


def test_the_same_trouble_is_told_again_only_after_a_while(said: pytest.LogCaptureFixture):
    clock = VirtualClock()
    worker_log = WorkerLog(clock, ["greet"], 1)
    for _ in range(10):
        worker_log.unreachable("tcp://one:1: Connection refused")
        clock.move_to(clock.time() + 1)
    worker_log.unreachable("tcp://one:1: No route to host")
    assert said.messages == [
        "no broker at tcp://one:1: Connection refused; still looking",
        "no broker at tcp://one:1: No route to host; still looking",
    ]
    clock.move_to(clock.time() + REPEAT_AFTER)
    worker_log.unreachable("tcp://one:1: Connection refused")
    assert len(said.messages) == 3
    assert {record.levelname for record in said.records} == {"WARNING"}


def test_what_all_stations_notice_is_told_once(said: pytest.LogCaptureFixture):
    worker_log = WorkerLog(VirtualClock(), ["greet", "count"], 2)
    worker_log.registered("a", ONE)
    assert said.messages == []
    worker_log.registered("b", ONE)
    for session in ("a", "b"):
        worker_log.lost(session, ONE, "the broker closed the connection")
    worker_log.unreachable("tcp://one:1: Connection refused")
    for session in ("a", "b"):
        worker_log.registered(session, TWO)
    assert said.messages == [
        "offering greet, count at tcp://one:1",
        "tcp://one:1: the broker closed the connection; connecting again",
        "no broker at tcp://one:1: Connection refused; still looking",
        "offering greet, count at tcp://two:2",
    ]
    assert [record.levelname for record in said.records] == ["INFO", "WARNING", "WARNING", "WARNING"]


def test_after_it_was_well_the_same_trouble_is_news(said: pytest.LogCaptureFixture):
    worker_log = WorkerLog(VirtualClock(), ["greet"], 1)
    for _ in range(2):
        worker_log.lost("a", ONE, "gone")
        worker_log.registered("a", ONE)
    assert said.messages == ["tcp://one:1: gone; connecting again", "offering greet at tcp://one:1"] * 2


def test_somebody_else_may_tell_it(said: pytest.LogCaptureFixture):
    told: list[str] = []
    worker_log = WorkerLog(VirtualClock(), ["greet"], 2, told.append)
    worker_log.registered("a", ONE)
    worker_log.registered("b", TWO)
    assert (told, said.messages) == (["tcp://one:1, tcp://two:2"], [])


async def test_a_worker_tells_where_it_offers_and_when_it_does_again(dialect: str):
    async with LocalBroker() as one, LocalBroker() as two:
        worker = Worker(f"{dialect}+local://{one.name},{two.name}", concurrency=2)
        for name in ("greet", "count"):
            worker.add(name, lambda body: body)
        told: list[str] = []
        worker.on_offering = told.append
        async with worker:
            assert told == [f"local://{one.name}"]
            await one.crash()
            await until(lambda: told[1:] == [f"local://{two.name}"])


SCRIPT = """
from polydomo import Worker

worker = Worker("{url}")

@worker.service
def greet(name):
    return f"hello {{name}}"

worker.run_forever()
"""


def test_a_script_without_a_broker_says_so_and_when_there_is_one() -> None:
    """Nothing sets up logging in it."""
    with BrokerProcess() as broker:
        endpoint = broker.endpoint
    script = SCRIPT.format(url=endpoint.replace("tcp", "mdp"))
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        assert process.stderr.readline() == f"no broker at {endpoint}: Connection refused; still looking\n"
        with BrokerProcess(zmq=endpoint):
            assert process.stderr.readline() == f"offering greet at {endpoint}\n"
    finally:
        process.terminate()
        process.communicate()
