"""The engine processes of the SQL service: supervision and assignment of queries.

There are two engines, each with its own Java. One runs the light queries (`guard.Checked.light`), which can be
cancelled and need little memory. The other one runs the rest; a query there that cannot be cancelled, or that exhausts
the memory, costs only this process, which is replaced. During the replacement light queries are served as before and
others wait: a heavy query is started only if another engine would survive it. If the light engine ends, the heavy one
takes its queries until it is replaced.

Queries are not parsed here: the light engine decides whether a query is light and hands heavy ones back.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import structlog

from polydomo.errors import ConfigError, PolydomoError
from polydomo.pipeline import engine_wire as wire
from polydomo.pipeline import guard
from polydomo.pipeline.places import Places
from polydomo.pipeline.sql import Bounds, Heavy, QueryProgress, Request, SparkLost, TooLong

logger = structlog.get_logger("polydomo")

# Seconds for a query to end after it was cancelled, before its process is killed.
GRACE = 5.0

# Seconds for an engine to start, and for a query to wait for one.
STARTING: Final = 300.0

# Seconds before a failed start is retried: the first time, and at most.
SHORTEST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0

# Niceness of the heavy engine.
NICE: Final = 5

# Seconds for an engine to exit when the service stops.
PATIENCE: Final = 10.0


class Child(Protocol):
    """An engine as seen by the service: a pipe each way, and a way to kill it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def kill(self, patience: float = 0.0) -> None:
        """Kill the engine, after `patience` seconds to exit by itself, and remove its temporary files."""


Launch = Callable[[int], Awaitable[Child]]


class Lost(Exception):
    """The engine ended while a query ran. `alone`: it was the only query there."""

    def __init__(self, alone: bool) -> None:
        super().__init__()
        self.alone = alone


class Process:
    """A child process (`pipeline.engine_process`) with its own process group and temporary folder."""

    def __init__(self, process: asyncio.subprocess.Process, folder: str) -> None:
        assert process.stdout is not None
        assert process.stdin is not None
        self.reader, self.writer = process.stdout, process.stdin
        self._process = process
        self._folder = folder

    @classmethod
    def launcher(
        cls, master: str, conf: list[str], places: Places, bounds: Bounds, *, verbose: bool = False
    ) -> Launch:
        """Return a function that starts such processes. `verbose`: Spark's stderr goes to ours."""

        async def launch(nice: int) -> Child:
            folder = tempfile.mkdtemp(prefix="polydomo-sql-")
            # The engine must start its own Java, even if this process was given one.
            env = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_GATEWAY_")}
            try:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "polydomo.pipeline.engine_process"),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=None if verbose else asyncio.subprocess.DEVNULL,
                    env=env,
                    start_new_session=True,
                )
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            child = cls(process, folder)
            child.writer.write(wire.encode(wire.Start(master, conf, places, bounds, folder, nice)))
            return child

        return launch

    async def kill(self, patience: float = 0.0) -> None:
        """Kill the process and its Java. The process exits by itself when its pipe is closed."""
        self.writer.close()
        if patience:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), patience)
        # Even if the process has exited: its Java may not have.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)


class Link:
    """One ready engine and the queries that it runs."""

    def __init__(self, child: Child, bounds: Bounds) -> None:
        self._child = child
        self._bounds = bounds
        self.on_free: Callable[[], None] = lambda: None
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Queue[wire.About | Lost]] = {}
        self._ending: dict[int, asyncio.TimerHandle] = {}  # cancelled, not ended
        self._reading: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self.lost = asyncio.Event()

    @classmethod
    async def start(cls, launch: Launch, nice: int, bounds: Bounds) -> Link:
        """Start an engine and wait until it is ready."""
        link = cls(await launch(nice), bounds)
        try:
            async with asyncio.timeout(STARTING):
                first = await wire.receive(link._child.reader)
            if not isinstance(first, wire.Ready):
                raise _not_started(first)
        except BaseException as error:
            await link._child.kill()
            if isinstance(error, TimeoutError):
                raise _not_started(None) from None
            raise
        link._reading = asyncio.create_task(link._read())
        return link

    async def run(
        self,
        request: Request,
        *,
        heavy: bool,
        tell: Callable[[QueryProgress], None],
        piece: Callable[[bytes], None],
    ) -> bytes:
        """Return the last part of a query's result; `piece` gets the parts before it. Raise Heavy or Lost for a query
        that may be run on another engine. The time limit starts here; at its end, or when the caller is cancelled, the
        query is cancelled and, if necessary, its process killed."""
        number = next(self._numbers)
        said = self._asked[number] = asyncio.Queue()
        self._send(wire.Run(number, request, heavy))
        try:
            async with asyncio.timeout(self._bounds.seconds):
                while True:
                    match await said.get():
                        case wire.Told(_, progress):
                            tell(progress)
                        case wire.ResultPart(_, data):
                            piece(data)
                        case wire.Done(_, data):
                            return data
                        case wire.TooHeavy():
                            raise Heavy
                        case wire.Failed() as failed:
                            raise failed.error()
                        case Lost() as lost:
                            raise lost
        except TimeoutError:
            raise TooLong(f"the query took more than {self._bounds.seconds:g} s") from None
        finally:
            if self._asked.pop(number, None) is not None:
                self._end(number)

    @property
    def free(self) -> bool:
        """Return whether every cancelled query has ended. If not, the engine may be about to be killed."""
        return not self._ending

    async def close(self, patience: float = 0.0) -> None:
        """End the engine, if it is running, and wait for it."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._child.kill(patience))
        await asyncio.shield(self._closing)
        if self._reading is not None:
            await self._reading

    def _send(self, message: wire.ToEngine) -> None:
        if not self.lost.is_set():
            self._child.writer.write(wire.encode(message))

    def _end(self, number: int) -> None:
        """Cancel a query, and kill the engine if the query does not end within the grace period."""
        if self.lost.is_set():
            return
        self._send(wire.Cancel(number))
        loop = asyncio.get_running_loop()
        self._ending[number] = loop.call_later(GRACE, self._kill)

    def _kill(self) -> None:
        """Kill the process of a query that does not end."""
        if self._closing is None:
            logger.warning("killing a query engine: a query does not end", running=len(self._asked))
            self._closing = asyncio.get_running_loop().create_task(self._child.kill())

    async def _read(self) -> None:
        try:
            while (message := await wire.receive(self._child.reader)) is not None:
                if not isinstance(message, wire.Ready):
                    self._hear(message)
        finally:
            self.lost.set()
            alone = len(self._asked) + len(self._ending) == 1
            for said in self._asked.values():
                said.put_nowait(Lost(alone))
            self._asked.clear()
            for timer in self._ending.values():
                timer.cancel()

    def _hear(self, message: wire.About) -> None:
        over = not isinstance(message, wire.Told | wire.ResultPart)
        if message.id in self._ending:
            if over:
                self._ending.pop(message.id).cancel()
                if self.free:
                    self.on_free()
        elif (said := self._asked.get(message.id)) is not None:
            said.put_nowait(message)
            if over:
                del self._asked[message.id]


def _not_started(said: wire.ToService | None) -> ConfigError:
    if isinstance(said, wire.Failed):
        return ConfigError(said.message, hint=said.advice)
    return ConfigError("the query engine does not start", hint="run 'polydomo spark doctor'")


class Lane:
    """A role (light or heavy) and the engine that currently fills it."""

    def __init__(self, name: str, nice: int) -> None:
        self.name = name
        self.nice = nice
        self.link: Link | None = None


class Engines:
    """Both engines, as a context manager. Ready as soon as light queries can be run."""

    def __init__(self, launch: Launch, bounds: Bounds) -> None:
        self._launch = launch
        self._bounds = bounds
        self._light = Lane("light", 0)
        self._heavy = Lane("heavy", NICE)
        self._changed = asyncio.Event()  # replaced after each change
        self._keeping: list[asyncio.Task[None]] = []
        self._links: set[Link] = set()  # not completely closed

    async def __aenter__(self) -> Engines:
        """Raise ConfigError if Spark does not start."""
        await self._start(self._light)
        self._keeping = [asyncio.create_task(self._keep(lane)) for lane in (self._light, self._heavy)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._keeping:
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        await asyncio.gather(*[link.close(PATIENCE) for link in self._links])

    async def run(
        self, request: Request, tell: Callable[[QueryProgress], None], piece: Callable[[bytes], None]
    ) -> bytes:
        """Return the last part of a query's result; `piece` gets the parts before it. A query that did not cause the
        end of its engine is retried once."""
        heavy = not guard.may_be_light(request.sql)
        pieces = 0
        again = True

        def count(data: bytes) -> None:
            nonlocal pieces
            pieces += 1
            piece(data)

        while True:
            link = await self._ready(heavy)
            try:
                return await link.run(request, heavy=heavy, tell=tell, piece=count)
            except Heavy:
                heavy = True
            except Lost as lost:
                if lost.alone or pieces or not again:
                    raise SparkLost(
                        "the process that ran the query has ended",
                        hint="this query, or another one in the same process, may have run out of memory",
                    ) from None
                again = False

    async def _ready(self, heavy: bool) -> Link:
        """Wait for the engine that will run a query."""
        try:
            async with asyncio.timeout(STARTING):
                while (link := self._choose(heavy)) is None:
                    await self._changed.wait()
                return link
        except TimeoutError:
            raise SparkLost("no process is ready to run the query", hint="try again later") from None

    def _choose(self, heavy: bool) -> Link | None:
        if not heavy:
            return self._light.link or self._heavy.link
        link = self._heavy.link
        # Only while the other engine is up.
        return link if link is not None and link.free and self._light.link is not None else None

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _start(self, lane: Lane) -> None:
        lane.link = await Link.start(self._launch, lane.nice, self._bounds)
        lane.link.on_free = self._notify
        self._links.add(lane.link)
        self._notify()

    async def _keep(self, lane: Lane) -> None:
        """Replace a lane's engine whenever it has ended."""
        pause = SHORTEST_PAUSE
        while True:
            try:
                if lane.link is None:
                    await self._start(lane)
                    logger.info("query engine ready", lane=lane.name)
                pause = SHORTEST_PAUSE
            except (PolydomoError, OSError) as error:
                logger.error("query engine does not start", lane=lane.name, error=str(error), again_in=pause)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            assert lane.link is not None
            await lane.link.lost.wait()
            ended, lane.link = lane.link, None
            logger.warning("query engine ended: starting another", lane=lane.name)
            await ended.close()
            self._links.discard(ended)
