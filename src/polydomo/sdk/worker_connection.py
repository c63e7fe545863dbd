"""One connection of a worker: a dialect's worker side, driven by a connection and a timer.

Begins with a registration and ends once, with a reason: the broker said goodbye or was silent for too long,
the connection broke, or we said goodbye ourselves. A new conversation needs a new connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol, cast

from polydomo.dialects.dcp.worker import DcpWorkerProtocol
from polydomo.dialects.nfp.worker import NfpWorkerProtocol
from polydomo.sdk import failures
from polydomo.sdk.clock import Timer
from polydomo.sdk.failures import Account
from polydomo.sdk.transport import PeerTransport
from polydomo.sdk.url import Address
from polydomo.wire.frames import Message

log = logging.getLogger("polydomo.sdk")


class Request(Protocol):
    """A job, in any dialect."""

    service: bytes
    address: bytes
    body: bytes


class WorkerProtocol(Protocol):
    """What the worker sides of all dialects have in common. A side is only given back its own requests."""

    interval: float
    liveness: int
    due: float
    lost: bool
    closed: bool

    def start(self, now: float) -> None: ...
    def partial(self, request: Any, body: bytes, now: float) -> None: ...
    def final(self, request: Any, body: bytes, now: float) -> None: ...
    def disconnect(self) -> None: ...
    def tick(self, now: float) -> None: ...
    def take_output(self) -> bytes: ...


class MessageWorkerProtocol(WorkerProtocol, Protocol):
    """One that is handed ZeroMQ's messages: all but MemoDB's."""

    def receive(self, message: Message, now: float) -> Request | None: ...


class JobPort(Protocol):
    """What a job's function can do besides answering, where its dialect has words for it (NFP)."""

    id: str  # the client's name for the job
    in_thread: bool  # the function cannot be interrupted: it must look by itself whether it is still wanted

    @property
    def resources(self) -> list[str]: ...
    @property
    def cancelled(self) -> bool: ...
    def event(self, kind: str, body: bytes) -> None: ...
    async def input(self) -> bytes: ...


class ReplySink(Protocol):
    """Where the answers of a job go."""

    @property
    def place(self) -> Address: ...
    @property
    def forwards(self) -> bool: ...
    @property
    def line(self) -> JobPort | None: ...
    def partial(self, request: Any, body: bytes) -> None: ...
    def final(self, request: Any, body: bytes) -> None: ...
    def failed(self, request: Any, account: Account) -> None: ...
    def forward(self, request: Any, service: bytes, body: bytes) -> None: ...


class WorkerConnection:
    """See the module's text. The connection may call it from the moment it is made."""

    def __init__(self, on_job: Callable[[WorkerConnection, Request], None]) -> None:
        self.dealer: PeerTransport
        self.side: WorkerProtocol
        self.asked = 0  # jobs so far
        self.heard = False  # the broker has said something other than goodbye
        self.dismissed = False  # it said goodbye: it is there, but began anew or wants us to
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._on_job = on_job
        self._timer: Timer | None = None
        self._confirmed: asyncio.Future[None] | None = None

    async def begin(self, dealer: PeerTransport, side: WorkerProtocol) -> None:
        """Register, and wait until the broker has dealt with it. (NFP's registration follows the answer to OPEN.)"""
        self.dealer = dealer
        self.side = side
        side.start(self._now())
        self._pump()
        if isinstance(side, NfpWorkerProtocol) and not side.ready and not self.over.done():
            self._confirmed = asyncio.get_running_loop().create_future()
            await self._confirmed
        await dealer.settled()
        if isinstance(side, DcpWorkerProtocol) and not side.confirmed:
            await self._echo(side)

    @property
    def place(self) -> Address:
        """With whom it is held."""
        return self.dealer.place

    @property
    def forwards(self) -> bool:
        """Can a job be handed over to another service?"""
        return isinstance(self.side, DcpWorkerProtocol)

    @property
    def line(self) -> JobPort | None:
        """MDP and DCP have no words for more."""
        return None

    def partial(self, request: Request, body: bytes) -> None:
        """One of several answers."""
        self.side.partial(request, body, self._now())
        self._pump()

    def final(self, request: Request, body: bytes) -> None:
        """The answer. Dropped if the conversation is over: the broker gave the job to another then."""
        self.side.final(request, body, self._now())
        self._pump()

    def failed(self, request: Request, account: Account) -> None:
        """There is no answer, and why: in an answer, for want of a word."""
        self.final(request, failures.body_of(account, self.dealer.native))

    def forward(self, request: Any, service: bytes, body: bytes) -> None:
        """Hand the job over."""
        if isinstance(self.side, DcpWorkerProtocol):
            self.side.forward(request, service, body, self._now())
            self._pump()

    def tell(self, speak: Callable[[NfpWorkerProtocol, float], None]) -> bool:
        """NFP's own words. False: nobody hears them any more."""
        side = self.side
        if self.over.done() or not isinstance(side, NfpWorkerProtocol) or not side.ready:
            return False
        speak(side, self._now())
        self._pump()
        return True

    async def _echo(self, side: DcpWorkerProtocol) -> None:
        """DCP confirms registrations, and says nothing of those it refuses."""
        self._confirmed = asyncio.get_running_loop().create_future()
        try:
            async with self.dealer.clock.timeout(side.interval):
                await self._confirmed
        except TimeoutError:
            names = ", ".join(name.decode(errors="replace") for name in side.unconfirmed)
            log.warning("%s: the broker did not confirm %s", self.dealer.place, names)

    def finish(self, reason: str) -> None:
        """Say goodbye and close."""
        if not self.over.done():
            self.side.disconnect()
            self.dealer.send(self.side.take_output())
            self._end(reason)

    def received(self, message: Message) -> None:
        """From the connection."""
        if self.over.done():
            return
        self._heard_of(cast(MessageWorkerProtocol, self.side).receive(message, self._now()))

    def lost(self, reason: str) -> None:
        """From the connection: it broke."""
        self._end(reason)

    def _heard_of(self, request: Request | None) -> None:
        """The broker has said something, perhaps a job."""
        self.heard = self.heard or not self.side.closed
        self._pump()
        if request is not None:
            self.asked += 1
            self._on_job(self, request)

    def _now(self) -> float:
        return self.dealer.clock.time()

    def _ring(self) -> None:
        self._timer = None
        if not self.over.done():
            self.side.tick(self._now())
            self._pump()

    def _pump(self) -> None:
        """After everything the side was told: send what it has to say, and see whether it is over."""
        if self.over.done():
            return
        side = self.side
        data = side.take_output()
        if data:
            self.dealer.send(data)
        if self._confirmed is not None and _is_confirmed(side):
            self._settle()
        if side.closed:
            self.dismissed = True
            why = side.farewell if isinstance(side, NfpWorkerProtocol) else ""
            self._end(f"the broker said DISCONNECT{': ' if why else ''}{why}")
        elif side.lost:
            self._end(f"the broker was silent for {side.interval * side.liveness:g} s")
        elif self._timer is None:
            self._timer = self.dealer.clock.call_at(side.due, self._ring)

    def _end(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.over.done():
            self.over.set_result(reason)
        self._settle()
        self.dealer.close()

    def _settle(self) -> None:
        if self._confirmed is not None and not self._confirmed.done():
            self._confirmed.set_result(None)


def _is_confirmed(side: WorkerProtocol) -> bool:
    if isinstance(side, DcpWorkerProtocol):
        return side.confirmed
    return isinstance(side, NfpWorkerProtocol) and side.ready
