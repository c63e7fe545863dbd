"""Web clients against the core alone: pending jobs, their results, and what is left of them."""

from __future__ import annotations

import asyncio
from typing import Any

from polydomo.core.failure import CANCELLED
from polydomo.core.policy import BrokerLimits
from polydomo.core.principals import ANONYMOUS
from polydomo.core.tracked_job import Options
from polydomo.web import job_events
from polydomo.web.clients import IDLE, TOO_MANY, WebClients
from polydomo.web.polling import PollingWorkers
from polydomo.wire.frames import frame
from tests.web.stub import StubServer, all_events


class Room:
    def __init__(self, bounds: BrokerLimits | None = None) -> None:
        self.server: Any = StubServer(bounds)
        self.broker = self.server.broker
        self.clients = WebClients(self.server)
        self.worker = PollingWorkers(self.server).get(b"w", [b"s"], ANONYMOUS)

    def take(self) -> bytes:
        """Return the next job's token."""
        job = self.worker.open().job
        assert job is not None
        return job.token


async def test_the_answer_wakes_whoever_waits() -> None:
    room = Room()
    pending = room.clients.get(b"c", ANONYMOUS).submit(b"s", frame(b"x"))
    token = room.take()
    room.server.loop.call_soon(room.worker.result, token, frame(b"y"))
    outcome = await pending.outcome(10)
    assert outcome is not None
    assert (outcome.body, outcome.failure, outcome.gathered, outcome.worker) == (
        frame(b"y"),
        None,
        False,
        b"w",
    )
    assert await pending.outcome(0) is outcome


async def test_a_wait_that_is_over_gives_nothing_and_the_job_goes_on() -> None:
    room = Room()
    client = room.clients.get(b"c", ANONYMOUS)
    pending = client.submit(b"s", frame(b"x"))
    assert await pending.outcome(0.01) is None
    pending.detach()
    assert not client.pending
    room.worker.result(room.take(), frame(b"y"))
    assert room.broker.jobs.result_for(client.core.principal, pending.uid) is not None


async def test_who_leaves_takes_the_job_along_unless_somebody_else_wants_it() -> None:
    room = Room()
    client = room.clients.get(b"c", ANONYMOUS)
    alone = client.submit(b"s", frame(b"x"))
    alone.abandon()
    assert room.broker.accounting.active == 0
    shared = client.submit(b"s", frame(b"x"), Options(key=b"k"))
    other = room.clients.get(b"d", ANONYMOUS).submit(b"s", frame(b"x"), Options(key=b"k"))
    shared.abandon()
    other_end = asyncio.ensure_future(other.outcome(10))
    await asyncio.sleep(0)
    room.worker.result(room.take(), frame(b"y"))
    outcome = await other_end
    assert outcome is not None
    assert outcome.body == frame(b"y")


async def test_a_full_client_is_refused_and_may_wait_for_room() -> None:
    room = Room(BrokerLimits(client_jobs=2))
    client = room.clients.get(b"c", ANONYMOUS)
    for _ in range(3):
        client.submit(b"s", frame(b"x"))
    refused = client.submit(b"s", frame(b"x"))
    assert refused.ended is not None
    assert refused.ended.failure is not None
    assert refused.ended.failure.reason == TOO_MANY
    assert not await client.wait_for_room(0.01)
    waiting = asyncio.ensure_future(client.wait_for_room(10))
    await asyncio.sleep(0)
    while client.full:
        room.worker.result(room.take(), frame(b"y"))
    assert await waiting


async def test_somebody_s_job_is_watched_and_unwatched() -> None:
    room = Room()
    own = room.clients.get(b"c", ANONYMOUS).submit(b"s", frame(b"x"))
    watcher = room.clients.get(b"d", ANONYMOUS)
    assert own.job is not None
    watching, leaving = watcher.watch(own.job), watcher.watch(own.job)
    listener = watching.listen()
    leaving.listen()
    leaving.detach()
    token = room.take()
    room.worker.partial(token, frame(b"1"))
    room.worker.event(token, "progress", b"50")
    room.worker.result(token, frame(b"2"))
    heard = [(one.kind, one.worker, one.body, one.word) for one in await all_events(listener)]
    assert heard[-3:] == [
        (job_events.PARTIAL, b"w", frame(b"1"), ""),
        (job_events.EVENT, b"w", b"50", "progress"),
        (job_events.RESULT, b"w", frame(b"2"), ""),
    ]
    assert leaving.ended is None
    assert watcher.idle()


async def test_the_end_of_anybody_s_job_is_waited_for() -> None:
    room = Room()
    pending = room.clients.get(b"c", ANONYMOUS).submit(b"s", frame(b"x"))
    assert pending.job is not None
    assert not await room.clients.wait_ended(pending.job, 0.01)
    waits = [asyncio.ensure_future(room.clients.wait_ended(pending.job, 10)) for _ in range(3)]
    await asyncio.sleep(0)
    assert room.broker.cancel(pending.job)
    assert await asyncio.gather(*waits) == [True] * 3
    assert await room.clients.wait_ended(pending.job, 0)
    assert pending.ended is not None
    assert pending.ended.failure is not None
    assert pending.ended.failure.reason == CANCELLED


async def test_clients_without_a_job_are_forgotten() -> None:
    room = Room()
    busy, idle = room.clients.get(b"busy", ANONYMOUS), room.clients.get(b"idle", ANONYMOUS)
    busy.submit(b"s", frame(b"x"))
    room.clients.inspect()
    assert len(room.clients) == 2
    busy.used = idle.used = room.server.loop.time() - IDLE
    room.clients.inspect()
    assert len(room.clients) == 1
    assert idle.core.gone
    assert room.clients.get(b"idle", ANONYMOUS) is not idle
    assert room.clients.get(b"busy", ANONYMOUS) is busy


async def test_a_crowd_of_clients_is_thinned_out_at_once() -> None:
    room = Room()
    for number in range(5000):
        room.clients.get(b"%d" % number, ANONYMOUS)
    assert len(room.clients) <= 1024
    assert len(room.broker.clients) <= 1024


async def test_the_broker_s_end_wakes_everybody() -> None:
    room = Room()
    client = room.clients.get(b"c", ANONYMOUS)
    pending = client.submit(b"s", frame(b"x"))
    assert pending.job is not None
    waits = [
        asyncio.ensure_future(pending.outcome(10)),
        asyncio.ensure_future(room.clients.wait_ended(pending.job, 10)),
    ]
    listener = client.watch(pending.job).listen()
    await asyncio.sleep(0)
    room.clients.close()
    assert await asyncio.gather(*waits) == [None, False]
    assert await all_events(listener) == []
