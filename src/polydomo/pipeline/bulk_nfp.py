"""Rows as durable jobs over NFP.

The id of a row does not depend on its sender or on time, and the same id means the same job to the broker. So after any
loss (the connection, the broker, this process) the row is sent again and reattaches to its job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import time
from typing import Any, Final
from uuid import uuid4

import msgspec

from polydomo._version import __version__
from polydomo.core import failure as reasons
from polydomo.dialects.nfp.client import NfpAnswer, NfpClientProtocol
from polydomo.dialects.nfp.messages import OPEN, RESPONSE
from polydomo.errors import Refused, Unreachable
from polydomo.pipeline.bulk_carrier import (
    DONE,
    LATER,
    LOOK,
    NOT_KEPT,
    REFUSED,
    TIMEOUT,
    UNREACHABLE,
    Carrier,
    End,
    Errand,
    failure,
)
from polydomo.sdk.channel_nfp import failure_info
from polydomo.sdk.client import CATALOGUE, PRESENCE
from polydomo.sdk.connection import Dealer
from polydomo.sdk.failover import Backoff, EndpointSelector
from polydomo.sdk.transport import ConnectionLost
from polydomo.wire.frames import Message, frame, split

# Seconds for a connected broker to answer the OPEN message.
HELLO: Final = 5.0

_ANY: Final = b"any"


class _Flight:
    """A job in flight, for one row or for several identical ones."""

    __slots__ = ("backoff", "due", "message", "on", "rows", "sent")

    def __init__(self, message: bytes, row: Any, due: float) -> None:
        self.message = message
        self.rows = [row]
        self.due = due
        self.sent = time()
        self.on: Dealer | None = None  # the connection on which the reply is expected
        self.backoff: Backoff | None = None

    def lands(self) -> None:
        """Stop expecting a reply."""
        if self.on is not None:
            self.on.expect(-1)
            self.on = None


class NfpCarrier(Carrier):
    """A carrier over NFP. With `push` a row ends when its job ends; otherwise when the broker has stored the job."""

    def __init__(self, errand: Errand, ended: Callable[[Any, End], None], *, push: bool = True) -> None:
        super().__init__(errand, ended)
        self._push = push
        self._service = errand.service.encode()
        self._side = NfpClientProtocol()
        self._roster = EndpointSelector(errand.url)
        self._clock = self._roster.clock
        self._dealer: Dealer | None = None
        self._flights: dict[bytes, _Flight] = {}
        self._questions: dict[bytes, asyncio.Future[NfpAnswer]] = {}
        self._hello: asyncio.Future[NfpAnswer] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._is_ready = False
        self._doubting = False

    async def ready(self) -> None:
        if self._is_ready or self.over is not None:
            return
        await self._connect()
        if self.over is None and await self._keeps() and (not self._push or await self._is_offered()):
            self._is_ready = True
            self._start(self._look())

    async def ask(self, service: str, body: bytes) -> bytes:
        """Query the broker itself and return the canonical body of its reply. Raise ConnectionLost if the connection
        fails."""
        dealer = self._dealer
        if dealer is None:
            raise ConnectionLost("not connected")
        uuid = uuid4().hex.encode()
        question: asyncio.Future[NfpAnswer] = asyncio.get_running_loop().create_future()
        self._questions[uuid] = question
        dealer.send(self._side.post(service.encode(), _ANY, uuid, body))
        dealer.expect(1)
        try:
            answer = await question
        finally:
            dealer.expect(-1)
            self._questions.pop(uuid, None)
        if answer.status != 200:
            account = failure_info(answer)
            raise Refused(account.message, hint="")
        return answer.body

    async def ask_catalogue(self, task: str, **kwargs: Any) -> bytes:
        """Call one of the broker's tasks and return the first frame of the reply."""
        question = msgspec.json.encode({"task": task, "kwargs": kwargs})
        return split(await self.ask(CATALOGUE, frame(question)))[0]

    async def close(self) -> None:
        self._closed = True
        self._roster.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._dealer is not None:
            self._dealer.close()
        self._unanswered("the connection was closed")

    # Rows

    def _full(self) -> bool:
        dealer = self._dealer
        return self.flying >= self.errand.window or dealer is None or dealer.congested

    def _send(self, row: Any, uid: str, body: bytes, service: bytes | None) -> None:
        uuid = uid.encode()
        message = self._side.post(service or self._service, _ANY, uuid, body)
        flight = self._flights.get(uuid)
        if flight is not None and flight.message == message:
            flight.rows.append(row)
            return
        if flight is not None:  # the broker would refuse both rows
            said = "another row with this key has another body"
            self._end(row, End(REFUSED, reasons.DUPLICATE, said))
            return
        self._flights[uuid] = flight = _Flight(message, row, self._due())
        self._post(flight)

    def _post(self, flight: _Flight) -> None:
        dealer = self._dealer
        if dealer is not None:  # otherwise it is sent on the next connection
            dealer.send(flight.message)
            dealer.expect(1)
            flight.on = dealer

    def _due(self) -> float:
        limit = self.errand.timeout
        return float("inf") if limit is None else self._clock.time() + limit

    def _land(self, uuid: bytes, end: End) -> None:
        flight = self._flights.pop(uuid)
        flight.lands()
        whole = end._replace(sent=flight.sent, ended=time())
        for row in flight.rows:
            self._end(row, whole)

    def _received(self, message: Message) -> None:
        answer = self._side.receive(message)
        if answer is None:
            return
        if answer.command == OPEN:
            if self._hello is not None and not self._hello.done():
                self._hello.set_result(answer)
            return
        uuid = answer.uuid
        status = answer.status
        if uuid in self._flights:
            if status == 200:
                if answer.command == RESPONSE:
                    self._land(uuid, End(DONE, body=answer.body))
            elif status >= 400:
                self._failed(uuid, answer)
            elif status == 202 and not self._push:
                self._land(uuid, End(DONE))
        elif uuid in self._questions and not self._questions[uuid].done() and status != 202:
            self._questions[uuid].set_result(answer)

    def _failed(self, uuid: bytes, answer: NfpAnswer) -> None:
        account = failure_info(answer)
        flight = self._flights[uuid]
        if account.reason in LATER and self._clock.time() < flight.due:
            if flight.backoff is None:
                flight.backoff = Backoff()
            if account.reason == reasons.DRAINING and len(self.errand.url.addresses) > 1:
                self._elsewhere()
                return
            flight.lands()
            self._start(self._again(uuid, flight))
            return
        self._land(uuid, failure(account.reason, account.message, account.kind))

    async def _again(self, uuid: bytes, flight: _Flight) -> None:
        assert flight.backoff is not None
        dealer = self._dealer
        await self._clock.sleep(flight.backoff.pause())
        if self._flights.get(uuid) is flight and self._dealer is dealer:
            self._post(flight)

    # The connection

    async def _connect(self) -> None:
        """Connect to a broker that answers OPEN and resend all jobs in flight, or set `over`."""
        end = self._clock.time() + self.errand.patience
        why = ""
        while not self._closed:
            try:
                left = max(end - self._clock.time(), 0.1)
                dealer = await self._roster.connect(self._received, self._lost, timeout=left)
            except Unreachable as error:
                why = error.message
                break
            try:
                await self._open(dealer)
            except (ConnectionLost, TimeoutError) as error:
                why = str(error) or f"{dealer.address} did not answer OPEN: does it speak NFP?"
                dealer.close()
                self._roster.failed(dealer.address)
                if self._clock.time() < end:
                    await self._clock.sleep(LOOK)
                    continue
                break
            self._dealer = dealer
            for flight in self._flights.values():
                flight.due = self._due()
                self._post(flight)
            self._make_room()
            return
        patience = self.errand.patience
        self._give_up(End(UNREACHABLE, UNREACHABLE, f"no broker for {patience:g} s: {why}"))

    async def _open(self, dealer: Dealer) -> None:
        hello: dict[str, Any] = {"version": __version__, "push": self._push, "name": self.errand.name}
        self._hello = asyncio.get_running_loop().create_future()
        dealer.send(self._side.open(msgspec.json.encode(hello)))
        async with self._clock.timeout(HELLO):
            while not self._hello.done():
                if dealer.closed:
                    raise ConnectionLost("the broker closed the connection")
                await asyncio.wait({self._hello}, timeout=LOOK)

    def _lost(self, reason: str) -> None:
        dealer, self._dealer = self._dealer, None
        self._unanswered(reason)
        if dealer is None or self._closed:
            return
        self._roster.failed(dealer.address)
        self._start(self._connect())

    def _unanswered(self, reason: str) -> None:
        """Fail pending queries. Unlike rows they are not sent again."""
        for question in self._questions.values():
            if not question.done():
                question.set_exception(ConnectionLost(reason))

    def _elsewhere(self) -> None:
        """Leave a draining broker: another one may accept what it refuses."""
        dealer = self._dealer
        if dealer is not None:
            dealer.close()
            self._lost("the broker is stopping")

    # Checks

    async def _keeps(self) -> bool:
        """Check that the broker stores jobs: without a store it cannot keep the guarantees made here."""
        try:
            await self.ask_catalogue("show_stored_jobs", limit=1)
        except Refused as refused:
            said = f"jobs would not be durable: {refused.message}"
            self._give_up(End(REFUSED, NOT_KEPT, f"{said}; or call with durable=False"))
            return False
        except ConnectionLost:
            pass  # the connection is restored; the broker had its store a moment ago
        return True

    async def _is_offered(self) -> bool:
        """Wait up to `patience` for a worker that offers the service."""
        end = self._clock.time() + self.errand.patience
        while self.over is None:
            try:
                if split(await self.ask(PRESENCE, frame(self._service))) == [b"200"]:
                    return True
            except ConnectionLost:  # reconnecting has its own patience
                end = self._clock.time() + self.errand.patience
            except Refused:
                return True  # the broker does not tell
            if self._clock.time() >= end:
                self._give_up(self._nobody())
            else:
                await self._clock.sleep(LOOK)
        return False

    async def _look(self) -> None:
        """End rows that time out. Time without a broker does not count."""
        while True:
            await self._clock.sleep(LOOK)
            if self._dealer is None:
                continue
            now = self._clock.time()
            late = [uuid for uuid, flight in self._flights.items() if flight.due <= now]
            for uuid in late:
                said = f"no reply within {self.errand.timeout:g} s; the job may still complete"
                self._land(uuid, End(TIMEOUT, TIMEOUT, said))
            if late and self._push and not self._doubting:
                self._doubting = True
                self._start(self._doubt())

    async def _doubt(self) -> None:
        try:
            await self._is_offered()
        finally:
            self._doubting = False

    def _give_up(self, end: End) -> None:
        if self.over is None:
            self.over = end
            for uuid in list(self._flights):
                self._land(uuid, end)
            self._make_room()

    def _start(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
