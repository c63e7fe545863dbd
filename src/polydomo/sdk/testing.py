"""A broker for tests, inside the test's own process: the real core, dialects and wire, without a socket.

    async with LocalBroker() as local, Worker(local.url) as worker, Client(local.url) as client: ...

    with SyncLocalBroker(virtual=True) as local:
        ...
        local.advance(61)       # a minute passes, for the broker and all clients and workers on it
        local.join()            # until every job has ended; raises what a failed one raised

With `virtual=True` time stands still until `advance` moves it: heartbeats, time-outs and expiry can be tested
without waiting for them. `crash`, `restart`, `drain` and `freeze` show what happens when the broker goes away.
"""

from __future__ import annotations

import asyncio
from itertools import count

from polydomo.core.client import Client as CoreClient
from polydomo.core.job import Job
from polydomo.core.ports import Journal
from polydomo.core.worker import Worker as CoreWorker
from polydomo.sdk import failures, inprocess
from polydomo.sdk.background_loop import portal
from polydomo.sdk.clock import REAL_TIME, Clock, VirtualClock
from polydomo.sdk.inprocess import Listener, LocalTransport
from polydomo.server.clock import ServerClock
from polydomo.server.nng_peer import NngPeer
from polydomo.server.server import BrokerServer
from polydomo.server.settings import Settings
from polydomo.server.zmq_peer import ZmqPeer

# When nothing has moved for so many turns of the loop, everybody has had their say.
QUIET_TURNS = 20

_numbers = count(1)


class LocalBroker(Listener):
    """See the module's text. It starts on the event loop that uses it first.

    `settings`: as in the configuration file (`polydomo.server.settings`); no listeners are opened.
    `clock`: of another local broker, so that both are moved by one `advance`.
    """

    def __init__(
        self, *, virtual: bool = False, settings: Settings | None = None, clock: Clock | None = None
    ) -> None:
        self.name = f"broker-{next(_numbers)}"
        self.clock = clock or (VirtualClock() if virtual else REAL_TIME)
        self._settings = settings or Settings()
        self._settings.broker.zmq = []
        self._server: BrokerServer | None = None
        self._watch = _Watch()
        self._down = False
        self._frozen = False
        inprocess.listen(self.name, self)

    @property
    def url(self) -> str:
        """For clients and workers that speak MDP."""
        return self.url_for("mdp")

    def url_for(self, dialect: str) -> str:
        """For those that speak another dialect."""
        return f"{dialect}+local://{self.name}"

    async def start(self) -> None:
        """Done by itself when it is first used."""
        if self._server is None:
            server = self._server = BrokerServer(self._settings)
            if isinstance(self.clock, VirtualClock):
                server.clock = ServerClock(self.clock.time)
                server.clock.follow(self._settings.heartbeat.interval)
                server.broker.now = server.clock.read()
                self.clock.followers.append(self)
            self._watch.follow(server)
            await server.start()

    async def advance(self, seconds: float) -> None:
        """Let time pass, step by step: whoever is due gets a turn at the right moment."""
        clock = self.clock
        if not isinstance(clock, VirtualClock):
            raise RuntimeError("time passes by itself here; make the broker with virtual=True")
        end = clock.time() + seconds
        await self.settle()
        while clock.time() < end:
            clock.move_to(min(clock.next(), end))
            await self.settle()

    def due(self) -> float:
        """When the broker must be told that time has passed: its clock takes a long gap for a stall."""
        server = self._server
        if server is None:
            return float("inf")
        return min(server.broker.timers.next(), server.broker.now + server.clock.longest_sleep)

    def tick(self) -> None:
        """Time has passed."""
        server = self._server
        if server is not None:
            server.broker.now = server.clock.read()
            server.broker.tick()

    async def settle(self) -> None:
        """Until nothing is on its way any more. Functions of services may still be running."""
        quiet = 0
        while quiet < QUIET_TURNS:
            before = LocalTransport.traffic
            await asyncio.sleep(0)
            quiet = quiet + 1 if LocalTransport.traffic == before else 0

    async def join(self, *, timeout: float = 10.0, check: bool = True) -> None:
        """Until every job has ended. Unless `check` is off, raises what the first one that failed since the
        last `join` raised in its worker, or why it has no result."""
        await self.start()
        await self.settle()
        async with asyncio.timeout(timeout):
            await self._watch.ended()
        error = self._watch.take_error()
        if check and error is not None:
            raise error

    def drain(self) -> None:
        """The broker takes no new jobs, as if told to stop while some are running."""
        if self._server is not None:
            self._server.broker.drain()

    def freeze(self) -> None:
        """The broker hears nothing and says nothing any more, but its connections stay, and new ones are
        accepted: as if its process were stopped."""
        self._frozen = True
        if self._server is not None:
            for transport in _transports(self._server):
                if isinstance(transport, LocalTransport):
                    transport.freeze()

    async def crash(self) -> None:
        """The broker is gone at once, with all it knew, as if killed; connecting to it is refused."""
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
        """A new one takes its place."""
        self._down = self._frozen = False
        await self.start()

    async def close(self) -> None:
        """The end. Its name leads nowhere any more."""
        self.abandon()
        await self.crash()

    def abandon(self) -> None:
        """The end, when there is no event loop any more to say goodbye on."""
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
        self._watch.raised[address] = error

    async def __aenter__(self) -> LocalBroker:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class SyncLocalBroker:
    """`LocalBroker`, blocking, for `SyncClient` and `SyncWorker`."""

    def __init__(
        self, *, virtual: bool = False, settings: Settings | None = None, clock: Clock | None = None
    ) -> None:
        self._portal = portal()
        self._broker = LocalBroker(virtual=virtual, settings=settings, clock=clock)
        self.name = self._broker.name
        self.clock = self._broker.clock
        self._portal.run(self._broker.start())

    @property
    def url(self) -> str:
        """For clients and workers that speak MDP."""
        return self._broker.url

    def url_for(self, dialect: str) -> str:
        """For those that speak another dialect."""
        return self._broker.url_for(dialect)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._portal.run(self._broker.advance(seconds))

    def settle(self) -> None:
        """Until nothing is on its way any more."""
        self._portal.run(self._broker.settle())

    def join(self, *, timeout: float = 10.0, check: bool = True) -> None:
        """Until every job has ended; raises what a failed one raised."""
        self._portal.run(self._broker.join(timeout=timeout, check=check))

    def drain(self) -> None:
        """The broker takes no new jobs."""
        self._portal.loop.call_soon_threadsafe(self._broker.drain)

    def freeze(self) -> None:
        """The broker hears nothing and says nothing any more."""
        self._portal.loop.call_soon_threadsafe(self._broker.freeze)

    def crash(self) -> None:
        """The broker is gone at once."""
        self._portal.run(self._broker.crash())

    def restart(self) -> None:
        """A new one takes its place."""
        self._portal.run(self._broker.restart())

    def close(self) -> None:
        """The end."""
        self._portal.run(self._broker.close())

    def __enter__(self) -> SyncLocalBroker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _transports(server: BrokerServer) -> list[asyncio.Transport]:
    """Of all connections."""
    return [peer.transport for peer in [*server.zmq.peers, *server.nng.peers, *server.handshakes]]


class _Watch(Journal):
    """Notes how jobs end, and passes it on to the journal that was there before."""

    def __init__(self) -> None:
        self.raised: dict[bytes, BaseException] = {}  # by attempt, what workers of this process raised
        self._failed: list[Job] = []
        self._server: BrokerServer | None = None
        self._next: Journal | None = None
        self._news = asyncio.Event()

    def follow(self, server: BrokerServer) -> None:
        self._server = server
        self._next = server.broker.journal
        server.broker.journal = self

    async def ended(self) -> None:
        while self._server is not None and self._server.broker.active:
            self._news.clear()
            await self._news.wait()

    def take_error(self) -> BaseException | None:
        """What the first of the failed jobs raised, and forget them all."""
        failed, self._failed = self._failed, []
        error = self._error_of(failed[0]) if failed else None
        self.raised.clear()
        return error

    def _error_of(self, job: Job) -> BaseException:
        found = self.raised.get(job.token)
        if found is not None:
            return found
        failure = job.failure
        account = failures.Account(failure.reason, failure.message) if failure else failures.Account()
        return failures.error_of(account, job.service.name.decode(errors="replace"))

    def finished(self, job: Job) -> None:
        if job.failure is not None:
            self._failed.append(job)
        self._news.set()
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
