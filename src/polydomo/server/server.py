"""The running broker: listeners, peers, the core and its clock, joined on one event loop.

A turn of the loop: every readable peer's bytes go through wire, dialect and core, answers collect in the outbox; then
the outbox is flushed, one write per connection. One timer rings when the core's next alarm is due.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from polydomo import redaction
from polydomo.core.broker import Broker
from polydomo.dialects.registry import RESUMED, SESSION_FACTORIES
from polydomo.dialects.session import CLOSED_TRANSPORT, NAME_TAKEN, Outbox, PeerConnection, SessionContext
from polydomo.errors import ConfigError, ProtocolError
from polydomo.server import endpoints, scan_tasks, tracebacks
from polydomo.server.admission import Admission
from polydomo.server.builtin_services import BuiltinServices
from polydomo.server.clock import Clock
from polydomo.server.descriptors import Descriptors
from polydomo.server.disconnected import Disconnected, discard
from polydomo.server.events import Events, Subscriber
from polydomo.server.extensions import Extension, ExtensionFactory
from polydomo.server.heap import Heap
from polydomo.server.job_tasks import JobTasks, without_store
from polydomo.server.ledger_service import LedgerService
from polydomo.server.log import Log
from polydomo.server.memory_budget import MemoryBudget
from polydomo.server.nng_peer import NngListener, NngPeer
from polydomo.server.peer_base import PeerBase
from polydomo.server.peer_notes import PeerLog
from polydomo.server.settings import Settings
from polydomo.server.store_adapter import StoreAdapter
from polydomo.server.store_watch import StoreWatch
from polydomo.server.uuid7 import Uuid7Source
from polydomo.server.zmq_peer import ZmqPeer
from polydomo.services.management import Management
from polydomo.store import Store, open_store
from polydomo.store.errors import StoreError

log = Log()

# How often peers are looked at for silence and slow reading, at the least.
INSPECTION = 5.0


class Named(Protocol):
    """Peer as the log shows it: its address, and where it came in."""

    address: str
    listener: str


class BrokerServer:
    """See the module's text. `start`, then `wait` until something calls `stop`."""

    def __init__(self, settings: Settings, joiners: Sequence[ExtensionFactory] = ()) -> None:
        self.settings = settings
        redaction.learn(settings.secrets())
        self.clock = Clock()
        self.clock.follow(settings.heartbeat.interval)
        self.broker = Broker(
            settings.bounds(),
            settings.policy(),
            first_token=int.from_bytes(os.urandom(4), "big"),
            new_uid=Uuid7Source(),
            random=random.random,
        )
        self.broker.policies = settings.policies()
        self.budget = MemoryBudget(self.broker, settings.limits.memory)
        self.heap = Heap()
        self.broker.now = self.clock.read()
        self.outbox = Outbox(self._schedule_flush)
        self.context = SessionContext(
            self.broker, self.outbox, SESSION_FACTORIES, settings.beat(), settings.limits.worker_jobs
        )
        self._set_context(settings)
        self.context.broker_id = f"{settings.broker.name}-{os.urandom(6).hex()}".encode()
        self.only_devices = False  # nothing is done here: messages are passed on (`polydomo.federation`)
        self.wire_limits = settings.wire_limits()
        self.management = Management(self.broker, settings.broker.name)
        self.management.tasks["show_broker"] = self._show_broker
        # Connections of all kinds that are in their handshake, and those that are past it.
        self.handshakes: Admission[PeerBase] = Admission(settings.limits.unauthenticated)
        self.seats: Admission[PeerBase] = Admission(settings.limits.connections, newest_first=True)
        self.descriptors = Descriptors(self.handshakes)
        self.events = Events(self)
        self.nng = NngListener(self)
        self.hosting = BuiltinServices(self)
        self.ledger = LedgerService(self)
        self.notes = PeerLog(self.ledger.denied)
        self.keeper: StoreAdapter | None = None
        self.store_watch: StoreWatch | None = None
        self.loop: asyncio.AbstractEventLoop
        self.peers: set[ZmqPeer] = set()
        self.named: dict[bytes, ZmqPeer] = {}  # by the identity they chose
        self.parked: dict[bytes, Disconnected] = {}  # clients that dropped off, within their grace time
        self.complaints = 0
        self.bound: list[str] = []
        self.armed = 0.0  # when the core's timer rings
        self._timer: asyncio.TimerHandle | None = None
        self._servers: list[asyncio.AbstractServer] = []
        self._sockets: list[str] = []
        self._next_identity = int.from_bytes(os.urandom(3), "big")
        self._stopping: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._hurry = False
        self._inspector: asyncio.TimerHandle | None = None
        self._heap_inspector: asyncio.TimerHandle | None = None
        self.store: Store | None = None
        self.shelf: Store  # the same, or where nothing is kept on disk, one in memory
        self._sweeper: asyncio.Task[None] | None = None
        made = [join(self) for join in joiners]
        self.extensions: list[Extension] = [extension for extension in made if extension is not None]

    async def start(self) -> None:
        """Listen everywhere, or nowhere: a place that cannot be bound is an error."""
        self.loop = asyncio.get_running_loop()
        self.management.turn = self._next_turn
        await self._open_store()
        try:
            self.ledger.start()
            self.hosting.start()
            for text in self.settings.broker.zmq:
                await self._listen(text, partial(ZmqPeer, self, text), self.bound)
            for text in self.settings.broker.events:
                await self._listen(text, partial(Subscriber, self.events, text), self.events.bound)
                self.broker.publisher = self.events
            self.context.events = self.events.bound
            for text in self.settings.broker.nng:
                await self._listen(text, partial(NngPeer, self.nng, text), self.nng.bound)
            for extension in self.extensions:
                await extension.open()
        except BaseException:
            self._close_listeners()
            await self.ledger.close()
            await self._close_store()
            raise
        self.broker.timers.on_sooner = self._sooner
        self._ring()
        self._inspector = self.loop.call_later(self._inspection(), self._inspect)
        self._inspect_heap()

    async def wait(self) -> None:
        """Until the broker has stopped; raises what went wrong in stopping."""
        await self._stopped.wait()
        if self._stopping is not None:
            await self._stopping

    def stop(self, *, drain: bool = True) -> None:
        """Finish what is here, say goodbye, close. A second call does not wait for jobs any more."""
        if self._stopping is not None or not drain:
            self._hurry = True
        if self._stopping is None:
            self._stopping = self.loop.create_task(self._stop())
            self._stopping.add_done_callback(lambda task: self._stopped.set())  # whatever happens on the way

    def reload(self, settings: Settings) -> None:
        """New limits, rhythm and service settings for what comes from now on. Listeners stay as they are."""
        settings.broker.zmq = self.settings.broker.zmq
        settings.broker.events = self.settings.broker.events
        settings.broker.nng = self.settings.broker.nng
        settings.broker.http = self.settings.broker.http
        self.settings = settings
        redaction.learn(settings.secrets())
        self.wire_limits = settings.wire_limits()
        self.clock.follow(settings.heartbeat.interval)
        self._set_context(settings)
        self.broker.configure(settings.bounds(), settings.policy(), settings.policies())
        self.budget.configure(settings.limits.memory)
        self.handshakes.limit = settings.limits.unauthenticated
        self.seats.limit = settings.limits.connections
        if self.store is not None:
            self.store.backlog_limit = settings.store.backlog
        self.hosting.reload(settings)
        log.info("settings reloaded", services=len(settings.services))

    def places(self) -> dict[str, list[str]]:
        """Where it listens, by kind."""
        found = {"zmq": self.bound, "events": self.events.bound, "nng": self.nng.bound}
        return found | {extension.name: extension.bound for extension in self.extensions}

    def enter(self) -> None:
        """Before anything but a peer's bytes reaches the core."""
        self._set_time()

    def _next_turn(self, step: Callable[[], None]) -> None:
        """Go on with something long after everybody else had a turn."""

        def enter() -> None:
            self.enter()
            step()

        self.loop.call_soon(enter)

    def _set_context(self, settings: Settings) -> None:
        """What sessions go by."""
        self.context.beat = settings.beat()
        self.context.credit_max = settings.limits.worker_jobs
        self.context.wmp_workers = settings.limits.device_workers
        self.context.broker_name = settings.broker.name
        self.broker.on_failure = tracebacks.filter_for(settings)
        self.context.nfp_durable = settings.nfp.durable
        self.context.nfp_credit = settings.nfp.credit

    def welcome(self, peer: ZmqPeer, identity: bytes) -> None:
        """A peer has finished its handshake: it gets its identity, and its former self's jobs if it was here before.

        Two peers with one identity: the newer takes over and the older is closed, because the older is mostly a
        connection whose death has not been noticed; or, if it is known to be another, or configured so, the newer is
        refused.
        """
        link = peer.link
        old = self.named.get(identity)
        if old is not None:
            if not old.yields_to(link):
                raise ProtocolError(NAME_TAKEN, hint="see zmq.duplicate_identity")
            self.seats.leave(old)
        self.seat(peer)
        if identity:
            if old is not None:
                self.peers.discard(old)
                self.part(old)
                old.cut("its identity was taken over by a newer connection")
            self.named[identity] = peer
            link.named = True
        else:
            # RFC 37: what the router makes up begins with a zero byte.
            self._next_identity = (self._next_identity + 1) & 0xFFFFFFFF
            identity = b"\0" + self._next_identity.to_bytes(4, "big")
        link.identity = identity
        self.peers.add(peer)
        if link.named and self.broker.lifecycle.absentees:
            self._resume(link)
        parked = self.parked.get(identity)
        if parked is not None:
            parked.hand_over(link)

    def seat(self, peer: PeerBase) -> None:
        """Let a peer stay that has finished its handshake, or raise ProtocolError.

        When all places are taken, an address that has most of them gets no more, and one that has fewer gets one of
        its.
        """
        if self.seats.is_full_for(peer.site):
            raise ProtocolError("too many connections", hint="raise limits.connections if they are meant")
        self.seats.enter(peer, peer.site)

    def _resume(self, link: PeerConnection) -> None:
        """A client goes on with the jobs it had before the broker was restarted."""
        for dialect, resumption in RESUMED.items():
            client = self.broker.lifecycle.absentees.get((link.identity, dialect))
            if client is not None:
                link.adopt(resumption.open(self.context, link, dialect, client.form))

    def part(self, peer: ZmqPeer) -> None:
        """A connection is gone. Clients that may come back are kept with what is answered meanwhile."""
        link = peer.link
        kept = [session for session in link.sessions() if session.lost()]
        if kept:
            limit = self.settings.limits.output_bytes
            self.parked[link.identity] = Disconnected(link, kept, self.budget, limit, self._forget)
        else:
            link.replace_transport(CLOSED_TRANSPORT, discard)

    def _forget(self, identity: bytes) -> None:
        """Wait no longer for a client that dropped off."""
        self.parked.pop(identity, None)

    def note(self, what: str, peer: Named, reason: str) -> None:
        """Log and record something about one peer."""
        self.notes.note(what, peer.address, peer.listener, reason)

    async def _open_store(self) -> None:
        """Durable jobs need a place; those of before the restart go on."""
        url = self.settings.store_url()
        if not url:
            homeless = [name for name, policy in self.settings.policies().items() if policy.durable]
            if homeless or self.settings.policy().durable:
                name = homeless[0].decode() if homeless else "defaults"
                raise ConfigError(
                    f"{name} is durable, and there is no place to keep its jobs",
                    hint="set --data or store.url",
                )
            without_store(self.management)
            scan_tasks.without_store(self.management)
            self.shelf = open_store("memory:", self.loop.call_soon_threadsafe)
            return
        self._set_time()
        store = await asyncio.to_thread(
            open_store,
            url,
            self.loop.call_soon_threadsafe,
            backlog_limit=self.settings.store.backlog,
            batch=self.settings.store.batch,
        )
        self.store = self.shelf = store
        keeper = self.keeper = StoreAdapter(self.broker, store, self._set_time)
        keeper.before_loss = self.ledger.flush
        self.broker.lifecycle.keeper = keeper
        JobTasks(keeper, self.management)
        scan_tasks.ScanTasks(store, self.management)
        self.store_watch = StoreWatch(
            store, url, partial(self._recover, keeper), keeper.refuse, self.settings.store.check
        )
        await self.store_watch.start()
        self._sweeper = self.loop.create_task(self._sweep(keeper))

    async def _recover(self, keeper: StoreAdapter) -> None:
        """Take up the jobs that had not ended before the restart."""
        recovered = await keeper.recover()
        if recovered:
            log.info("jobs of before go on", jobs=recovered)
        for peer in list(
            self.named.values()
        ):  # those that were faster than a store whose disk was in trouble
            self._resume(peer.link)
        self.ledger.rebuild()

    async def _sweep(self, keeper: StoreAdapter) -> None:
        while True:
            await asyncio.sleep(self.settings.store.sweep)
            try:
                await self.ledger.flush()
                await keeper.sweep()
            except StoreError as error:
                log.warning("old results were not removed", reason=str(error))

    async def _close_store(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self.store_watch is not None:
            self.store_watch.close()
        if self.store is not None:
            await asyncio.to_thread(self.store.close)

    def _set_time(self) -> None:
        """Before anything but a peer's bytes reaches the core."""
        self.broker.now = self.clock.read()
        self.broker.lifecycle.epoch = time.time() - self.broker.now

    def _schedule_flush(self) -> None:
        self.loop.call_soon(self.outbox.flush)

    def _sooner(self, when: float) -> None:
        """The core set an alarm that is due before the timer rings."""
        if when < self.armed:
            self._arm(when)

    def _arm(self, when: float) -> None:
        """Ring at `when`, or in a second at the latest: the clock must be looked at to notice stalls."""
        if self._timer is not None:
            self._timer.cancel()
        now = self.broker.now
        self.armed = min(when, now + self.clock.longest_sleep)
        self._timer = self.loop.call_later(max(self.armed - now, 0.001), self._ring)

    def _ring(self) -> None:
        """Let the core do what is due."""
        self._set_time()
        self.armed = 0.0  # alarms set meanwhile are seen below
        self._arm(self.broker.tick())

    def _inspect(self) -> None:
        now = self.clock.read()
        for peer in list(self.peers):
            peer.inspect(now)
        self.events.inspect(now)
        self.nng.inspect(now)
        self.descriptors.inspect()
        for extension in self.extensions:
            extension.inspect(now)
        self._inspector = self.loop.call_later(self._inspection(), self._inspect)

    def _inspect_heap(self) -> None:
        self.heap.inspect(self.budget.total(), self.budget.limit)
        self._heap_inspector = self.loop.call_later(1.0, self._inspect_heap)

    def _inspection(self) -> float:
        """Often enough to see a peer's silence before it is too late to ask it."""
        return min(INSPECTION, self.settings.limits.stalled / 2, self.settings.zmq.ping / 2 or INSPECTION)

    async def _listen(self, text: str, peer: Callable[[], asyncio.Protocol], bound: list[str]) -> None:
        endpoint = endpoints.parse(text, binding=True)
        try:
            if endpoint.is_ipc:
                await self._listen_ipc(endpoint, peer)
                bound.append(str(endpoint))
                return
            server = await self.loop.create_server(peer, endpoint.host or None, endpoint.port, backlog=1024)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {text}: {error.strerror or error}", hint="is another broker running there?"
            ) from error
        self._servers.append(server)
        port = server.sockets[0].getsockname()[1]
        bound.append(str(endpoint._replace(host=endpoint.host or "*", port=port)))

    async def _listen_ipc(self, endpoint: endpoints.Endpoint, peer: Callable[[], asyncio.Protocol]) -> None:
        path = endpoint.unix_path
        is_file = not path.startswith("\0")
        if is_file and Path(path).is_socket():
            if await _answers(path):
                raise OSError(errno.EADDRINUSE, "somebody is listening there")
            Path(path).unlink()  # left behind by a broker that was killed
        server = await self.loop.create_unix_server(peer, path, backlog=1024)
        self._servers.append(server)
        if is_file:
            self._sockets.append(path)

    async def _stop(self) -> None:
        """Order matters: no newcomers, then the jobs that are here, then goodbyes, then the sockets."""
        self._close_listeners()
        for extension in self.extensions:
            extension.shut()
        self.broker.drain()
        log.info("stopping", jobs=self.broker.active)
        end = self.loop.time() + self.settings.broker.drain
        while self.broker.busy() and not self._hurry and self.loop.time() < end:
            await asyncio.sleep(0.02)
        self.broker.now = self.clock.read()
        self.hosting.close()
        unfinished = self.broker.close()
        self.events.close()
        self.nng.close()
        self.outbox.flush()
        self.outbox.flush()  # answers that the first one may have held back
        await asyncio.sleep(0)
        for newcomer in list(self.handshakes):
            newcomer.cut("the broker stops")
        for peer in list(self.peers):
            peer.transport.close()
        for extension in self.extensions:
            await extension.close()
        patience = self.loop.time() + 1.0
        while (self.peers or self.events.subscribers or self.nng.peers) and self.loop.time() < patience:
            await asyncio.sleep(0.01)
        for peer in list(self.peers):
            peer.transport.abort()
        self.events.close(hurry=True)
        self.nng.close(hurry=True)
        if self._timer is not None:
            self._timer.cancel()
        if self._inspector is not None:
            self._inspector.cancel()
        if self._heap_inspector is not None:
            self._heap_inspector.cancel()
        self.notes.end_period()
        await self.ledger.close()
        await self._close_store()
        totals = self.management.show_broker()
        log.info("stopped", unfinished=unfinished, done=totals["done"], failed=totals["failed"])

    def _show_broker(self) -> dict[str, Any]:
        """The catalogue's, and where the broker listens."""
        shown = self.management.show_broker() | {"zmq": list(self.bound), "events": self.events.show()}
        shown["memory_budget"] = self.budget.show()
        if self.nng.bound:
            shown["nng"] = self.nng.show()
        for extension in self.extensions:
            shown[extension.name] = extension.show()
        if self.store is not None and self.store_watch is not None:
            shown["store"] = self.store.show() | self.store_watch.show()
        if self.ledger.on:
            shown["ledger"] = self.ledger.show()
        return shown

    def _close_listeners(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
        for path in self._sockets:
            with suppress(OSError):  # a file system that turned read-only: the next broker replaces the file
                Path(path).unlink(missing_ok=True)
        self._sockets.clear()


async def _answers(path: str) -> bool:
    """Is somebody listening on this socket file?"""
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    writer.close()
    return True
