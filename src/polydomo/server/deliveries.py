"""Answers for clients that waited through the broker's restart and cannot ask for a result: MDP's and DCP's.

A client that chose its own ZeroMQ identity is known again when its socket reconnects. Its unfinished jobs are answered
to the new connection. What ended while it was away is read from the store and told it once.

Nobody acknowledges an answer in these protocols. So the store is told, a moment after answers were handed to their
sockets, the number of the latest end among them (`Store.ending`); after a crash the ends behind that number are told
again. That loses no answer, and repeats only those of the last moment before the crash.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from polydomo.core.broker import Broker
from polydomo.core.client import Client
from polydomo.core.job import Failure
from polydomo.dialects.registry import RESUMED
from polydomo.server.log import Log
from polydomo.server.record_codec import form_of
from polydomo.store import Store
from polydomo.store.errors import StoreError
from polydomo.store.records import DONE, JobRecord, ResultRecord

log = Log()

# Seconds after which an answer counts as handed to its socket: some turns of the loop.
MOMENT: Final = 0.05

# Ends before a crash that are looked at, at most; many more than there are in a moment.
RECENT: Final = 10_000

# Where the store keeps the number.
SPACE: Final = "told"
NAME: Final = b"ending"


class Deliveries:
    """Belongs to one broker and its store. `touch` sets the core's time."""

    def __init__(self, broker: Broker, store: Store, touch: Callable[[], None]) -> None:
        self.broker = broker
        self.lifecycle = broker.lifecycle
        self.store = store
        self.touch = touch
        self._recovered = False
        self._latest = 0  # end that was told
        self._timer: asyncio.TimerHandle | None = None

    def expect(self, record: JobRecord) -> Client:
        """The stand-in for the client of a job of before the restart, until it is back."""
        who = (record.client, record.dialect)
        client = self.lifecycle.absentees.get(who)
        if client is not None:
            return client
        client = self.lifecycle.absent(*who)
        client.form = form_of(record)
        resumption = RESUMED.get(record.dialect)
        if resumption is not None and _named(record.client):
            self.lifecycle.absentees[who] = client
            if not resumption.asks:
                self.lifecycle.untold[who] = []
        return client

    async def recover(self) -> None:
        """Find the ends that may not have reached their clients before the crash."""
        if self._recovered:
            return
        item = await self.store.item(SPACE, NAME)
        if item is None:  # the store is new, or its last broker kept no such number
            self._write(self.store.ending)
            self._recovered = True
            return
        after = max(int(item.value), self.store.ending - RECENT)
        found: list[JobRecord] = []
        while ended := await self.store.endings(after):
            for one in ended:
                record = await self.store.get(one.id) if _is_told(one.client, one.dialect) else None
                if record is not None:
                    found.append(record)
            after = ended[-1].ending or self.store.ending
        for record in found:
            self.expect(record)
            self.lifecycle.untold[record.client, record.dialect].append(record.id)
        self._recovered = True

    def begin(self) -> None:
        """Jobs were recovered: wait for their clients for as long as for those that drop off."""
        if self.lifecycle.untold:
            grace = self.broker.bounds.client_grace
            asyncio.get_running_loop().call_later(grace, self.lifecycle.give_up_absentees)

    def told(self, client: Client, ending: int) -> None:
        """This end is handed to its client's socket in this turn of the loop, or in one of the next."""
        self._latest = ending
        if self._timer is None and _is_told(client.name, client.dialect):
            self._timer = asyncio.get_running_loop().call_later(MOMENT, self._settle, ending)

    def tell(self, client: Client, uid: str) -> None:
        """Tell a client that is back how this job ended."""

        def found(record: JobRecord | None) -> None:
            if record is not None:
                self.store.result(uid).then(lambda result: ended(record, result), failed)

        def ended(record: JobRecord, result: ResultRecord | None) -> None:
            if result is not None:
                self.touch()
                self.lifecycle.retell(client, record.service, record.envelope, *outcome(result))

        def failed(error: StoreError) -> None:
            log.warning("a result could not be delivered after the restart", job=uid, reason=str(error))

        self.store.get(uid).then(found, failed)

    def _settle(self, ending: int) -> None:
        self._timer = None
        self._write(ending)
        if self._latest > ending:
            self._timer = asyncio.get_running_loop().call_later(MOMENT, self._settle, self._latest)

    def _write(self, ending: int) -> None:
        try:
            self.store.put(SPACE, NAME, b"%d" % ending, time.time_ns() // 1000)
        except StoreError:
            pass  # it is closed: what was told last is told again


def outcome(result: ResultRecord) -> tuple[bytes | None, Failure | None]:
    """How a job ended, as the core says it: with a body, or with a failure."""
    if result.state == DONE:
        return result.body or b"", None
    return None, Failure(result.code or result.state, result.message, result.body)


def _is_told(name: bytes, dialect: str) -> bool:
    """Is such a client told again what it may have missed?"""
    resumption = RESUMED.get(dialect)
    return resumption is not None and not resumption.asks and _named(name)


def _named(name: bytes) -> bool:
    """Did the client choose its identity? RFC 37: what a router makes up begins with a zero byte."""
    return not name.startswith(b"\0")
