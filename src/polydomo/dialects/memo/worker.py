"""A worker's side of memo01, without a socket and without a clock: time is handed in.

A worker does one job at a time, so one that does several is several workers, each in a context of its own: READY, then
a JOB or a HEARTBEAT for an answer, to which a RESULT or a HEARTBEAT is the next request, over and over. All share one
connection. A context outlives it: what was not answered is sent again on the next one (`resume`), under the same
request ID and the same worker ID.

DISCONNECT means that the broker does not know us, or not so: that context begins anew with READY (memo01 §Worker). To
a RESULT that said "disconnecting" it is the last word.

What is to be sent collects here; the owner takes it with `take_output` after every call.
"""

from __future__ import annotations

from typing import Final

from polydomo.dialects.memo import messages
from polydomo.dialects.memo.messages import DISCONNECT, HEARTBEAT, JOB
from polydomo.errors import ProtocolError
from polydomo.wire.sp import requests

# Seconds after which an unanswered request is sent again: NNG's own default.
RESEND: Final = 60.0

# Seconds between two looks at what is unanswered, and before a READY is repeated that was answered with DISCONNECT.
LOOK: Final = 1.0


class MemoRequest:
    """A job. `context` says which of our workers has it."""

    __slots__ = ("address", "body", "context", "service", "timeout")

    def __init__(self, context: int, service: bytes, address: bytes, timeout: int, body: bytes) -> None:
        self.context = context
        self.service = service
        self.address = address  # a name for people: the worker's ID and a number
        self.timeout = timeout  # in milliseconds
        self.body = body  # canonical (wire.frames)


class MemoExchange:
    """One worker: it waits for the answer to `content`, or holds a job."""

    __slots__ = ("content", "done", "held", "id", "jobs", "request", "sent", "unready")

    def __init__(self) -> None:
        self.id = b""  # the worker's, given by the broker
        self.request = b""  # the ID of the request under way
        self.content = b""  # and what it says; empty: none is under way
        self.sent = 0.0
        self.held: MemoRequest | None = None
        self.jobs = 0
        self.unready = True  # READY is to be sent, or was and has no good answer yet
        self.done = False  # it has said that it leaves


class MemoWorkerProtocol:
    """See the module's text. `first`: where request IDs begin."""

    def __init__(self, services: list[bytes], contexts: int, first: int, resend: float = RESEND) -> None:
        self.interval = LOOK
        self.liveness = 1
        self.closed = False  # nothing more may be sent
        self.lost = False  # silence is for the connection to notice
        self.invalid = 0  # messages that no broker should have sent
        self.due = 0.0  # when to call `tick` next
        self.ipc = False
        self._ready = messages.ready(services)
        self._resend = resend
        self._number = first
        self._contexts = [MemoExchange() for _ in range(contexts)]
        self._waiting: dict[bytes, int] = {}  # contexts by the request under way
        self._out: list[bytes] = []

    def start(self, now: float) -> None:
        """READY, of each context."""
        for number in range(len(self._contexts)):
            self._send(number, self._ready, now)
        self.due = now + LOOK

    def resume(self, ipc: bool, now: float) -> None:
        """On a new connection: all that is unanswered again."""
        self.ipc = ipc
        self._out = []
        for context in self._contexts:
            if context.content:
                self._repeat(context, now)

    def answer(self, stack: bytes, data: bytes, start: int, end: int, now: float) -> MemoRequest | None:
        """A message of the broker; gives a job if it is one. To a request that is over it is dropped."""
        number = self._waiting.get(stack, -1)
        if number < 0 or self.closed:
            return None
        try:
            header = messages.read(data, start, end)
        except ProtocolError:
            self.invalid += 1
            return None
        context = self._contexts[number]
        if header.kind == JOB:
            self._answered(context, header.id)
            context.jobs += 1
            address = b"%b/%d" % (header.id.hex().encode(), context.jobs)
            body = messages.body_of(data[header.end : end])
            context.held = MemoRequest(number, header.service, address, header.timeout, body)
            return context.held
        if header.kind == HEARTBEAT:
            self._answered(context, header.id)
            self._send(number, messages.heartbeat(context.id), now)
        elif header.kind == DISCONNECT:
            again = not context.unready
            self._answered(context, b"")
            context.unready = True
            if again and not context.done:  # otherwise with the next `tick`: it was READY that was refused
                self._send(number, self._ready, now)
        else:
            self.invalid += 1
        return None

    def partial(self, request: MemoRequest, body: bytes, now: float) -> None:
        """memo01 has one RESULT per JOB: there is nothing to send, and nobody who could be told."""

    def final(self, request: MemoRequest, body: bytes, now: float, leaving: bool = False) -> None:
        """The answer; the broker may send the next job, unless we are `leaving`."""
        context = self._contexts[request.context]
        if context.held is request and not self.closed:
            context.held = None
            context.done = leaving
            self._send(request.context, messages.result(context.id, leaving) + messages.payload_of(body), now)

    def disconnect(self) -> None:
        """memo01 has no goodbye but a RESULT that says so, or closing the connection."""
        self.closed = True

    def tick(self, now: float) -> None:
        """Called at `due`: READY where it was refused before, and again what has had no answer for long."""
        for number, context in enumerate(self._contexts):
            if context.content:
                if now >= context.sent + self._resend:
                    self._repeat(context, now)
            elif context.unready and context.held is None and not context.done:
                self._send(number, self._ready, now)
        self.due = now + LOOK

    def take_output(self) -> bytes:
        """What is to be sent now, as wire bytes."""
        out = self._out
        if not out:
            return b""
        self._out = []
        return out[0] if len(out) == 1 else b"".join(out)

    def _send(self, number: int, content: bytes, now: float) -> None:
        """A new request."""
        self._number += 1
        context = self._contexts[number]
        context.request = requests.request_id(self._number)
        context.content = content
        self._waiting[context.request] = number
        self._repeat(context, now)

    def _repeat(self, context: MemoExchange, now: float) -> None:
        context.sent = now
        self._out.append(requests.encode(context.request, context.content, self.ipc))

    def _answered(self, context: MemoExchange, id: bytes) -> None:
        del self._waiting[context.request]
        context.content = b""
        context.id = id
        context.unready = False
