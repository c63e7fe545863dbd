"""A worker's side of NFP in the specification's form, without a socket and without a clock: time is handed in.

One conversation (NFP §NFP/Worker): OPEN, answered with the broker's keepalive values, READY for one service, then
whatever the broker asks, with KEEPALIVEs both ways beside it. It ends with a DISCONNECT of either side, or when the
broker was silent for `liveness` intervals; after that the owner closes the connection and begins a new conversation on
a new one (NFP §Opening and Closing a Connection).

What is asked is handed to the owner as it comes: jobs (POST), what became of one (GET), one that is not wanted any more
(DELETE), something more for one (PUT), and management (MMI). The owner knows which jobs there are: they outlive
conversations, and answers that were late for one may be sent in the next. What is to be sent collects here; the owner
takes it with `take_output` after every call.
"""

from typing import Final

import msgspec

from polydomo.dialects.nfp.messages import (
    BROKER,
    DELETE,
    DISCONNECT,
    EVENT,
    GET,
    KEEPALIVE,
    MMI,
    OK,
    OK_FRAME,
    OPEN,
    POST,
    PUT,
    READY,
    RESPONSE,
    SPEC,
    STREAM,
    WORKER,
    read_command,
)
from polydomo.wire.frames import DELIMITER, EMPTY_BODY, Message, frame

_RESPONSE_HEAD: Final = SPEC.head(WORKER, RESPONSE)
_EVENT_HEAD: Final = SPEC.head(WORKER, EVENT)
_STREAM_HEAD: Final = SPEC.head(WORKER, STREAM)
_MMI_HEAD: Final = SPEC.head(WORKER, MMI)
_ASKED: Final = (POST, GET, PUT, DELETE, MMI)


class NfpRequest:
    """Something the broker asks. `address` names the attempt (for POST) or the question, and must be given back."""

    __slots__ = ("address", "body", "command", "service", "uuid")

    def __init__(self, command: int, service: bytes, address: bytes, uuid: bytes, body: bytes) -> None:
        self.command = command
        self.service = service
        self.address = address
        self.uuid = uuid  # the client's name for the job
        self.body = body  # canonical (wire.frames)


class NfpWorkerProtocol:
    """See the module's text. `hello` is OPEN's body, JSON."""

    def __init__(self, service: bytes, hello: bytes, interval: float = 2.5, liveness: int = 4) -> None:
        self.service = service
        self.hello = hello
        self.interval = interval
        self.liveness = liveness
        self.ready = False  # READY was sent
        self.answer = b""  # the broker's OPEN, JSON
        self.closed = False  # a DISCONNECT was sent or received: nothing more may be sent
        self.farewell = ""  # why, if the broker said so
        self.lost = False  # the broker was silent for too long
        self.invalid = 0  # messages that no broker should have sent
        self.due = 0.0  # when to call `tick` next
        self._out: list[bytes] = []
        self._sent = 0.0
        self._heard = 0.0
        self._keepalive = SPEC.bare(WORKER, KEEPALIVE, service)

    def start(self, now: float) -> None:
        """OPEN; READY follows the broker's answer."""
        self._heard = now
        self._send(SPEC.bare(WORKER, OPEN, self.hello), now)
        self._plan()

    def receive(self, message: Message, now: float) -> NfpRequest | None:
        """A message of the broker; gives what it asks, if it is a question. All but DISCONNECT are signs of life (NFP
        §Keepaliving)."""
        if self.closed:
            return None
        known = None
        if message.take() == b"" and message.take() == BROKER:
            known = read_command(message.take())
        command = -1 if known is None else known[0]
        if command == DISCONNECT:
            self.closed = True
            message.take()  # the service
            self.farewell = (message.take() or b"").decode("utf-8", "replace")
        elif command == OPEN:
            self._heard = now
            self._agree(message.take() or b"", now)
        elif command == KEEPALIVE:
            self._heard = now
        elif command in _ASKED and self.ready:
            return self._request(command, message, now)
        else:
            self.invalid += 1
        return None

    def partial(self, request: NfpRequest, body: bytes, now: float) -> None:
        """One of several answers to a job."""
        self.stream(request.address, request.uuid, body, now)

    def final(self, request: NfpRequest, body: bytes, now: float) -> None:
        """A job's answer; the broker may send another."""
        self.respond(request.address, request.uuid, OK, body, now)

    def respond(self, address: bytes, uuid: bytes, status: bytes, body: bytes, now: float) -> None:
        """A RESPONSE: how a job ended, or what is known of one."""
        if self.ready and not self.closed:
            self._send(
                _RESPONSE_HEAD + _envelope(address, uuid) + frame(status, True) + (body or EMPTY_BODY), now
            )

    def stream(self, address: bytes, uuid: bytes, body: bytes, now: float) -> None:
        """A piece of a job's answer."""
        if self.ready and not self.closed:
            self._send(_STREAM_HEAD + _envelope(address, uuid) + OK_FRAME + (body or EMPTY_BODY), now)

    def event(self, address: bytes, uuid: bytes, kind: bytes, body: bytes, now: float) -> None:
        """How a job goes on; with an empty address it is not about a job. `body` is one frame's content."""
        if self.ready and not self.closed:
            tail = OK_FRAME + frame(kind, True) + frame(body)
            self._send(_EVENT_HEAD + _envelope(address, uuid) + tail, now)

    def manage(self, uuid: bytes, task: bytes, now: float) -> None:
        """A task of our own for the broker (MMI without an address); `task` is JSON."""
        if self.ready and not self.closed:
            self._send(_MMI_HEAD + _envelope(b"", uuid) + OK_FRAME + frame(task), now)

    def disconnect(self) -> None:
        """Say goodbye; nothing follows."""
        if not self.closed:
            self._out.append(SPEC.disconnect(WORKER, self.service, b""))
            self.closed = True

    def tick(self, now: float) -> None:
        """Called at `due`: a KEEPALIVE if nothing was sent for an interval, and is the broker still there?"""
        if self.closed:
            return
        late = now - self.due
        if late > self.interval:
            # We were stopped ourselves (a suspended machine, a blocked loop): not the broker's silence.
            self._heard += late
        if now >= self._heard + self.interval * self.liveness:
            self.lost = True
            return
        if now >= self._sent + self.interval:
            # A broker that leaves OPEN unanswered is told READY all the same: a conversation may begin with it.
            if not self.ready:
                self._begin(now)
            else:
                # NFP §Keepaliving: SHOULD NOT beside other commands, so only after an interval without one.
                self._send(self._keepalive, now)
        self._plan()

    def take_output(self) -> bytes:
        """What is to be sent now, as wire bytes."""
        out = self._out
        if not out:
            return b""
        self._out = []
        return out[0] if len(out) == 1 else b"".join(out)

    def _agree(self, answer: bytes, now: float) -> None:
        """The broker's answer to OPEN: its keepalive values are ours from now on."""
        self.answer = answer
        try:
            said = msgspec.json.decode(answer) if answer else None
        except msgspec.DecodeError:
            said = None
        if isinstance(said, dict):
            interval = said.get("keepalive_ms")
            liveness = said.get("liveness")
            if isinstance(interval, (int, float)) and interval > 0:
                self.interval = interval / 1000.0
            if isinstance(liveness, int) and liveness > 0:
                self.liveness = liveness
        if not self.ready:
            self._begin(now)
        self._plan()

    def _begin(self, now: float) -> None:
        """READY, once per conversation: the worker MUST NOT send a further one."""
        self.ready = True
        self._send(SPEC.bare(WORKER, READY, self.service), now)

    def _request(self, command: int, message: Message, now: float) -> NfpRequest | None:
        address = message.take()
        delimiter = message.take()
        uuid = message.take()
        body = message.rest()
        if command == MMI and address == b"":
            self._heard = now  # the answer to a task of ours
            return None
        if not address or delimiter != b"" or not uuid:
            # NFP §POST and RESPONSE Processing: precisely one address frame, followed by an empty one.
            self.invalid += 1
            return None
        self._heard = now
        return NfpRequest(command, self.service, address, uuid, body or EMPTY_BODY)

    def _send(self, data: bytes, now: float) -> None:
        self._sent = now
        self._out.append(data)

    def _plan(self) -> None:
        """Look again when a keepalive may be due or the broker's silence is too long, whichever is first."""
        self.due = min(self._sent + self.interval, self._heard + self.interval * self.liveness)


def _envelope(address: bytes, uuid: bytes) -> bytes:
    return frame(address, True) + DELIMITER + frame(uuid, True)
