"""Worker side of memo01, without a socket and without a clock: callers pass the time.

A memo01 worker executes one job at a time, so a process that executes several is several workers. Each has a context:
it sends READY, gets a JOB or a HEARTBEAT in reply, sends a RESULT or a HEARTBEAT as its next request, and so on. All
contexts share one connection and outlive it: on the next one, `resume` repeats every unanswered request under the same
request ID and the same worker ID.

DISCONNECT means that the broker does not know the worker, or is out of step with it: the context starts again with
READY (memo01 §Worker). In reply to a RESULT with "disconnecting" it only ends the context.
"""

from __future__ import annotations

from typing import Final

from polydomo.dialects.memo import messages
from polydomo.dialects.memo.messages import DISCONNECT, HEARTBEAT, JOB
from polydomo.dialects.worker_protocol import WorkerProtocol
from polydomo.errors import ProtocolError
from polydomo.wire.sp import requests

# Seconds after which an unanswered request is repeated: NNG's default.
RESEND: Final = 60.0

# Seconds between checks for unanswered requests, and before a refused READY is repeated.
CHECK_INTERVAL: Final = 1.0


class MemoRequest:
    """A job in the hands of the context number `context`."""

    __slots__ = ("address", "body", "context", "service", "timeout")

    def __init__(self, context: int, service: bytes, address: bytes, timeout: int, body: bytes) -> None:
        self.context = context
        self.service = service
        self.address = address  # for log lines: the worker's ID and a number
        self.timeout = timeout  # in milliseconds
        self.body = body  # canonical (wire.frames)


class MemoExchange:
    """Context of one worker: it waits for the reply to `content`, or holds a job."""

    __slots__ = ("content", "done", "held", "id", "jobs", "request", "sent", "unready")

    def __init__(self) -> None:
        self.id = b""  # the worker's, assigned by the broker
        self.request = b""  # ID of the open request
        self.content = b""  # the open request; empty: none is open
        self.sent = 0.0
        self.held: MemoRequest | None = None
        self.jobs = 0
        self.unready = True  # READY must be sent, or was sent and not accepted yet
        self.done = False  # it has announced that it leaves


class MemoWorkerProtocol(WorkerProtocol):
    """All workers of one process at one broker. `first` is where request IDs begin."""

    def __init__(self, services: list[bytes], contexts: int, first: int) -> None:
        super().__init__(CHECK_INTERVAL, liveness=1)  # never `lost`: the connection detects a silent broker
        self.ipc = False
        self._ready = messages.ready(services)
        self._number = first
        self._contexts = [MemoExchange() for _ in range(contexts)]
        self._waiting: dict[bytes, int] = {}  # contexts by their open request

    def start(self, now: float) -> None:
        """Send READY for each context."""
        for number in range(len(self._contexts)):
            self._send(number, self._ready, now)
        self.due = now + CHECK_INTERVAL

    def resume(self, ipc: bool, now: float) -> None:
        """Repeat all unanswered requests on a new connection."""
        self.ipc = ipc
        self._out = []
        for context in self._contexts:
            if context.content:
                self._transmit(context, now)

    def answer(self, stack: bytes, data: bytes, start: int, end: int, now: float) -> MemoRequest | None:
        """Handle a reply of the broker; return the job if it is a JOB. Replies to answered requests are dropped."""
        number = self._waiting.get(stack, -1)
        if number < 0 or self.closed:
            return None
        try:
            header = messages.read(data, start, end)
        except ProtocolError:
            return None
        context = self._contexts[number]
        if header.kind == JOB:
            self._close_request(context, header.id)
            context.jobs += 1
            address = b"%b/%d" % (header.id.hex().encode(), context.jobs)
            body = messages.body_of(data[header.end : end])
            context.held = MemoRequest(number, header.service, address, header.timeout, body)
            return context.held
        if header.kind == HEARTBEAT:
            self._close_request(context, header.id)
            self._send(number, messages.heartbeat(context.id), now)
        elif header.kind == DISCONNECT:
            again = not context.unready
            self._close_request(context, b"")
            context.unready = True
            if again and not context.done:  # a refused READY is repeated by `tick`
                self._send(number, self._ready, now)
        return None

    def final(self, request: MemoRequest, body: bytes, now: float, leaving: bool = False) -> None:
        """Send the RESULT; the broker may reply with the next job, unless the worker is `leaving`."""
        context = self._contexts[request.context]
        if context.held is request and not self.closed:
            context.held = None
            context.done = leaving
            self._send(request.context, messages.result(context.id, leaving) + messages.payload_of(body), now)

    def tick(self, now: float) -> None:
        """Repeat refused READYs and requests that have been open for long. Called at `due`."""
        for number, context in enumerate(self._contexts):
            if context.content:
                if now >= context.sent + RESEND:
                    self._transmit(context, now)
            elif context.unready and context.held is None and not context.done:
                self._send(number, self._ready, now)
        self.due = now + CHECK_INTERVAL

    def _send(self, number: int, content: bytes, now: float) -> None:
        """Send a new request of a context."""
        self._number += 1
        context = self._contexts[number]
        context.request = requests.request_id(self._number)
        context.content = content
        self._waiting[context.request] = number
        self._transmit(context, now)

    def _transmit(self, context: MemoExchange, now: float) -> None:
        context.sent = now
        self._out.append(requests.encode(context.request, context.content, self.ipc))

    def _close_request(self, context: MemoExchange, id: bytes) -> None:
        del self._waiting[context.request]
        context.content = b""
        context.id = id
        context.unready = False
