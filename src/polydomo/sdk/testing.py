"""A broker for tests, in the test's own process: the real core, dialects and wire, without a socket.

    async with LocalBroker() as local, Worker(local.url) as worker, Client(local.url) as client: ...

    with SyncLocalBroker(virtual=True) as local:
        ...
        local.advance(61)       # a minute passes, for the broker and all its clients and workers
        local.join()            # wait until every job has ended; raises the error of a failed one

With `virtual=True` time moves only by `advance`: heartbeats, time-outs and expiry can be tested without waiting for
them. `crash`, `restart`, `drain` and `freeze` simulate failures of the broker.
"""

from __future__ import annotations

import asyncio
from itertools import count

from polydomo.core.model import Client as CoreClient
from polydomo.core.model import Job
from polydomo.core.model import Worker as CoreWorker
from polydomo.core.ports import Journal
from polydomo.sdk import failures, inprocess
from polydomo.sdk.background_loop import shared_loop
from polydomo.sdk.clock import REAL_TIME, AsyncClock, VirtualClock
from polydomo.sdk.inprocess import InProcessBroker, LocalTransport
from polydomo.sdk.twin import SyncTwin, awaited, direct, posted
from polydomo.server.clock import ServerClock
from polydomo.server.nng_peer import NngPeer
from polydomo.server.server import BrokerServer
from polydomo.server.settings import Settings
from polydomo.server.zmq_peer import ZmqPeer

# Turns of the loop without traffic after which the peers count as settled.
QUIET_TURNS = 20

_numbers = count(1)


class LocalBroker(InProcessBroker):
    """An in-process broker for async tests. It starts on the event loop that uses it first.

    `settings`: as in the configuration file (`polydomo.server.settings`); no listeners are opened.
    `clock`: that of another local broker, so that one `advance` moves both.
    """

    def __init__(
        self, *, virtual: bool = False, settings: Settings | None = None, clock: AsyncClock | None = None
    ) -> None:
        self.name = f"broker-{next(_numbers)}"
        self.clock = clock or (VirtualClock() if virtual else REAL_TIME)
        self._settings = settings or Settings()
        self._settings.broker.zmq = []
        self._server: BrokerServer | None = None
        self._recorder = _JobRecorder()
        self._down = False
        self._frozen = False
        inprocess.listen(self.name, self)

    @property
    def url(self) -> str:
        """The URL for MDP's clients and workers."""
        return self.url_for("mdp")

    def url_for(self, dialect: str) -> str:
        """Return the URL for another dialect."""
        return f"{dialect}+local://{self.name}"

    async def start(self) -> None:
        """Start the broker; happens automatically at the first connection."""
        if self._server is None:
            server = self._server = BrokerServer(self._settings)
            if isinstance(self.clock, VirtualClock):
                server.clock = ServerClock(self.clock.time)
                server.clock.follow(self._settings.heartbeat.interval)
                server.broker.advance(server.clock.read())
                self.clock.followers.append(self)
            await server.start()
            self._recorder.follow(server)  # after the ledger, whose journal it passes everything on to

    async def advance(self, seconds: float) -> None:
        """Advance the virtual clock in steps, so that each timer fires at its own time."""
        clock = self.clock
        if not isinstance(clock, VirtualClock):
            raise RuntimeError("this broker runs on real time; make it with virtual=True")
        end = clock.time() + seconds
        await self.settle()
        while clock.time() < end:
            clock.move_to(min(clock.next(), end))
            await self.settle()

    def due(self) -> float:
        """Return when `tick` must be called next. Not too late: the broker's clock takes a long gap for a stall."""
        server = self._server
        if server is None:
            return float("inf")
        return min(server.broker.timers.next(), server.broker.now + server.clock.longest_sleep)

    def tick(self) -> None:
        """Set the broker's time to the clock's."""
        server = self._server
        if server is not None:
            server.broker.advance(server.clock.read())
            server.broker.tick()

    async def settle(self) -> None:
        """Wait until no bytes are in transit. Functions of services may still be running."""
        quiet = 0
        while quiet < QUIET_TURNS:
            before = LocalTransport.traffic
            await asyncio.sleep(0)
            quiet = quiet + 1 if LocalTransport.traffic == before else 0

    async def join(self, *, timeout: float = 10.0, check: bool = True) -> None:
        """Wait until every job has ended. Unless `check` is off, raise the error of the first job that failed since the
        last `join`: the worker's exception, or the reason why there is no result."""
        await self.start()
        await self.settle()
        async with asyncio.timeout(timeout):
            await self._recorder.ended()
        error = self._recorder.take_error()
        if check and error is not None:
            raise error

    def drain(self) -> None:
        """Refuse new jobs, as a broker does that is told to stop while jobs are running."""
        if self._server is not None:
            self._server.broker.control.drain()

    def freeze(self) -> None:
        """Drop all input and output, but keep the connections and accept new ones, as if the broker's process were
        stopped."""
        self._frozen = True
        if self._server is not None:
            for transport in _transports(self._server):
                if isinstance(transport, LocalTransport):
                    transport.freeze()

    async def crash(self) -> None:
        """End the broker at once with all its state, as if killed; connections to it are refused."""
        self._down = True
        server, self._server = self._server, None
        if isinstance(self.clock, VirtualClock) and self in self.clock.followers:
            self.clock.followers.remove(self)
        if server is not None:
            for transport in _transports(server):
                transport.abort()
            server.stop(drain=False)
            await server.wait()

    async def restart(self) -> None:
        """Start a new broker under the same name."""
        self._down = self._frozen = False
        await self.start()

    async def close(self) -> None:
        """Stop the broker and release its name."""
        self.abandon()
        await self.crash()

    def abandon(self) -> None:
        """Release the broker's name without stopping it, when its event loop is closed already."""
        inprocess.unlisten(self.name)

    async def accept(self, sp: bool) -> tuple[asyncio.AbstractEventLoop, asyncio.Protocol]:
        if self._down:
            raise ConnectionRefusedError(f"{self.name} is down")
        await self.start()
        assert self._server is not None
        server = self._server
        if self._frozen:
            return server.loop, asyncio.Protocol()
        return server.loop, NngPeer(server.nng, self.name) if sp else ZmqPeer(server.zmq, self.name)

    def worker_failed(self, address: bytes, error: BaseException) -> None:
        self._recorder.raised[address] = error

    async def __aenter__(self) -> LocalBroker:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class SyncLocalBroker(SyncTwin[LocalBroker]):
    """`LocalBroker`, blocking, for `SyncClient` and `SyncWorker`."""

    def __init__(
        self, *, virtual: bool = False, settings: Settings | None = None, clock: AsyncClock | None = None
    ) -> None:
        broker = LocalBroker(virtual=virtual, settings=settings, clock=clock)
        super().__init__(broker)
        self.name = broker.name
        self.clock = broker.clock
        shared_loop().run(broker.start())

    @property
    def url(self) -> str:
        """The URL for MDP's clients and workers."""
        return self._target.url

    url_for = direct(LocalBroker.url_for)
    advance = awaited(LocalBroker.advance)
    settle = awaited(LocalBroker.settle)
    join = awaited(LocalBroker.join)
    drain = posted(LocalBroker.drain)
    freeze = posted(LocalBroker.freeze)
    crash = awaited(LocalBroker.crash)
    restart = awaited(LocalBroker.restart)
    close = awaited(LocalBroker.close)

    def __enter__(self) -> SyncLocalBroker:
        return self

    __exit__ = awaited(LocalBroker.__aexit__)


def _transports(server: BrokerServer) -> list[asyncio.Transport]:
    return [peer.transport for peer in [*server.zmq.peers, *server.nng.peers, *server.handshakes]]


class _JobRecorder(Journal):
    """A journal that records failed jobs and passes everything on to the broker's own journal."""

    def __init__(self) -> None:
        self.raised: dict[bytes, BaseException] = {}  # exceptions of workers in this process, by attempt
        self._failed: list[Job] = []
        self._server: BrokerServer | None = None
        self._next: Journal | None = None
        self._changed = asyncio.Event()

    def follow(self, server: BrokerServer) -> None:
        self._server = server
        self._next = server.broker.accounting.journal
        server.broker.accounting.journal = self

    async def ended(self) -> None:
        while self._server is not None and self._server.broker.accounting.active:
            self._changed.clear()
            await self._changed.wait()

    def take_error(self) -> BaseException | None:
        """Return the error of the first failed job and forget all failed jobs."""
        failed, self._failed = self._failed, []
        error = self._error_of(failed[0]) if failed else None
        self.raised.clear()
        return error

    def _error_of(self, job: Job) -> BaseException:
        found = self.raised.get(job.token)
        if found is not None:
            return found
        failure = job.failure
        info = failures.FailureInfo(failure.reason, failure.message) if failure else failures.FailureInfo()
        return failures.error_of(info, job.service.name.decode(errors="replace"))

    def finished(self, job: Job) -> None:
        if job.failure is not None:
            self._failed.append(job)
        self._changed.set()
        if self._next is not None:
            self._next.finished(job)

    def event(self, kind: str, worker: CoreWorker, reason: str) -> None:
        if self._next is not None:
            self._next.event(kind, worker, reason)

    def attempt(self, job: Job, reason: str) -> None:
        if self._next is not None:
            self._next.attempt(job, reason)

    def client(self, kind: str, client: CoreClient, reason: str) -> None:
        if self._next is not None:
            self._next.client(kind, client, reason)
