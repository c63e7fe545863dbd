"""A worker's side of NFP in the specification's form, without a socket or a clock: the caller passes the time.

One conversation (NFP §NFP/Worker) is OPEN, to which the broker replies with its keepalive values, READY for one
service, then the broker's requests, with KEEPALIVEs both ways (dialects/heartbeat.py). After its end the caller closes
the connection and starts a new conversation on a new one (NFP §Opening and Closing a Connection).

Requests go to the caller as they come: jobs (POST), queries about a job (GET), cancellations (DELETE), input for a job
(PUT) and management (MMI). The caller keeps the jobs: they outlive conversations, and a reply that missed one
conversation may be sent in the next.
"""

from typing import Final

from polydomo.dialects.heartbeat import HeartbeatingWorker
from polydomo.dialects.nfp import json_bodies, messages
from polydomo.dialects.nfp.messages import BROKER, OK_FRAME, SPEC, WORKER, read_command
from polydomo.wire.frames import DELIMITER, EMPTY_BODY, Message, frame

_RESPONSE_HEAD: Final = SPEC.head(WORKER, messages.RESPONSE)
_EVENT_HEAD: Final = SPEC.head(WORKER, messages.EVENT)
_STREAM_HEAD: Final = SPEC.head(WORKER, messages.STREAM)
_MMI_HEAD: Final = SPEC.head(WORKER, messages.MMI)
_REQUESTS: Final = (messages.POST, messages.GET, messages.PUT, messages.DELETE, messages.MMI)


class NfpRequest:
    """A request of the broker. `address` identifies the attempt (POST) or the query, and must be returned unchanged."""

    __slots__ = ("address", "body", "command", "service", "uuid")

    def __init__(self, command: int, service: bytes, address: bytes, uuid: bytes, body: bytes) -> None:
        self.command = command
        self.service = service
        self.address = address
        self.uuid = uuid  # the client's id of the job
        self.body = body  # canonical (wire.frames)


class NfpWorkerProtocol(HeartbeatingWorker):
    """One conversation with a broker. `hello` is OPEN's body, JSON."""

    def __init__(self, service: bytes, hello: bytes, interval: float = 2.5, liveness: int = 4) -> None:
        super().__init__(service, interval, liveness, SPEC.disconnect(WORKER, service, b""))
        self.hello = hello
        self.ready = False  # READY was sent
        self.answer = b""  # the body of the broker's OPEN, JSON
        self._keepalive = SPEC.short(WORKER, messages.KEEPALIVE, service)

    def start(self, now: float) -> None:
        """Send OPEN; READY follows the broker's reply."""
        self._last_received = now
        self.send(SPEC.short(WORKER, messages.OPEN, self.hello), now)
        self.schedule()

    def receive(self, message: Message, now: float) -> NfpRequest | None:
        """Process a message from the broker and return its request, if it has one. Any command but DISCONNECT shows
        that the broker is alive (NFP §Keepaliving)."""
        if self.closed:
            return None
        known = None
        if message.take() == b"" and message.take() == BROKER:
            known = read_command(message.take())
        command = -1 if known is None else known[0]
        if command == messages.DISCONNECT:
            self.closed = True
            message.take()  # the service
            self.farewell = (message.take() or b"").decode("utf-8", "replace")
        elif command == messages.OPEN:
            self._last_received = now
            self._opened(message.take() or b"", now)
        elif command == messages.KEEPALIVE:
            self._last_received = now
        elif command in _REQUESTS and self.ready:
            return self._request(command, message, now)
        return None

    def partial(self, request: NfpRequest, body: bytes, now: float) -> None:
        """Send one of several replies to a job."""
        self.stream(request.address, request.uuid, body, now)

    def final(self, request: NfpRequest, body: bytes, now: float) -> None:
        """Send a job's final reply; the broker may send another job."""
        self.respond(request.address, request.uuid, messages.OK, body, now)

    def respond(self, address: bytes, uuid: bytes, status: bytes, body: bytes, now: float) -> None:
        """Send a RESPONSE: the end of a job, or its state."""
        if self.ready and not self.closed:
            self.send(
                _RESPONSE_HEAD + _envelope(address, uuid) + frame(status, True) + (body or EMPTY_BODY), now
            )

    def stream(self, address: bytes, uuid: bytes, body: bytes, now: float) -> None:
        """Send a piece of a job's reply."""
        if self.ready and not self.closed:
            self.send(_STREAM_HEAD + _envelope(address, uuid) + OK_FRAME + (body or EMPTY_BODY), now)

    def event(self, address: bytes, uuid: bytes, kind: bytes, body: bytes, now: float) -> None:
        """Send an event of a job, or of none with an empty address. `body` is the content of one frame."""
        if self.ready and not self.closed:
            tail = OK_FRAME + frame(kind, True) + frame(body)
            self.send(_EVENT_HEAD + _envelope(address, uuid) + tail, now)

    def manage(self, uuid: bytes, task: bytes, now: float) -> None:
        """Send a worker's own task, JSON, to the broker (MMI without an address)."""
        if self.ready and not self.closed:
            self.send(_MMI_HEAD + _envelope(b"", uuid) + OK_FRAME + frame(task), now)

    def send_heartbeat(self, now: float) -> None:
        if self.ready:
            self.send(self._keepalive, now)
        else:
            self._begin(
                now
            )  # a broker that does not reply to OPEN is sent READY: a conversation may begin with it

    def _opened(self, answer: bytes, now: float) -> None:
        """Adopt the keepalive values in the broker's OPEN."""
        self.answer = answer
        members = json_bodies.object_in(answer) or {}
        interval = json_bodies.member(members, "keepalive_ms")
        liveness = json_bodies.member(members, "liveness")
        if isinstance(interval, (int, float)) and interval > 0:
            self.interval = interval / 1000.0
        if isinstance(liveness, int) and liveness > 0:
            self.liveness = liveness
        if not self.ready:
            self._begin(now)
        self.schedule()

    def _begin(self, now: float) -> None:
        """Send READY, once per conversation: the worker MUST NOT send a further one."""
        self.ready = True
        self.send(SPEC.short(WORKER, messages.READY, self.service), now)

    def _request(self, command: int, message: Message, now: float) -> NfpRequest | None:
        address = message.take()
        delimiter = message.take()
        uuid = message.take()
        body = message.rest()
        if command == messages.MMI and address == b"":
            self._last_received = now  # the reply to the worker's own task
            return None
        if not address or delimiter != b"" or not uuid:
            # NFP §POST and RESPONSE Processing: precisely one address frame, followed by an empty one.
            return None
        self._last_received = now
        return NfpRequest(command, self.service, address, uuid, body or EMPTY_BODY)


def _envelope(address: bytes, uuid: bytes) -> bytes:
    return frame(address, True) + DELIMITER + frame(uuid, True)
