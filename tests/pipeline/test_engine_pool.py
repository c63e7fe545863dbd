"""Tests of the engine pool with fake engines, without Spark: which engine runs a query, and what if one ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from polydomo.errors import ConfigError
from polydomo.pipeline import engine_pool
from polydomo.pipeline import engine_wire as wire
from polydomo.pipeline.engine_pool import Engines
from polydomo.pipeline.sql import Bounds, NotAllowed, QueryProgress, Request, SparkLost, TooLong

LIGHT = Request("SELECT 1")
HEAVY = Request("SELECT heavy")
LONG = Request(f"SELECT 1 {'+ 1' * 1000}")  # too long for a light query


class Engine:
    """A fake engine that receives queries and sends the replies of the test. `nice` tells which one it is."""

    def __init__(self, nice: int) -> None:
        self.light = nice == 0
        self.asked: asyncio.Queue[wire.ToEngine] = asyncio.Queue()
        self.killed = asyncio.Event()

    async def start(self, first: wire.ToService | None) -> Engine:
        ours, theirs = socket.socketpair()
        self.reader, self.writer = await asyncio.open_connection(sock=ours)
        self._from, self._to = await asyncio.open_connection(sock=theirs)
        self._reading = asyncio.create_task(self._read())
        self.starts = first is not None
        if first is not None:
            self.say(first)
        else:
            self.end()
        return self

    def say(self, message: wire.ToService) -> None:
        self._to.write(wire.encode(message))

    def end(self) -> None:
        """End the engine as if its Java had run out of memory."""
        self._to.transport.abort()

    async def run(self) -> wire.Run:
        """Return the next query that it receives."""
        found = await asyncio.wait_for(self.asked.get(), 10)
        assert isinstance(found, wire.Run), found
        return found

    async def kill(self, patience: float = 0.0) -> None:
        self.writer.transport.abort()
        self.end()
        await self._reading
        for writer in (self.writer, self._to):
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        self.killed.set()

    async def _read(self) -> None:
        try:
            while True:
                size = int.from_bytes(await self._from.readexactly(4))
                body = await self._from.readexactly(size)
                self.asked.put_nowait(msgspec.msgpack.decode(body, type=wire.ToEngine))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass


class Stage:
    """All started engines by kind, the newest last."""

    def __init__(self, seconds: float = 30.0) -> None:
        self.started: dict[bool, asyncio.Queue[Engine]] = {True: asyncio.Queue(), False: asyncio.Queue()}
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.first: wire.ToService | None = wire.Ready()
        self.engines = Engines(self._launch, Bounds(seconds=seconds))

    async def _launch(self, nice: int) -> Engine:
        await self.may_start.wait()
        engine = await Engine(nice).start(self.first)
        self.started[engine.light].put_nowait(engine)
        return engine

    async def next(self, *, light: bool) -> Engine:
        return await asyncio.wait_for(self.started[light].get(), 10)

    def ask(self, request: Request) -> asyncio.Task[bytes]:
        self.told: list[QueryProgress] = []
        self.pieces: list[bytes] = []
        return asyncio.create_task(self.engines.run(request, self.told.append, self.pieces.append))


def played(play: Callable[[Stage], Awaitable[None]], seconds: float = 30.0) -> None:
    async def run() -> None:
        stage = Stage(seconds)
        async with stage.engines:
            await play(stage)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_light_queries_have_an_engine_of_their_own() -> None:
    async def play(stage: Stage) -> None:
        light, heavy = await stage.next(light=True), await stage.next(light=False)
        asked = stage.ask(LIGHT)
        found = await light.run()
        assert (found.request, found.heavy) == (LIGHT, False)
        light.say(wire.Told(found.id, QueryProgress(tasks=3)))
        light.say(wire.ResultPart(found.id, b"a"))
        light.say(wire.Done(found.id, b"b"))
        assert await asked == b"b"
        assert (stage.told, stage.pieces) == ([QueryProgress(tasks=3)], [b"a"])
        asked = stage.ask(HEAVY)
        light.say(wire.TooHeavy((await light.run()).id))
        heavy.say(wire.Done((await heavy.run()).id, b"c"))
        assert await asked == b"c"
        asked = stage.ask(LONG)
        found = await heavy.run()
        assert found.heavy
        heavy.say(wire.Failed(found.id, "NotAllowed", "no", "never"))
        with pytest.raises(NotAllowed, match=r"no \(never\)"):
            await asked
        assert light.asked.empty()

    played(play)


def test_a_query_that_does_not_end_costs_its_process_and_no_other_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_pool, "GRACE", 0.2)

    async def play(stage: Stage) -> None:
        heavy = await stage.next(light=False)
        endless = stage.ask(LONG)
        number = (await heavy.run()).id
        with pytest.raises(TooLong):
            await endless
        other = stage.ask(LONG)
        assert await heavy.asked.get() == wire.Cancel(number)
        await asyncio.wait_for(heavy.killed.wait(), 10)
        assert heavy.asked.empty()  # the engine was about to be killed
        replaced = await stage.next(light=False)
        replaced.say(wire.Done((await replaced.run()).id, b"done"))
        assert await other == b"done"

    played(play, 0.5)


def test_a_query_that_ends_when_it_is_told_to_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(stage: Stage) -> None:
        heavy = await stage.next(light=False)
        asked = stage.ask(LONG)
        number = (await heavy.run()).id
        monkeypatch.setattr(engine_pool, "GRACE", 0.2)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert await asyncio.wait_for(heavy.asked.get(), 10) == wire.Cancel(number)
        heavy.say(wire.Failed(number, "Stopped", "", ""))
        next_ = stage.ask(LONG)
        number = (await heavy.run()).id
        await asyncio.sleep(0.4)  # longer than the grace period
        heavy.say(wire.Done(number, b"x"))
        assert await next_ == b"x"
        assert not heavy.killed.is_set()

    played(play)


def test_the_query_that_ended_its_engine_is_not_run_again_and_the_others_are_once() -> None:
    async def play(stage: Stage) -> None:
        heavy = await stage.next(light=False)
        alone = stage.ask(LONG)
        await heavy.run()
        heavy.end()
        with pytest.raises(SparkLost, match="has ended"):
            await alone
        both = [stage.ask(LONG), stage.ask(LONG)]
        for _ in range(2):
            heavy = await stage.next(light=False)
            await heavy.run()
            await heavy.run()
            heavy.end()
        for one in both:
            with pytest.raises(SparkLost):
                await one

    played(play)


def test_while_an_engine_is_replaced_light_queries_are_answered_and_others_wait() -> None:
    async def play(stage: Stage) -> None:
        light, heavy = await stage.next(light=True), await stage.next(light=False)
        stage.may_start.clear()
        light.end()
        await asyncio.wait_for(light.killed.wait(), 10)
        waiting = stage.ask(LONG)  # it might end the only engine left
        asked = stage.ask(LIGHT)
        found = await heavy.run()
        assert found.request == LIGHT
        heavy.say(wire.Done(found.id, b"one"))
        assert await asked == b"one"
        assert not waiting.done()
        stage.may_start.set()
        heavy.say(wire.Done((await heavy.run()).id, b"two"))
        assert await waiting == b"two"

    played(play)


def test_an_engine_that_does_not_start_says_why_and_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_pool, "SHORTEST_PAUSE", 0.01)

    async def play() -> None:
        stage = Stage()
        stage.first = wire.Failed(0, "", "there is no Java", "install one")
        with pytest.raises(ConfigError, match=r"there is no Java \(install one\)"):
            await stage.engines.__aenter__()
        stage.first = None
        with pytest.raises(ConfigError, match="does not start"):
            await stage.engines.__aenter__()
        stage.first = wire.Ready()
        async with stage.engines:
            for _ in range(3):
                light = await stage.next(light=True)
            await stage.next(light=False)
            stage.first = None
            light.end()
            for _ in range(3):
                await stage.next(light=True)
            stage.first = wire.Ready()
            while not (await stage.next(light=True)).starts:
                pass

    asyncio.run(asyncio.wait_for(play(), 60))
