"""One connection of a worker: a dialect's worker protocol, driven by a transport and a timer.

It begins with a registration and ends once, with a reason: the broker disconnected the worker or was silent for too
long, the transport broke, or the worker disconnected. Registering again needs a new connection.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, cast

from polydomo.dialects.dcp.worker import DcpWorkerProtocol
from polydomo.dialects.nfp.worker import NfpWorkerProtocol
from polydomo.dialects.worker_protocol import WorkerProtocol
from polydomo.sdk import failures
from polydomo.sdk.clock import TimerHandle
from polydomo.sdk.failures import FailureInfo
from polydomo.sdk.transport import PeerTransport, release
from polydomo.sdk.url import Address
from polydomo.wire.frames import Message

log = logging.getLogger("polydomo.sdk")


class WorkerRequest(Protocol):
    """A job as it arrives, in any dialect."""

    service: bytes
    address: bytes
    body: bytes


class MessageWorkerProtocol(Protocol):
    """A worker protocol over ZeroMQ messages: all but MemoDB's."""

    def receive(self, message: Message, now: float) -> WorkerRequest | None: ...


class ReplySink(Protocol):
    """The destination of a job's replies."""

    @property
    def address(self) -> Address: ...
    def partial(self, request: Any, body: bytes) -> None: ...
    def final(self, request: Any, body: bytes) -> None: ...
    def failed(self, request: Any, info: FailureInfo) -> None: ...
    def forward(self, request: Any, service: bytes, body: bytes) -> bool: ...


class RunningJob(ABC):
    """A `ReplySink` of one job, in dialects where a running job has events, input or cancellation (NFP and WMP)."""

    def __init__(self, uuid: bytes) -> None:
        self.id = uuid.decode(errors="replace")  # the client's
        self.in_thread = False  # the function cannot be interrupted and must check for cancellation itself
        self.task: asyncio.Task[None] | None = None

    @property
    def resources(self) -> list[str]:
        return []

    @property
    @abstractmethod
    def cancelled(self) -> bool:
        """Return whether the job was cancelled."""

    @abstractmethod
    def event(self, kind: str, body: bytes) -> None:
        """Send a progress event."""

    @abstractmethod
    async def input(self) -> bytes:
        """Wait for the client's next input and return its body."""

    def forward(self, request: Any, service: bytes, body: bytes) -> bool:
        return False

    def interrupt(self) -> None:
        """Cancel the function, unless it runs in a thread."""
        if self.task is not None and not self.in_thread:
            self.task.cancel()


class WorkerConnection:
    """A registered connection. The transport may call `received` and `lost` before `begin`."""

    def __init__(self, on_job: Callable[[WorkerConnection, WorkerRequest], None]) -> None:
        self.transport: PeerTransport
        self.protocol: WorkerProtocol
        self.job_count = 0  # received so far
        self.heard = False  # the broker has sent something other than a disconnect
        self.dismissed = (
            False  # the broker disconnected the worker: it is alive and expects a new registration
        )
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._on_job = on_job
        self._timer: TimerHandle | None = None
        self._confirmed: asyncio.Future[None] | None = None

    async def begin(self, transport: PeerTransport, protocol: WorkerProtocol) -> None:
        """Register, and wait until the broker has processed it. (NFP's registration follows the answer to OPEN.)"""
        self.transport = transport
        self.protocol = protocol
        protocol.start(self._now())
        self._pump()
        if isinstance(protocol, NfpWorkerProtocol) and not protocol.ready and not self.over.done():
            self._confirmed = asyncio.get_running_loop().create_future()
            await self._confirmed
        await transport.settled()
        if isinstance(protocol, DcpWorkerProtocol) and not protocol.confirmed and not self.over.done():
            await self._wait_for_confirmation(protocol)

    @property
    def address(self) -> Address:
        """The broker's address."""
        return self.transport.address

    def partial(self, request: WorkerRequest, body: bytes) -> None:
        """Send a partial reply."""
        self.protocol.partial(request, body, self._now())
        self._pump()

    def final(self, request: WorkerRequest, body: bytes) -> None:
        """Send the final reply. Dropped after the end: the broker has given the job to another worker by then."""
        self.protocol.final(request, body, self._now())
        self._pump()

    def failed(self, request: WorkerRequest, info: FailureInfo) -> None:
        """Report a failure, in a final reply because the dialect has no failures."""
        self.final(request, failures.body_of(info, self.transport.native))

    def forward(self, request: Any, service: bytes, body: bytes) -> bool:
        """Hand the job over to another service. Return False if the dialect cannot: only DCP can."""
        if not isinstance(self.protocol, DcpWorkerProtocol):
            return False
        self.protocol.forward(request, service, body, self._now())
        self._pump()
        return True

    def send_nfp(self, send: Callable[[NfpWorkerProtocol, float], None]) -> bool:
        """Let `send` make an NFP command and send it. Return False if the connection is over or not ready."""
        protocol = self.protocol
        if self.over.done() or not isinstance(protocol, NfpWorkerProtocol) or not protocol.ready:
            return False
        send(protocol, self._now())
        self._pump()
        return True

    async def _wait_for_confirmation(self, protocol: DcpWorkerProtocol) -> None:
        """Wait for DCP's confirmation. DCP confirms registrations and is silent about those that it refuses."""
        self._confirmed = asyncio.get_running_loop().create_future()
        try:
            async with self.transport.clock.timeout(protocol.interval):
                await self._confirmed
        except TimeoutError:
            names = ", ".join(name.decode(errors="replace") for name in protocol.unconfirmed)
            log.warning("%s: the broker did not confirm %s", self.address, names)

    def finish(self, reason: str) -> None:
        """Disconnect from the broker and close."""
        if not self.over.done():
            self.protocol.disconnect()
            self.transport.send(self.protocol.take_output())
            self._end(reason)

    def received(self, message: Message) -> None:
        """Process a message from the transport."""
        if not self.over.done():
            self._handle(cast(MessageWorkerProtocol, self.protocol).receive(message, self._now()))

    def lost(self, reason: str) -> None:
        """End the connection because its transport broke."""
        self._end(reason)

    def _handle(self, request: WorkerRequest | None) -> None:
        """Continue after the broker has sent something, perhaps a job."""
        self.heard = self.heard or not self.protocol.closed
        self._pump()
        if request is not None:
            self.job_count += 1
            self._on_job(self, request)

    def _now(self) -> float:
        return self.transport.clock.time()

    def _tick(self) -> None:
        self._timer = None
        if not self.over.done():
            self.protocol.tick(self._now())
            self._pump()

    def _pump(self) -> None:
        """Send the protocol's output and check its state; called after every input to the protocol."""
        if self.over.done():
            return
        protocol = self.protocol
        data = protocol.take_output()
        if data:
            self.transport.send(data)
        if self._confirmed is not None and _is_confirmed(protocol):
            release(self._confirmed)
        if protocol.closed:
            self.dismissed = True
            reason = protocol.farewell
            self._end(f"the broker said DISCONNECT{': ' if reason else ''}{reason}")
        elif protocol.lost:
            self._end(f"the broker was silent for {protocol.interval * protocol.liveness:g} s")
        elif self._timer is None:
            self._timer = self.transport.clock.call_at(protocol.due, self._tick)

    def _end(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.over.done():
            self.over.set_result(reason)
        if self._confirmed is not None:
            release(self._confirmed)
        self.transport.close()


def _is_confirmed(protocol: WorkerProtocol) -> bool:
    if isinstance(protocol, DcpWorkerProtocol):
        return protocol.confirmed
    return isinstance(protocol, NfpWorkerProtocol) and protocol.ready
