"""A worker's place among WMP's managers: a connection to each of them at once, and slots that they share.

Managers that cannot be reached are looked for, beside those that are there. A job goes on when its manager is lost,
and nobody hears of its end then: the manager gives it to another.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import msgspec

from polydomo.core.job import CANCELLED
from polydomo.dialects.session import NAME_TAKEN
from polydomo.dialects.wmp.messages import CANCELLED as STATUS_CANCELLED
from polydomo.dialects.wmp.messages import FAILED as STATUS_FAILED
from polydomo.dialects.wmp.worker import NEVER, WmpRequest, WmpWorkerProtocol
from polydomo.errors import JobFailed, NameTaken
from polydomo.sdk.clock import Timer
from polydomo.sdk.connection import Dealer
from polydomo.sdk.failures import Account
from polydomo.sdk.naming import Naming
from polydomo.sdk.reconnect import Above, keep
from polydomo.sdk.url import Address
from polydomo.sdk.worker_connection import JobPort
from polydomo.sdk.worker_session import WorkerSession
from polydomo.wire.frames import Message, frame


class WmpJob(JobPort):
    """One job in hand: where its answer goes (`Outlet`), and what its function can do beside answering."""

    def __init__(self, station: WmpWorkerSession, request: WmpRequest, place: Address) -> None:
        self.request = request
        self.place = place
        self.id = request.job.decode(errors="replace")
        self.in_thread = False
        self.forwards = False
        self.task: asyncio.Task[None] | None = None
        self.answered = False
        self._station = station

    @property
    def line(self) -> JobPort | None:
        return self

    @property
    def resources(self) -> list[str]:
        return []

    @property
    def cancelled(self) -> bool:
        return self.request.cancelled

    def partial(self, request: Any, body: bytes) -> None:
        self._station.speak(lambda side, now: side.partial(self.request, body, now))

    def event(self, kind: str, body: bytes) -> None:
        self._station.speak(lambda side, now: side.event(self.request, kind, body, now))

    def final(self, request: Any, body: bytes) -> None:
        self.answered = True
        self._station.speak(lambda side, now: side.final(self.request, body, now))

    def failed(self, request: Any, account: Account) -> None:
        """The account in the headers, and a plain body for clients whose protocol has no word for failure."""
        self.answered = True
        plain = frame(msgspec.json.encode({"error": account.message or account.kind}))
        status = STATUS_CANCELLED if account.reason == CANCELLED else STATUS_FAILED
        told = msgspec.to_builtins(account)
        self._station.speak(lambda side, now: side.failed(self.request, status, told, plain, now))

    def forward(self, request: Any, service: bytes, body: bytes) -> None:
        raise NotImplementedError("WMP hands no job over")

    async def input(self) -> bytes:
        raise JobFailed("WMP has no way to add to a running job", reason="not-supported")

    def cancel(self) -> None:
        """From the manager. A function in a thread is only told."""
        if self.task is not None and not self.in_thread:
            self.task.cancel()


class WmpWorkerSession(WorkerSession, Above):
    """See the module's text."""

    def furnish(self, roles: list[bytes], slots: int, labels: dict[str, object], naming: Naming) -> None:
        """What it offers; `naming` has what managers know it by."""
        self.side = WmpWorkerProtocol(roles, random.random, slots, labels)
        self.naming = naming
        self.identity = naming.name.encode()
        self.properties = naming.properties
        self._links: dict[int, Dealer] = {}
        self._errands: dict[bytes, WmpJob] = {}
        self._timer: Timer | None = None
        self._timer_at = NEVER
        self._over = asyncio.Event()
        self._trouble: NameTaken | None = None

    async def run(self) -> None:
        """Until `stop`, and until everything in hand has ended."""
        self._task = asyncio.current_task()
        keeping = [
            asyncio.create_task(keep(number, place, self, self.clock))
            for number, place in enumerate(self._roster.places)
        ]
        try:
            await self._over.wait()
        finally:
            for task in keeping:
                task.cancel()
            for job in self._jobs:
                job.cancel()
            await asyncio.gather(*keeping, *self._jobs, return_exceptions=True)
            if self._timer is not None:
                self._timer.cancel()
            self.registered.clear()
        if self._trouble is not None:
            raise self._trouble

    def stop(self) -> None:
        """Finish the jobs in hand, end."""
        self._stopping = True
        self.speak(lambda side, now: side.stop(now))
        if not self._jobs:
            self._over.set()

    def abandon(self) -> None:
        """Do not wait for the jobs in hand any longer."""
        self._stopping = True
        self._over.set()

    def hang_up(self, reason: str) -> None:
        """End all connections; new ones are made."""
        for dealer in list(self._links.values()):
            dealer.abort(reason)

    def reconsider(self) -> None:
        """All managers are ours: none is better than another."""

    def speak(self, say: Callable[[WmpWorkerProtocol, float], None]) -> None:
        """Tell the side something, and send what it has to say."""
        say(self.side, self.clock.time())
        self._pump()

    # Its uplinks' side

    def up(self, number: int, dealer: Dealer) -> None:
        self._links[number] = dealer
        self.naming.accepted()
        self.speak(lambda side, now: side.connected(number, now))

    def settled(self, number: int) -> None:
        self.registered.set()
        self._notices.registered(number, self._roster.places[number])

    def down(self, number: int, reason: str) -> None:
        del self._links[number]
        self.speak(lambda side, now: side.disconnected(number, now))
        if not self._links:
            self.registered.clear()
        if not self._over.is_set():
            self._notices.lost(number, self._roster.places[number], reason)

    def unreachable(self, number: int, reason: str) -> None:
        if NAME_TAKEN not in reason:
            self._notices.unreachable(f"{self._roster.places[number]}: {reason}")
            return
        try:
            self.naming.refused(self.clock.time())
        except NameTaken as error:
            self._trouble = error
            self._over.set()
        self.identity = self.naming.name.encode()

    def said(self, number: int, message: Message) -> None:
        request = self.side.receive(number, message, self.clock.time())
        self._pump()
        if request is None:
            return
        if request.cancelled:
            self._errands[request.address].cancel()
            return
        errand = self._errands[request.address] = WmpJob(self, request, self._links[number].place)
        job = errand.task = asyncio.create_task(self._errand(errand))
        self._jobs[job] = None
        job.add_done_callback(self._job_ended)

    # Inside

    async def _errand(self, errand: WmpJob) -> None:
        try:
            await self._perform(errand, errand.request)
        except asyncio.CancelledError:
            if not errand.cancelled:
                raise
        finally:
            del self._errands[errand.request.address]
        if not errand.answered:
            errand.failed(errand.request, Account(CANCELLED, "the job was cancelled"))

    def _say_goodbye(self) -> None:
        self._over.set()

    def _pump(self) -> None:
        for index, data in self.side.take_output():
            dealer = self._links.get(index)
            if dealer is not None:
                dealer.send(data)
        due = self.side.due
        if due < self._timer_at or (self._timer is None and due < NEVER):
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            self._timer = self.clock.call_at(due, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._timer_at = NEVER
        now = self.clock.time()
        if self.side.due <= now:
            self.side.tick(now)
        self._pump()
