"""Administrative acts are recorded before they are done, and refused if they cannot be recorded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from polydomo.core.tracked_job import Options
from polydomo.deferred import Deferred
from polydomo.services.authorizer import AccessDenied, NotRecorded
from polydomo.services.builtin import Tasks
from polydomo.services.management import ManagementService
from tests.dialects.nfp.desk import ClientTalker, WorkerTalker
from tests.support.access import Acts, Grants, manage, perform
from tests.support.core import Bench, FakeClient
from tests.support.dialects import Desk

OPERATOR = {"operate": ["*"], "cancel": ["*"], "administer": ["*"]}


class House:
    """A broker with a service, an operator, and a log of acts."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.broker = self.bench.broker
        self.management = ManagementService(self.broker, "house")
        self.acts = Acts()
        self.broker.acts = self.acts
        self.grants = Grants(olga=OPERATOR, anna={})
        self.broker.principals.use(self.grants)
        self.client = FakeClient(self.broker, b"anna")
        self.client.core.principal = self.broker.principals.get("anna")
        self.grants.grants["anna"] = {"call": ["*"]}
        self.client.ask(b"svc", options=Options(uid="job-1"))

    def ask(self, task: str, caller: str = "olga", **kwargs: Any) -> Any:
        return manage(self.management, task, caller, **kwargs)

    @property
    def paused(self) -> bool:
        return self.broker.services[b"svc"].paused


@pytest.fixture
def house() -> House:
    return House()


async def settled(answer: Deferred[Any], acts: Acts, failure: str = "") -> Any:
    """Confirm, or refuse, what is asked to be recorded, and return the answer."""
    for _ in range(5):
        await asyncio.sleep(0)
    if failure:
        acts.fail(failure)
    else:
        acts.confirm()
    return await answer


async def test_an_act_is_done_after_it_was_recorded(house: House) -> None:
    answer = house.ask("pause_service", name="svc")
    for _ in range(5):
        await asyncio.sleep(0)
    assert house.acts.records == [("olga", "operate", "pause_service", "svc", "")]
    assert not house.paused
    assert await settled(answer, house.acts) == {"name": "svc", "paused": True}
    assert house.paused


async def test_an_act_that_cannot_be_recorded_is_refused(house: House) -> None:
    answer = house.ask("pause_service", name="svc")
    with pytest.raises(
        NotRecorded, match="pause_service is refused, because it cannot be recorded: disk full"
    ):
        await settled(answer, house.acts, "disk full")
    assert not house.paused


async def test_a_denied_act_is_not_recorded_as_done(house: House) -> None:
    with pytest.raises(AccessDenied, match="anna may not operate svc"):
        house.ask("pause_service", "anna", name="svc")
    assert house.acts.records == []
    assert house.grants.denials == [("anna", "operate", b"svc", b"")]


async def test_rights_that_are_lost_while_an_act_is_recorded_count(house: House) -> None:
    answer = house.ask("pause_service", name="svc")
    await asyncio.sleep(0)
    house.broker.principals.use(Grants())
    with pytest.raises(AccessDenied):
        await settled(answer, house.acts)
    assert not house.paused


async def test_what_only_reads_is_done_also_if_it_cannot_be_recorded(house: House) -> None:
    house.management.tasks.add({"get_logs": lambda: ["line"]})
    answer = house.ask("get_logs")
    assert await settled(answer, house.acts, "disk full") == ["line"]
    assert house.acts.records == [("olga", "administer", "get_logs", "*", "")]


async def test_questions_are_not_recorded(house: House) -> None:
    house.grants.grants["olga"] = {"observe": ["*"]}
    assert [row["name"] for row in house.ask("show_services")] == ["svc"]
    assert house.acts.records == []


async def test_cancelling_ones_own_job_is_no_act_and_cancelling_anothers_is(house: House) -> None:
    house.management.tasks.add({"cancel_job": lambda id: house.broker.cancel(house.broker.jobs.known[id])})
    assert await settled(house.ask("cancel_job", id="job-1"), house.acts)
    assert house.acts.records == [("olga", "cancel", "cancel_job", "job job-1 of anna", "")]
    house.client.ask(b"svc", options=Options(uid="job-2"))
    assert await house.ask("cancel_job", "anna", id="job-2")
    assert len(house.acts.records) == 1


async def test_a_worker_that_reads_its_own_inventory_needs_no_record(house: House) -> None:
    tasks = Tasks(house.management.authorizer, "sid.service.broker")
    tasks.add({"get_inventory": lambda name: {"of": name}})
    assert perform(tasks, "get_inventory", "anna", name="anna") == {"of": "anna"}
    assert house.acts.records == []
    with pytest.raises(AccessDenied, match="anna may not administer"):
        perform(tasks, "get_inventory", "anna", name="berta")


# NFP's own commands


class NfpHouse:
    """The same with clients of NFP."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.acts = Acts()
        self.desk.broker.acts = self.acts
        self.anna, self.olga = ClientTalker(self.desk, b"a"), ClientTalker(self.desk, b"o")
        self.anna.seat.link.principal = "anna"
        self.olga.seat.link.principal = "olga"
        self.desk.broker.principals.use(Grants(anna={"call": ["*"]}, olga=OPERATOR))
        self.anna.post(b"job-1")

    def known(self) -> bool:
        return "job-1" in self.desk.broker.jobs.known


@pytest.fixture
def nfp_house() -> NfpHouse:
    return NfpHouse()


def test_nfp_delete_of_anothers_job_is_recorded_before_it_is_done(nfp_house: NfpHouse) -> None:
    nfp_house.olga.say("DELETE", b"svc", b"any", b"job-1", b"{}")
    assert nfp_house.acts.records == [("olga", "cancel", "NFP DELETE", "job job-1 of anna", "o")]
    assert nfp_house.known()
    nfp_house.acts.confirm()
    assert not nfp_house.known()


def test_nfp_delete_that_cannot_be_recorded_is_refused(nfp_house: NfpHouse) -> None:
    nfp_house.olga.heard()
    nfp_house.olga.say("DELETE", b"svc", b"any", b"job-1", b"{}")
    nfp_house.acts.fail("disk full")
    nfp_house.desk.settle()
    (answer,) = nfp_house.olga.heard()
    assert b"cannot be recorded: disk full" in answer[-1]
    assert nfp_house.known()


def test_nfp_delete_of_ones_own_job_is_no_act(nfp_house: NfpHouse) -> None:
    nfp_house.anna.say("DELETE", b"svc", b"any", b"job-1", b"{}")
    assert nfp_house.acts.records == []
    assert not nfp_house.known()


def test_management_of_nfp_workers_is_recorded(nfp_house: NfpHouse) -> None:
    nfp_house.desk.broker.principals.use(Grants(serving={"serve": ["*"]}, olga=OPERATOR))
    worker = WorkerTalker(nfp_house.desk, b"w", ready=False)
    worker.seat.link.principal = "serving"
    worker.open()
    worker.say("READY", b"svc2")
    worker.heard()
    nfp_house.olga.say("MMI", b"mmi.service.worker", b"all", b"u", b'{"task":"stop"}')
    assert nfp_house.acts.records == [("olga", "operate", "NFP MMI", "svc2@w", "o")]
    assert worker.heard() == []
    nfp_house.acts.confirm()
    nfp_house.desk.settle()
    assert [heard[0] for heard in worker.heard()] == ["MMI"]
