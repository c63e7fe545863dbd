"""Polling workers against the core alone: credit, and who has which job, whatever happens in which order."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from polydomo.core.failure import WORKER_ERROR, Failure
from polydomo.core.model import Job
from polydomo.core.principals import ANONYMOUS, SERVE
from polydomo.security.roles import Grant, RoleAuthority, Roles
from polydomo.web.clients import WebClients
from polydomo.web.pending import PendingJob
from polydomo.web.polling import OfferDenied, OfferRefused, Poll, PollingWorker, PollingWorkers, TooManyPolls
from polydomo.wire.frames import frame
from tests.web.stub import StubServer


class Room:
    """A broker, its web clients and its polling workers."""

    def __init__(self) -> None:
        self.server: Any = StubServer()
        self.broker = self.server.broker
        self.clients = WebClients(self.server)
        self.workers = PollingWorkers(self.server)

    def submit(self, body: bytes = b"x", service: bytes = b"s") -> PendingJob:
        return self.clients.get(b"c", ANONYMOUS).submit(service, frame(body))

    def worker(self, name: bytes = b"w", services: tuple[bytes, ...] = (b"s",)) -> PollingWorker:
        return self.workers.get(name, list(services), ANONYMOUS)


async def next_job(worker: PollingWorker, wait: float) -> Job | None:
    poll = worker.open()
    await worker.wait(poll, wait)
    return poll.job


def holding(worker: PollingWorker) -> list[Job]:
    return list(worker.core.running.values())


async def test_an_open_poll_is_given_a_job_and_a_closed_one_none() -> None:
    room = Room()
    worker = room.worker()
    poll = worker.open()
    assert room.submit(b"a").job is (poll.job)
    second = room.submit(b"b")
    assert second.job is not None
    assert second.job.worker is None
    closed = worker.open()
    assert closed.job is second.job
    unused = worker.open()
    worker.close(unused)
    third = room.submit(b"c")
    assert third.job is not None
    assert third.job.worker is None


async def test_a_job_that_did_not_reach_its_worker_goes_to_the_next_poll() -> None:
    room = Room()
    first, second = room.worker(b"one"), room.worker(b"two")
    poll = first.open()
    pending = room.submit()
    first.withdraw(poll)
    assert poll.job is None
    assert pending.job is not None
    assert pending.job.worker is None
    assert second.open().job is pending.job
    assert not room.workers.holder(b"nonsense", ANONYMOUS)


async def test_whoever_is_cancelled_while_waiting_gives_back_what_he_got() -> None:
    room = Room()
    worker = room.worker()
    task = asyncio.ensure_future(next_job(worker, 10))
    await asyncio.sleep(0)
    pending = room.submit()
    assert holding(worker) == [pending.job]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert holding(worker) == []
    assert worker.core.credit == 0


async def test_next_waits_no_longer_than_it_is_told() -> None:
    room = Room()
    worker = room.worker()
    assert await next_job(worker, 0) is None
    assert await next_job(worker, 0.01) is None
    assert worker.core.credit == 0
    pending = room.submit()
    assert await next_job(worker, 0) is pending.job


async def test_a_poll_is_a_sign_of_life_and_silence_between_polls_is_not_for_ever() -> None:
    room = Room()
    worker = room.worker()
    poll = worker.open()
    room.server.pass_time(1000)
    assert len(room.workers) == 1
    worker.close(poll)
    room.server.pass_time(29)
    assert len(room.workers) == 1
    room.server.pass_time(10)
    assert len(room.workers) == 0
    assert room.worker() is not worker


async def test_the_end_of_a_worker_ends_its_polls() -> None:
    room = Room()
    worker = room.worker()
    task = asyncio.ensure_future(next_job(worker, 10))
    await asyncio.sleep(0)
    room.broker.close()
    assert await task is None
    room.workers.close()


async def test_services_that_may_not_be_offered() -> None:
    room = Room()
    for services in ([], [b""], [b"mmi.x"], [b"x"] * 1 + [b"mmi.y"], [b"%d" % n for n in range(1001)]):
        with pytest.raises(OfferRefused):
            room.workers.get(b"w", services, ANONYMOUS)
    assert len(room.workers) == 0
    assert not room.broker.workers


async def test_services_that_no_role_grants_are_denied() -> None:
    room = Room()
    roles = Roles({"resizer": [Grant(SERVE, "resize")]}, {ANONYMOUS: ["resizer"]})
    room.broker.principals.use(RoleAuthority(roles, {}, lambda denial: None))
    room.workers.get(b"w", [b"resize"], ANONYMOUS)
    with pytest.raises(OfferDenied, match="anonymous may not serve mail"):
        room.workers.get(b"v", [b"resize", b"mail"], ANONYMOUS)
    with pytest.raises(OfferRefused) as raised:
        room.workers.get(b"v", [b"mmi.x"], ANONYMOUS)
    assert not isinstance(raised.value, OfferDenied)


async def test_no_more_polls_than_a_worker_may_hold_jobs() -> None:
    room = Room()
    worker = room.worker()
    polls = [worker.open() for _ in range(room.server.settings.limits.worker_jobs)]
    with pytest.raises(TooManyPolls):
        worker.open()
    for poll in polls:
        worker.close(poll)
    assert worker.polls == 0
    worker.open()


@pytest.mark.parametrize("seed", range(20))
async def test_nobody_is_given_what_he_did_not_ask_for_and_every_job_ends_once(seed: int) -> None:
    chance = random.Random(seed)
    room = Room()
    polls: list[tuple[PollingWorker, Poll]] = []
    held: list[tuple[PollingWorker, bytes]] = []
    submitted: list[PendingJob] = []
    ends: list[PendingJob] = []
    names = [b"a", b"b", b"c"]

    def collect() -> None:
        for worker, poll in list(polls):
            if poll not in worker._polls:
                polls.remove((worker, poll))
                if poll.job is not None:
                    held.append((worker, poll.job.token))

    for _ in range(600):
        what = chance.randrange(8)
        if what <= 1:
            pending = room.submit()
            pending.on_end = ends.append
            submitted.append(pending)
        elif what == 2:
            worker = room.worker(chance.choice(names))
            polls.append((worker, worker.open()))
        elif what == 3 and polls:
            worker, poll = chance.choice(polls)
            worker.withdraw(poll)
        elif what in (4, 5) and held:
            worker, token = held.pop(chance.randrange(len(held)))
            if chance.random() < 0.8:
                worker.result(token, frame(b"done"))
            else:
                worker.failure(token, Failure(WORKER_ERROR, "no"))
        elif what == 6:
            room.server.pass_time(chance.choice([0.1, 1, 20, 70]))
        elif what == 7 and chance.random() < 0.2:
            leaving = room.workers.find(chance.choice(names), ANONYMOUS)
            if leaving is not None:
                leaving.leave()
        collect()
        for name in names:
            known = room.workers.find(name, ANONYMOUS)
            if known is not None:
                core = known.core
                assert core.credit == len(core.running) + len(core.revoked) + known.polls
                open_polls = [poll for worker, poll in polls if worker is known]
                assert known.polls == len(open_polls)
                assert all(token in known.tokens for token in core.running)
        assert all(room.workers.attempts[token] for token in room.workers.attempts)
    room.broker.close()
    assert len(ends) == len(set(map(id, ends)))
    assert all(pending.ended is not None for pending in submitted)
