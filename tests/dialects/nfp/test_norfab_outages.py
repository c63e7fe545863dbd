"""norfab's own peers when a worker, the broker or the client dies, and when somebody talks nonsense beside them."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker import BrokerProcess
from tests.support.norfab import PATIENCE, Client, Fabric, Raw, lines, until

pytestmark = [pytest.mark.peers, pytest.mark.slow]

BACK_AFTER = 3.5  # seconds from the broker's return: norfab's workers speak every 2.5 s


class NorfabSite(Fabric):
    """A broker and its norfab peers."""

    def __init__(self, broker: BrokerProcess, folder: Path) -> None:
        super().__init__(broker.endpoint, folder)
        self.broker = broker

    def has(self, *names: str) -> bool:
        return set(names) <= set(self.client.alive())

    def stored(self, futures: list[Any]) -> bool:
        """Are all of these jobs on disk, and who has them?"""
        found = {job["id"]: job for job in self.client.mmi("show_stored_jobs", limit=500)["jobs"]}
        return all(
            future.uuid in found and [found[future.uuid]["worker"]] == (self.dispatched(future) or [""])
            for future in futures
        )

    def dispatched(self, future: Any) -> list[str]:
        """Whom the client waits for: the names in the 202."""
        names: list[str] = self.client.job(future.uuid)["workers_dispatched"]
        return names


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NorfabSite]:
    """Every test here leaves it as it found it: a broker with three workers."""
    folder = tmp_path_factory.mktemp("norfab")
    with BrokerProcess() as broker, NorfabSite(broker, folder) as site:
        site.start(red=["red-1", "red-2"], blue=["blue-1"])
        yield site


@pytest.fixture(autouse=True)
def _all_there(site: NorfabSite) -> None:
    for worker in site.workers.values():
        if worker.process.poll() is not None:
            worker.start()
    site.await_workers(*site.workers)


def ran(log: Path) -> list[tuple[str, str]]:
    """Which worker ran it, in which process, in order."""
    return [(line.split()[1], line.split()[2]) for line in lines(log)]


# -- a worker dies


def test_an_any_job_of_a_killed_worker_runs_on_another(site: NorfabSite) -> None:
    log, gate = site.file("log"), site.file("gate")
    future = site.client.submit("red", "hold", "any", line="x", log=str(log), gate=str(gate))
    until(lambda: ran(log))
    first = ran(log)[0][0]
    until(lambda: site.dispatched(future) == [first])
    site.workers[first].kill()
    until(lambda: len(ran(log)) == 2, "the job did not move")
    second = ran(log)[1][0]
    assert {first, second} == {"red-1", "red-2"}
    # New ones do not wait for the dead one either. (norfab's own broker sends it half of them for 15 s.)
    for _ in range(10):
        assert list(site.client.run("red", "whoami", "any")) == [second]
    gate.touch()
    # The client waits for the worker that the 202 named, so the result stands under that name.
    results = future.result(PATIENCE)
    assert list(results) == [first]
    assert results[first]["result"]["name"] == second
    assert site.client.job(future.uuid)["status"] == "COMPLETED"

    site.workers[first].start()
    site.await_workers(first)
    answer = site.client.run("red", "whoami", first)[first]
    assert answer["result"]["pid"] == site.workers[first].pid
    assert len(ran(log)) == 2  # what it had begun before it died is not begun again


def test_a_job_for_a_named_worker_waits_until_that_worker_is_back(site: NorfabSite) -> None:
    log, gate = site.file("log"), site.file("gate")
    worker = site.workers["red-1"]
    future = site.client.submit("red", "hold", ["red-1"], line="x", log=str(log), gate=str(gate))
    until(lambda: ran(log))
    worker.kill()
    worker.start()
    until(lambda: len(ran(log)) == 2, "the job did not come back to its worker")
    assert [name for name, _ in ran(log)] == ["red-1", "red-1"]
    gate.touch()
    assert future.result(PATIENCE)["red-1"]["result"]["pid"] == worker.pid


def test_a_job_for_all_waits_for_the_worker_that_died(site: NorfabSite) -> None:
    log, gate = site.file("log"), site.file("gate")
    future = site.client.submit("red", "hold", "all", line="x", log=str(log), gate=str(gate))
    until(lambda: len(ran(log)) == 2)
    site.workers["red-2"].kill()
    gate.touch()
    site.workers["red-2"].start()
    results = future.result(PATIENCE)
    assert {name: result["result"]["name"] for name, result in results.items()} == {
        "red-1": "red-1",
        "red-2": "red-2",
    }
    assert Counter(name for name, _ in ran(log))["red-1"] == 1


def test_a_service_whose_workers_come_later_gets_its_jobs_then(site: NorfabSite) -> None:
    """norfab's own broker refuses these."""
    site.workers["blue-1"].kill()
    until(lambda: not site.has("blue-1"))
    future = site.client.submit("blue", "whoami", "any", word="early")
    assert site.client.run("red", "whoami", "any")  # the broker has taken what was sent before
    site.workers["blue-1"].start()
    assert future.result(PATIENCE)["blue-1"]["result"]["word"] == "early"


# -- the broker dies


def test_workers_are_back_soon_after_the_broker_is(site: NorfabSite) -> None:
    took = []
    for _ in range(3):  # the machine may be busy; three slow ones in a row are the broker's doing
        site.broker.kill()
        site.broker.start_again()
        start = time.monotonic()
        until(lambda: site.has(*site.workers))
        took.append(time.monotonic() - start)
        if took[-1] < BACK_AFTER:
            break
    assert min(took) < BACK_AFTER
    assert sorted(site.client.run("all", "whoami")) == ["blue-1", "red-1", "red-2"]


def test_jobs_finish_although_the_broker_was_killed_while_they_ran(site: NorfabSite) -> None:
    log, gate = site.file("log"), site.file("gate")
    futures = [
        site.client.submit("red", "hold", "any", line=f"job{number}", log=str(log), gate=str(gate))
        for number in range(80)
    ]
    until(lambda: len(lines(log)) == 10, "a norfab worker runs five at once")
    until(lambda: all(site.client.job(future.uuid)["status"] != "NEW" for future in futures))
    until(lambda: site.stored(futures))
    assert 10 <= sum(bool(site.dispatched(future)) for future in futures) < 80
    site.broker.kill()
    site.broker.start_again()
    until(lambda: site.has("red-1", "red-2"))
    gate.touch()
    # Also those whose 202 had not come: they were on disk, and the broker knows its client again by its name.
    for number, future in enumerate(futures):
        ((_, result),) = future.result(PATIENCE).items()
        assert result["result"]["line"] == f"job{number}"
    # Running jobs were waited for, not begun a second time.
    assert Counter(line.split()[0] for line in lines(log)) == Counter(
        {f"job{number}": 1 for number in range(80)}
    )


def test_a_job_that_ended_while_the_broker_was_away_is_not_run_again(site: NorfabSite) -> None:
    log, gate = site.file("log"), site.file("gate")
    future = site.client.submit("blue", "hold", "any", line="x", log=str(log), gate=str(gate))
    until(lambda: ran(log))
    until(lambda: site.dispatched(future))
    until(lambda: site.stored([future]))  # the 202 may come before the attempt is on disk
    site.broker.kill()
    gate.touch()
    site.broker.start_again()
    assert future.result(PATIENCE)["blue-1"]["result"]["line"] == "x"
    assert len(ran(log)) == 1


# -- the client dies


def test_a_result_waits_for_its_client(site: NorfabSite) -> None:
    log, gate = site.file("log"), site.file("gate")
    client = Client(site.endpoint, site.folder, "forgetful")
    future = client.submit("red", "hold", "any", line="x", log=str(log), gate=str(gate))
    until(lambda: ran(log))
    until(lambda: client.job(future.uuid)["workers_dispatched"])
    client.close()
    gate.touch()
    later = Client(site.endpoint, site.folder, "forgetful")
    try:
        # norfab's client takes its unfinished jobs up again from its own file.
        ((_, result),) = later.norfab.job_futures[future.uuid].result(PATIENCE).items()
        assert result["result"]["line"] == "x"
    finally:
        later.close()


def test_one_uuid_from_two_clients_is_one_job(site: NorfabSite) -> None:
    """norfab's own broker answers the second with 202, and its worker never."""
    log, gate = site.file("log"), site.file("gate")
    other = Client(site.endpoint, site.folder, "other")
    try:
        kwargs = {"line": "x", "log": str(log), "gate": str(gate)}
        futures = [
            client.norfab.submit_job("red", "hold", "one-uuid", None, kwargs, "any", PATIENCE)
            for client in (site.client, other)
        ]
        until(lambda: ran(log))
        gate.touch()
        found = [future.result(PATIENCE) for future in futures]
        assert found[0] == found[1]
        late = Client(site.endpoint, site.folder, "late")
        try:
            future = late.norfab.submit_job("red", "hold", "one-uuid", None, kwargs, "any", PATIENCE)
            assert future.result(PATIENCE) == found[0]
        finally:
            late.close()
        assert len(ran(log)) == 1
    finally:
        other.close()


# -- nonsense


@pytest.mark.parametrize("body", [b"not json", b"[1, 2]", b'"text"', b"7", b"", b"\xff\xfe", b'{"task": '])
def test_a_body_that_is_no_json_object_never_reaches_a_norfab_worker(site: NorfabSite, body: bytes) -> None:
    """It would end that worker's thread for good."""
    with Raw(site.endpoint, b"nonsense") as client:
        for target in (b"any", b"red-1"):
            uuid = b"nonsense-%b-%b" % (target, body.hex().encode())
            client.post(b"red", target, uuid, body)
            status, answer = client.status(uuid)
            if status == "202":
                status, answer = client.status(uuid)
            assert (status, bool(answer["error"])) == ("400", True), answer
        uuid = b"nonsense-all-" + body.hex().encode()
        client.post(b"red", b"all", uuid, body)
        found: dict[str, Any] = {}
        while set(found) != {"red-1", "red-2"}:
            status, answer = client.status(uuid)
            if status == "200":
                found |= answer
            else:
                assert status == "202", answer
        assert all(result["failed"] and result["errors"] for result in found.values())
    assert sorted(site.client.run("red", "whoami", "all")) == ["red-1", "red-2"]


@pytest.mark.parametrize("frames", [[], [b""], [b"odd", b"and more"], [b"\xff\xff"]], ids=repr)
def test_a_strange_ready_harms_nobody(site: NorfabSite, frames: list[bytes]) -> None:
    """norfab's own broker dies of the first."""
    with Raw(site.endpoint, b"stranger") as stranger:
        stranger.say(b"0x01", *frames)
        stranger.post(
            b"mmi.service.broker", b"all", b"fence", json.dumps({"task": "get_status"}).encode(), b"0x11"
        )
        while stranger.heard()[2] != b"0x11":
            pass  # a DISCONNECT may come first
    assert sorted(site.client.run("blue", "whoami", "all")) == ["blue-1"]
    assert site.broker.process.poll() is None
