"""Delivery of answers to clients that reconnect after a restart and cannot ask for a result: MDP and DCP.

A client that chose its own ZeroMQ identity is recognised when its socket reconnects. Its unfinished jobs are answered
on the new connection. Answers to jobs that ended in between are read from the store and sent once.

These protocols have no acknowledgement of answers. So a moment after answers were passed to their sockets, the number
of the latest end among them (`Store.ending`) is written to the store; after a crash the answers after that number are
sent again. No answer is lost, and only those of the last moment before the crash are repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from polydomo.core.broker import Broker
from polydomo.core.failure import Failure
from polydomo.core.model import Client
from polydomo.deferred import deferring
from polydomo.dialects.registry import RESUMED
from polydomo.server.clock import wall_time
from polydomo.server.log import Log
from polydomo.server.record_codec import form_of
from polydomo.store import Store
from polydomo.store.errors import StoreError
from polydomo.store.records import DONE, JobRecord, ResultRecord

log = Log()

# Seconds after which an answer counts as passed to its socket: some turns of the event loop.
DELAY: Final = 0.05

# Most recent ends that are checked after a crash; many more than fit into the delay.
RECENT: Final = 10_000

# Place of the number in the store.
SPACE: Final = "told"
NAME: Final = b"ending"


class Deliveries:
    """Deliveries of one broker. `advance` sets the core's time."""

    def __init__(self, broker: Broker, store: Store, advance: Callable[[], None]) -> None:
        self.broker = broker
        self.events = broker.store_events
        self.store = store
        self.advance = advance
        self._recovered = False
        self._latest = 0  # number of the latest end that was sent
        self._timer: asyncio.TimerHandle | None = None

    def absent_client(self, record: JobRecord) -> Client:
        """Return the absent client of a recovered job, until the client reconnects."""
        who = (record.client, record.dialect, record.principal)
        client = self.events.expected_clients().get(who)
        if client is not None:
            return client
        client = self.events.absent_client(*who)
        client.form = form_of(record)
        resumption = RESUMED.get(record.dialect)
        if resumption is not None and _named(record.client):
            self.events.expect(client, resumption.asks)
        return client

    async def recover(self) -> None:
        """Find the answers that may not have reached their clients before the crash."""
        if self._recovered:
            return
        item = await self.store.item(SPACE, NAME)
        if item is None:  # the store is new, or was last used by a version without this number
            self._write(self.store.ending)
            self._recovered = True
            return
        after = max(int(item.value), self.store.ending - RECENT)
        found: list[JobRecord] = []
        while ended := await self.store.endings(after):
            for one in ended:
                record = await self.store.get(one.id) if _is_delivered(one.client, one.dialect) else None
                if record is not None:
                    found.append(record)
            after = ended[-1].ending or self.store.ending
        for record in found:
            self.events.missed(self.absent_client(record), record.id)
        self._recovered = True

    def start_grace(self) -> None:
        """Start the grace period of the recovered jobs' clients."""
        if self.events.is_retelling():
            grace = self.broker.services.limits.client_grace
            asyncio.get_running_loop().call_later(grace, self.events.give_up_absent_clients)

    def record_sent(self, client: Client, ending: int) -> None:
        """Record that the answer with this number is about to be passed to its client's socket."""
        self._latest = ending
        if self._timer is None and _is_delivered(client.name, client.dialect):
            self._timer = asyncio.get_running_loop().call_later(DELAY, self._settle, ending)

    @deferring
    async def deliver(self, client: Client, uid: str) -> None:
        """Send a reconnected client the answer to this job."""
        try:
            record = await self.store.get(uid)
            result = await self.store.result(uid)
        except Exception as error:
            log.warning("result not delivered after the restart", job=uid, reason=str(error))
        else:
            if record is not None and result is not None:
                self.advance()
                self.events.retell(client, record.service, record.envelope, *outcome(result))

    def _settle(self, ending: int) -> None:
        self._timer = None
        self._write(ending)
        if self._latest > ending:
            self._timer = asyncio.get_running_loop().call_later(DELAY, self._settle, self._latest)

    def _write(self, ending: int) -> None:
        try:
            self.store.put(SPACE, NAME, b"%d" % ending, wall_time())
        except StoreError:
            pass  # the store is closed: the last answers will be sent again


def outcome(result: ResultRecord) -> tuple[bytes | None, Failure | None]:
    """Return a job's body or its failure."""
    if result.state == DONE:
        return result.body or b"", None
    return None, Failure(result.code or result.state, result.message, result.body)


def _is_delivered(name: bytes, dialect: str) -> bool:
    """Return whether missed answers are sent again to such a client."""
    resumption = RESUMED.get(dialect)
    return resumption is not None and not resumption.asks and _named(name)


def _named(name: bytes) -> bool:
    """Return whether the client chose its identity. RFC 37: one that a router makes up begins with a zero byte."""
    return not name.startswith(b"\0")
