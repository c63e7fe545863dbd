"""The running broker: listeners, peers, the core and its clock on one event loop.

In each turn of the loop the bytes of every readable peer go through wire, dialect and core, and answers collect in the
outbox; then the outbox is flushed with one write per connection. One timer fires when the core's next timer is due.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from polydomo import redaction
from polydomo.core.broker import Broker
from polydomo.dialects.registry import SESSION_FACTORIES
from polydomo.dialects.session import Outbox, SessionContext
from polydomo.errors import ConfigError
from polydomo.security.roles import Denial
from polydomo.server import attempt_secret, config, exposure, job_tasks, scan_tasks, tracebacks
from polydomo.server.admission import Admission, Entrant
from polydomo.server.auditing import Auditing
from polydomo.server.authorization import Authorization, log_start
from polydomo.server.builtin_services import BuiltinServices
from polydomo.server.clock import ServerClock
from polydomo.server.descriptors import Descriptors
from polydomo.server.events import Events
from polydomo.server.extensions import Extension
from polydomo.server.heap import Heap
from polydomo.server.job_tasks import JobTasks, refuse_tasks
from polydomo.server.ledger_service import LedgerService
from polydomo.server.listeners import Listeners
from polydomo.server.log import Log
from polydomo.server.memory_budget import MemoryBudget
from polydomo.server.nng_peer import NngPeers
from polydomo.server.peer_base import PeerBase, PeerGroup
from polydomo.server.peer_log import PeerAddress, PeerLog
from polydomo.server.peer_security import PeerSecurity
from polydomo.server.scan_tasks import ScanTasks
from polydomo.server.settings import Settings
from polydomo.server.store_adapter import StoreAdapter
from polydomo.server.store_watch import StoreWatch
from polydomo.server.tls import ServerTls
from polydomo.server.uuid7 import Uuid7Source
from polydomo.server.zmq_peer import ZmqPeers
from polydomo.services.management import ManagementService
from polydomo.store import Store, open_store
from polydomo.store.errors import StoreError

log = Log()

# Seconds by which the wall clock may differ from the core's before it is read again. Less is only the time between two
# readings; a job's times would be told differently each time.
DRIFT = 0.001

# Longest interval in seconds between two inspections of the peers for silence and slow reading.
INSPECTION = 5.0

# Seconds between two inspections of the heap.
HEAP_INSPECTION = 0.25

# Shortest time in seconds between two sweeps of the store, the second because it is full.
SWEEP_PAUSE = 1.0

# Seconds that peers have to read their last messages when the broker stops.
LINGER = 1.0


class BrokerServer:
    """A broker with its listeners. Call `start`, then `wait` until `stop` is called."""

    def __init__(self, settings: Settings, extensions: Sequence[ExtensionFactory] = ()) -> None:
        self.settings = settings
        redaction.learn(config.secrets(settings))
        self.clock = ServerClock()
        self.clock.follow(settings.heartbeat.interval)
        self.broker = Broker(
            settings.bounds(),
            settings.policy(),
            first_token=int.from_bytes(os.urandom(4), "big"),
            new_uid=Uuid7Source(),
            random=random.random,
        )
        self.broker.services.policies = settings.policies()
        self.budget = MemoryBudget(self.broker, settings.limits.memory)
        self.heap = Heap()
        self.broker.advance(self.clock.read())
        self.outbox = Outbox(self._schedule_flush)
        self.context = SessionContext(
            self.broker, self.outbox, SESSION_FACTORIES, settings.beat(), settings.limits.worker_jobs
        )
        self._set_context(settings)
        self.context.broker_id = f"{settings.broker.name}-{os.urandom(6).hex()}".encode()
        self.only_devices = False  # the server only forwards messages (`polydomo.federation`)
        self.wire_limits = settings.wire_limits()
        self.management = ManagementService(self.broker, settings.broker.name)
        self.management.tasks.add({"show_broker": self._show_broker})
        self.management.authorizer.advance = self.advance
        # Connections of all kinds, in their handshake and after it.
        self.handshakes: Admission[Entrant] = Admission(settings.limits.unauthenticated)
        self.seats: Admission[PeerBase] = Admission(settings.limits.connections, newest_first=True)
        self.descriptors = Descriptors(self.handshakes)
        self.security: PeerSecurity | None = None  # without CURVE
        self.tls: ServerTls | None = None  # no listener has TLS
        self.violations = 0
        self.listeners = Listeners()
        self.zmq = ZmqPeers(self, self.context)
        self.events = Events(self)
        self.nng = NngPeers(self, self.outbox)
        self.groups: dict[str, PeerGroup[Any]] = {"zmq": self.zmq, "events": self.events, "nng": self.nng}
        self.builtin_services = BuiltinServices(self)
        self.ledger = LedgerService(self)
        self.audit = Auditing(self)
        self.peer_log = PeerLog(self.ledger.denied)
        self.authorization = Authorization(self.broker, self._log_denial)
        self.authorization.configure(settings)
        self.store: Store | None = None
        self.value_store: Store  # the same; a store in memory if nothing is kept on disk
        self.adapter: StoreAdapter | None = None
        self.store_watch: StoreWatch | None = None
        self.attempt_secret: bytes  # for the paths of HTTP attempts
        self.loop: asyncio.AbstractEventLoop
        self._armed = 0.0  # when the timer fires
        self._timer: asyncio.TimerHandle | None = None
        self._inspector: asyncio.TimerHandle | None = None
        self._heap_inspector: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._hurry = False
        made = [make(self) for make in extensions]
        self.extensions: list[Extension] = [extension for extension in made if extension is not None]

    async def start(self) -> None:
        """Open the store and listen on all endpoints; raise ConfigError and close everything if one cannot be bound."""
        self.loop = asyncio.get_running_loop()
        exposure.check(self.settings)
        self.management.call_later = lambda step: self.loop.call_soon(self.run, step)
        if self.settings.security.curve == "on":
            self.security = PeerSecurity(self.settings, self.audit.note)
        if exposure.has_tls(self.settings.broker):
            self.tls = ServerTls(self.settings.tls)
        log_start(self.settings)
        await self._open_store()
        self.attempt_secret = attempt_secret.load(self.settings.data_folder())
        try:
            self.audit.start()
            self.ledger.start()
            self.builtin_services.start()
            if self.settings.broker.events:
                self.broker.publisher = self.events
            self.context.events = self.events.bound
            for name, group in self.groups.items():
                for text in getattr(self.settings.broker, name):
                    await group.listen(text, self.listeners)
            for extension in self.extensions:
                await extension.open()
        except BaseException:
            self.listeners.close()
            await self.ledger.close()
            await self._close_store()
            await self.audit.close()
            raise
        self.broker.timers.on_sooner = self._rearm
        self._fire()
        self._inspector = self.loop.call_later(self._inspection(), self._inspect)
        self._inspect_heap()

    async def wait(self) -> None:
        """Wait until the broker has stopped; raise the error of a failed stop."""
        await self._stopped.wait()
        if self._stopping is not None:
            await self._stopping

    def stop(self, *, drain: bool = True) -> None:
        """Finish the accepted jobs and close all connections. A second call does not wait for jobs."""
        if self._stopping is not None or not drain:
            self._hurry = True
        if self._stopping is None:
            self._stopping = self.loop.create_task(self._stop())
            self._stopping.add_done_callback(lambda task: self._stopped.set())  # also after an error

    def reload(self, settings: Settings) -> None:
        """Apply new limits, heartbeats, services and roles. What needs a restart stays as it is.

        Raises ConfigError, and changes nothing, if that would let anybody in.
        """
        config.keep(self.settings, settings)
        exposure.check(settings)
        self.settings = settings
        redaction.learn(config.secrets(settings))
        self.wire_limits = settings.wire_limits()
        self.clock.follow(settings.heartbeat.interval)
        self._set_context(settings)
        self.broker.control.configure(settings.bounds(), settings.policy(), settings.policies())
        self.budget.configure(settings.limits.memory)
        self.handshakes.limit = settings.limits.unauthenticated
        self.seats.limit = settings.limits.connections
        if self.store is not None:
            self.store.backlog_limit = settings.store.backlog
        if self.adapter is not None:
            self.adapter.holdings.limit = settings.store.bytes
        self.nng.configure(settings)
        if self.security is not None:
            self.security.configure(settings)
        if self.tls is not None:
            self.tls.configure(settings)
        self.authorization.configure(settings)
        self.builtin_services.reload(settings)
        log.info("settings reloaded", services=len(settings.services))

    def endpoints(self) -> dict[str, list[str]]:
        """Return the bound endpoints by kind."""
        found = {name: group.bound for name, group in self.groups.items()}
        return found | {extension.name: extension.bound for extension in self.extensions}

    def connections(self) -> int:
        """Return the number of ZeroMQ peers."""
        return len(self.zmq.peers)

    def advance(self) -> None:
        """Set the core's time. To be called before the core is called from anything but a peer's bytes."""
        now = self.clock.read()
        self.broker.advance(now)
        epoch = time.time() - now
        if abs(epoch - self.broker.clock.epoch) > DRIFT:
            self.broker.clock.epoch = epoch

    def run(self, step: Callable[[], object]) -> None:
        """Call `step` with the core's time set."""
        self.advance()
        step()

    def log_peer(self, event: str, peer: PeerAddress, reason: str) -> None:
        """Log an event of one peer and record it in the ledger."""
        self.peer_log.add(event, peer, reason)

    def _log_denial(self, denial: Denial, advice: Callable[[], str]) -> None:
        self.peer_log.add_denial(denial, advice)
        self.audit.denied(*denial)

    def _set_context(self, settings: Settings) -> None:
        self.context.beat = settings.beat()
        self.context.credit_max = settings.limits.worker_jobs
        self.context.wmp_workers = settings.limits.device_workers
        self.context.broker_name = settings.broker.name
        self.context.nfp_durable = settings.nfp.durable
        self.context.nfp_credit = settings.nfp.credit
        self.broker.on_failure = tracebacks.filter_for(settings)

    async def _open_store(self) -> None:
        """Open the store and recover its unfinished jobs; raise ConfigError if durable jobs have no store."""
        url = self.settings.store_url()
        if not url:
            durable = [name.decode() for name, policy in self.settings.policies().items() if policy.durable]
            if durable or self.settings.policy().durable:
                name = durable[0] if durable else "defaults"
                raise ConfigError(
                    f"{name} is durable, and there is no store for its jobs", hint="set --data or store.url"
                )
            refuse_tasks(self.management, (*job_tasks.TASKS, *scan_tasks.TASKS))
            self.value_store = open_store("memory:", self.loop.call_soon_threadsafe)
            return
        self.advance()
        store = await asyncio.to_thread(
            open_store,
            url,
            self.loop.call_soon_threadsafe,
            backlog_limit=self.settings.store.backlog,
            batch=self.settings.store.batch,
        )
        self.store = self.value_store = store
        adapter = self.adapter = StoreAdapter(self.broker, store, self.advance, self.settings.store.bytes)
        self.broker.use_store(adapter)
        JobTasks(adapter, self.management, self.ledger.flush)
        ScanTasks(store, self.management)
        self.store_watch = StoreWatch(
            store, url, partial(self._recover, adapter), adapter.refuse, self.settings.store.check
        )
        await self.store_watch.start()
        self._sweeper = self.loop.create_task(self._sweep(adapter))

    async def _recover(self, adapter: StoreAdapter) -> None:
        """Restore the jobs that were unfinished before the restart."""
        await adapter.holdings.refresh()
        recovered = await adapter.recovery.recover()
        if recovered:
            log.info("recovered unfinished jobs", jobs=recovered)
        self.zmq.resume_all()
        self.ledger.rebuild()

    async def _sweep(self, adapter: StoreAdapter) -> None:
        while True:
            sweep = self.settings.store.sweep
            await asyncio.sleep(min(SWEEP_PAUSE, sweep))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(sweep - SWEEP_PAUSE, 0)):
                    await adapter.holdings.crowded.wait()
            try:
                await self.ledger.flush()
                await adapter.sweep()
            except StoreError as error:
                log.warning("expired results not removed", reason=str(error))

    async def _close_store(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self.store_watch is not None:
            self.store_watch.close()
        await asyncio.to_thread(self.value_store.close)

    def _schedule_flush(self) -> None:
        self.loop.call_soon(self.outbox.flush)

    def _rearm(self, when: float) -> None:
        """Fire earlier, because the core has set a timer for `when`."""
        if when < self._armed:
            self._arm(when)

    def _arm(self, when: float) -> None:
        """Fire at `when`, or after the clock's longest sleep: it must be read regularly to detect stalls."""
        if self._timer is not None:
            self._timer.cancel()
        now = self.broker.now
        self._armed = min(when, now + self.clock.longest_sleep)
        self._timer = self.loop.call_later(max(self._armed - now, 0.001), self._fire)

    def _fire(self) -> None:
        self.advance()
        self._armed = 0.0  # `tick` returns the next time, so `_rearm` is not needed for timers that it sets
        self._arm(self.broker.tick())

    def _inspect(self) -> None:
        now = self.clock.read()
        for group in self.groups.values():
            group.inspect(now)
        if self.security is not None:
            self.security.inspect([*self.zmq.peers, *self.events.peers])
        self.descriptors.inspect()
        for extension in self.extensions:
            extension.inspect(now)
        self._inspector = self.loop.call_later(self._inspection(), self._inspect)

    def _inspect_heap(self) -> None:
        self.heap.inspect(self.budget.total(), self.budget.limit)
        self._heap_inspector = self.loop.call_later(HEAP_INSPECTION, self._inspect_heap)

    def _inspection(self) -> float:
        """Return the interval of inspections: short enough to ping a silent peer in time."""
        return min(INSPECTION, self.settings.limits.stalled / 2, self.settings.zmq.ping / 2 or INSPECTION)

    async def _stop(self) -> None:
        """Refuse newcomers, finish the accepted jobs, disconnect workers, then close the sockets."""
        self.listeners.close()
        for extension in self.extensions:
            extension.shut()
        self.broker.control.drain()
        log.info("stopping", jobs=self.broker.accounting.active)
        end = self.loop.time() + self.settings.broker.drain
        while self.broker.busy() and not self._hurry and self.loop.time() < end:
            await asyncio.sleep(0.02)
        self.advance()
        self.builtin_services.close()
        unfinished = self.broker.close()
        self.events.close()
        self.nng.close()
        self.outbox.flush()
        self.outbox.flush()  # deferred answers
        await asyncio.sleep(0)
        for peer in list(self.handshakes):
            peer.cut("the broker stops")
        self.zmq.close()
        for extension in self.extensions:
            await extension.close()
        end = self.loop.time() + LINGER
        groups = self.groups.values()
        while any(group.peers for group in groups) and self.loop.time() < end:
            await asyncio.sleep(0.01)
        for group in groups:
            group.close(hurry=True)
        for timer in (self._timer, self._inspector, self._heap_inspector):
            if timer is not None:
                timer.cancel()
        self.peer_log.end_period()
        await self.ledger.close()
        await self._close_store()
        await self.audit.close()
        totals = self.management.show_broker()
        log.info("stopped", unfinished=unfinished, done=totals["done"], failed=totals["failed"])

    def _show_broker(self) -> dict[str, Any]:
        """Return the catalogue's `show_broker` with the state of the server's parts."""
        shown = self.management.show_broker() | {"zmq": list(self.zmq.bound), "events": self.events.show()}
        shown["roles"] = self.authorization.show()
        shown["memory_budget"] = self.budget.show()
        if self.nng.bound:
            shown["nng"] = self.nng.show()
        for extension in self.extensions:
            shown[extension.name] = extension.show()
        if self.store is not None and self.store_watch is not None:
            shown["store"] = self.store.show() | self.store_watch.show()
        if self.adapter is not None:
            shown["store"] |= self.adapter.holdings.show()
        if self.ledger.on:
            shown["ledger"] = self.ledger.show()
        if self.audit.on:
            shown["audit"] = self.audit.show()
        exposed = exposure.open_to_others(self.settings)
        if exposed:
            shown["insecure"] = exposed
        return shown


# Makes an extension for a server if its settings ask for one.
ExtensionFactory = Callable[[BrokerServer], Extension | None]
