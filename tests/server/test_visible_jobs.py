"""Pages of stored jobs for principals that see only some of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from polydomo.core.principals import Principals
from polydomo.core.services import Services
from polydomo.server.job_tasks import FINDS_MAX, find_visible
from polydomo.services.authorizer import View
from polydomo.store import Store, open_store
from polydomo.store.records import JobFilter, JobRecord
from tests.support.access import Grants
from tests.support.core import make_broker

JOBS = 300


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """Jobs of anna at a and b and of berta at a, in turn."""
    store = open_store("memory:", asyncio.get_running_loop().call_soon_threadsafe)
    for number in range(JOBS):
        owner, service = (("anna", b"a"), ("anna", b"b"), ("berta", b"a"))[number % 3]
        store.add(JobRecord(id=str(number), service=service, principal=owner, client=b"c"))
    while len((await store.find(JobFilter(limit=JOBS))).jobs) < JOBS:
        await asyncio.sleep(0.001)
    yield store
    store.close()


def view(name: str, **grants: list[str]) -> tuple[Services, View]:
    principals = Principals()
    principals.use(Grants(**{name: grants}))
    broker = make_broker()
    for service in (b"a", b"b"):
        broker.services.add(broker.services.find(service))
    return broker.services, View(principals, principals.get(name))


async def pages(store: Store, seen: tuple[Services, View], wanted: JobFilter) -> list[list[int]]:
    found = []
    while True:
        page = await find_visible(store, *seen, wanted)
        found.append([int(job.id) for job in page.jobs])
        if page.next is None:
            return found
        wanted.page = page.next


async def test_one_who_may_observe_everything_sees_everything(store: Store) -> None:
    found = await pages(store, view("carla", observe=["*"]), JobFilter(limit=100))
    assert [len(page) for page in found] == [100, 100, 100]


async def test_one_without_rights_sees_its_own_in_full_pages(store: Store) -> None:
    found = await pages(store, view("berta"), JobFilter(limit=40))
    assert [len(page) for page in found] == [40, 40, 20]
    assert all(number % 3 == 2 for page in found for number in page)
    assert await pages(store, view("carla"), JobFilter(limit=40)) == [[]]


async def test_one_who_may_observe_a_service_sees_that_and_its_own(store: Store) -> None:
    found = await pages(store, view("berta", observe=["b"]), JobFilter(limit=40))
    assert all(len(page) <= 40 for page in found)
    numbers = [number for page in found for number in page]
    assert numbers == [number for number in reversed(range(JOBS)) if number % 3 in (1, 2)]


async def test_a_filter_for_a_service_does_not_widen_what_is_seen(store: Store) -> None:
    berta = view("berta", observe=["b"])
    assert len((await pages(store, berta, JobFilter(limit=JOBS, service=b"a")))[0]) == JOBS // 3
    assert len((await pages(store, berta, JobFilter(limit=JOBS, service=b"b")))[0]) == JOBS // 3
    assert await pages(store, view("carla", observe=["b"]), JobFilter(service=b"a")) == [[]]


async def test_a_search_through_jobs_of_others_is_bounded(store: Store) -> None:
    """A page that is not full has a next one."""
    page = await find_visible(store, *view("carla", observe=["nothing", "b"]), JobFilter(limit=1))
    assert len(page.jobs) == 1
    services, seen = view("carla", observe=["c"])
    services.add(services.find(b"c"))
    page = await find_visible(store, services, seen, JobFilter(limit=2))
    assert page.jobs == []
    assert page.next == str(JOBS - 2 * FINDS_MAX + 1)
