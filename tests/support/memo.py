"""MemoDB's protocol for tests: messages encoded and decoded with cbor2, not with our codec; the broker's side without
sockets; and contexts of a real NNG socket."""

from __future__ import annotations

import io
import itertools
from typing import Any, NamedTuple

import cbor2
import pynng

from polydomo.core.policy import BrokerLimits, Policy
from polydomo.dialects.memo.connection import SpTransport
from polydomo.dialects.memo.session import MemoContext, MemoSession
from polydomo.dialects.session import Outbox
from polydomo.errors import ProtocolError
from polydomo.services.management import ManagementService
from polydomo.wire.sp.connection import Connection
from polydomo.wire.sp.hello import REP
from tests.support import sp
from tests.support.core import make_broker

READY, JOB, RESULT, HEARTBEAT, DISCONNECT = range(1, 6)


class Said(NamedTuple):
    """A message: its kind, its ID, the fields after them, its payload."""

    kind: int
    id: bytes
    fields: list[Any]
    payload: bytes


def pack(kind: int, id: bytes = b"", *fields: object, payload: bytes = b"") -> bytes:
    return cbor2.dumps(["memo01", kind, id, *fields], canonical=True) + payload


def unpack(data: bytes) -> Said:
    stream = io.BytesIO(data)
    protocol, kind, id, *fields = cbor2.load(stream)
    assert protocol == "memo01"
    return Said(kind, id, fields, data[stream.tell() :])


def ready(*services: str) -> bytes:
    return pack(READY, b"", list(services))


def job(service: str, payload: bytes = b"", timeout: int = 10_000) -> bytes:
    return pack(JOB, b"", service, timeout, payload=payload)


def result(id: bytes, payload: bytes = b"", *leaving: bool) -> bytes:
    return pack(RESULT, id, *leaving, payload=payload)


def heartbeat(id: bytes) -> bytes:
    return pack(HEARTBEAT, id)


# Without sockets


class Desk:
    """A server in memory: its broker and its connections."""

    def __init__(
        self, *, bounds: BrokerLimits | None = None, policy: Policy | None = None, limit: int = 100_000
    ) -> None:
        self.broker = make_broker(bounds, policy)
        self.broker.advance(1000.0)
        self.outbox = Outbox()
        numbers = itertools.count(1)
        self.memo = MemoContext(self.broker, self.outbox, lambda size: next(numbers).to_bytes(size, "big"))
        self.memo.workers.set_heartbeat(1.0, 2.0)
        self.memo.wait = 5.0
        self.memo.grace = 3.0
        self.management = ManagementService(self.broker, "desk")
        self.limit = limit
        self.seats: list[Seat] = []
        self._numbers = itertools.count(1)

    def seat(self, host: str = "10.0.0.1", *, ipc: bool = False) -> Seat:
        """Connect a peer from a host."""
        seat = Seat(self, host, ipc)
        self.seats.append(seat)
        seat.feed(sp.REQ_HELLO)
        return seat

    def number(self) -> int:
        """Return an unused request ID."""
        return next(self._numbers)

    def settle(self) -> None:
        """End a turn: flush replies, and read connections again whose reading is no longer paused."""
        while True:
            while self.outbox.dirty or self.outbox.deferrable:
                self.outbox.flush()
            released = [seat for seat in self.seats if seat.connection.paused and not seat.stopped()]
            if not released:
                return
            for seat in released:
                seat.connection.resume()

    def wait(self, seconds: float) -> None:
        """Advance the time and fire due timers."""
        self.broker.advance(self.broker.now + seconds)
        self.broker.tick()
        self.settle()


class Seat(SpTransport):
    """One connection."""

    def __init__(self, desk: Desk, host: str, ipc: bool) -> None:
        self.desk = desk
        self.ipc = ipc
        self.raw = b""
        self.closed = False
        self.held = False
        self.complaints: list[str] = []
        self.errors: list[str] = []
        self.session = MemoSession(desk.memo, self, self._write, host, ipc)
        self.connection = Connection(self.session, REP, desk.limit, ipc)
        self.connection.start()

    # What the peer does

    def feed(self, data: bytes) -> None:
        if not self.closed:
            self.connection.receive(data)
        self.desk.settle()

    def send(self, content: bytes, number: int = 0) -> int:
        """Send a request and return its ID."""
        number = number or self.desk.number()
        self.feed(sp.request(number, content, ipc=self.ipc))
        return number

    def take(self) -> list[tuple[int, Said]]:
        """Return the messages received since the last call."""
        raw, self.raw = self.raw, b""
        return [(number, unpack(content)) for number, content in sp.split(raw, ipc=self.ipc)]

    def call(self, content: bytes, number: int = 0) -> Said:
        """Send a request and return its immediate and only reply."""
        assert not self.take()
        number = self.send(content, number)
        ((answered, said),) = self.take()
        assert answered == number
        return said

    def worker(self, *services: str) -> bytes:
        """Register a worker, which gets its ID with a HEARTBEAT and waits again; return the ID."""
        self.send(ready(*services))
        self.desk.wait(1.0)
        ((_, said),) = self.take()
        assert said.kind == HEARTBEAT
        self.send(heartbeat(said.id))
        return said.id

    def drop(self) -> None:
        """Break the connection."""
        if not self.closed:
            self.closed = True
            self.desk.seats.remove(self)
            self.session.lost()
            self.desk.settle()

    def stopped(self) -> bool:
        return self.held and not self.session.is_worker()

    # The session's side

    def transmit(self, data: bytes) -> None:
        assert data == sp.REP_HELLO

    def ready(self) -> None:
        pass

    def failed(self, error: ProtocolError) -> None:
        self.errors.append(error.message)
        self.drop()

    def pause(self) -> None:
        self.held = True
        if self.stopped():
            self.connection.pause()

    def resume(self) -> None:
        self.held = False

    def report_violation(self, reason: str) -> None:
        self.complaints.append(reason)

    def _write(self, data: bytes) -> None:
        assert not self.closed
        self.raw += data


# With NNG


class Contexts:
    """Contexts of one NNG socket, and so of one connection."""

    def __init__(self, endpoint: str, **options: Any) -> None:
        self.socket = pynng.Req0(**{"send_timeout": 20_000, "resend_time": 60_000} | options)
        self.socket.dial(endpoint, block=True)
        self._open: list[pynng.Context] = []

    def __call__(self, timeout: int = 20_000) -> Context:
        """Return a new context with its own timeout in milliseconds."""
        self.socket.recv_timeout = timeout
        context = self.socket.new_context()
        self._open.append(context)
        return Context(context)

    def __enter__(self) -> Contexts:
        return self

    def __exit__(self, *exc: object) -> None:
        for context in self._open:
            context.close()
        self.socket.close()


class Context:
    """One context: a client or a worker."""

    def __init__(self, context: pynng.Context) -> None:
        self.context = context
        self.id = b""  # of a registered worker

    def send(self, data: bytes) -> None:
        self.context.send(data)

    def receive(self) -> Said:
        return unpack(self.context.recv())

    def job(self, service: str, payload: bytes = b"", timeout: int = 10_000) -> None:
        self.send(job(service, payload, timeout))

    def ready(self, *services: str) -> None:
        self.send(ready(*services))

    def next(self) -> Said:
        """Return a worker's next JOB or DISCONNECT; HEARTBEATs are answered."""
        while True:
            said = self.receive()
            self.id = said.id
            if said.kind != HEARTBEAT:
                return said
            self.send(heartbeat(said.id))

    def result(self, payload: bytes = b"", *leaving: bool) -> None:
        self.send(result(self.id, payload, *leaving))
