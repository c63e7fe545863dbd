"""Foreign NFP peers: bare pyzmq sockets that speak it as specified, with one-byte commands. Nothing here imports
polydomo. They have the same methods as the peers of the other dialects (tests/support/peers.py).
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import zmq

from tests.support.peers import PATIENCE, Answer, Disconnected, Peer, Silence, Task

OPEN, READY, KEEPALIVE, DISCONNECT, POST, RESPONSE, GET, DELETE, EVENT, STREAM = (
    bytes((number,)) for number in range(10)
)
PUT, MMI = b"\x10", b"\x11"

_numbers = itertools.count(1)


def new_uuid() -> bytes:
    return b"job-%d-%d" % (time.time_ns(), next(_numbers))


class Reply(NamedTuple):
    """A reply to a client."""

    command: bytes
    service: bytes
    uuid: bytes
    status: bytes
    body: list[bytes]

    @property
    def said(self) -> Any:
        return json.loads(self.body[0])


class NfpClient(Peer):
    """A DEALER that adds the empty frame itself."""

    lead: tuple[bytes, ...] = (b"",)
    kind = zmq.DEALER

    def __init__(self, endpoint: str, **more: Any) -> None:
        super().__init__(endpoint, self.kind, **more)

    def command(self, command: bytes, *frames: bytes) -> None:
        self.send(*self.lead, b"NFPC01", command, *frames)

    def reply(self, timeout: float = PATIENCE) -> Reply:
        message = self.recv(timeout)
        size = len(self.lead)
        assert tuple(message[:size]) == self.lead, message
        assert message[size] == b"NFPB01", message
        command, service, uuid, status, *body = message[size + 1 :]
        assert body, message
        return Reply(command, service, uuid, status, body)

    def open(self, body: bytes = b"") -> Any:
        self.command(OPEN, body)
        message = self.recv()[len(self.lead) :]
        assert message[:2] == [b"NFPB01", OPEN], message
        assert len(message) == 3, message
        return json.loads(message[2])

    def ask(self, command: bytes, service: bytes, target: bytes, uuid: bytes, *body: bytes) -> Reply:
        """Send a command and return its single reply."""
        self.command(command, service, target, uuid, *body)
        reply = self.reply()
        assert (reply.service, reply.uuid) == (service, uuid)
        return reply

    def post(self, service: bytes, *body: bytes, target: bytes = b"any", uuid: bytes = b"") -> bytes:
        """Submit a job, check that it is accepted, and return its UUID."""
        uuid = uuid or new_uuid()
        reply = self.ask(POST, service, target, uuid, *body)
        assert (reply.command, reply.status) == (RESPONSE, b"202"), reply
        return uuid

    def get(self, service: bytes, uuid: bytes, target: bytes = b"any") -> Reply:
        return self.ask(GET, service, target, uuid, b"")

    def result(self, service: bytes, uuid: bytes, timeout: float = PATIENCE) -> Reply:
        """Poll until the result is there: 300 means to retry later."""
        deadline = time.monotonic() + timeout
        while (reply := self.get(service, uuid)).status == b"300":
            if time.monotonic() > deadline:
                raise Silence(f"no result within {timeout:.1f} s")
            time.sleep(0.005)
        return reply

    def call(self, service: bytes, body: Sequence[bytes], timeout: float = PATIENCE) -> Answer:
        reply = self.result(service, self.post(service, *body), timeout)
        assert reply.status == b"200", reply
        return Answer([], reply.body)

    def mmi(self, task: str, /, at: bytes = b"mmi.service.broker", **kwargs: Any) -> Any:
        """Call a task of the broker's management, or of another of its services."""
        question = json.dumps({"task": task, "kwargs": kwargs, "args": []}).encode()
        reply = self.ask(MMI, at, b"any", new_uuid(), question)
        assert (reply.command, reply.status) == (MMI, b"200"), reply
        return reply.said


class NfpReqClient(NfpClient):
    """The specification's client: a REQ socket, which adds and removes the empty frame."""

    lead = ()
    kind = zmq.REQ


class NfpWorker(Peer):
    """A DEALER that sends OPEN (by default) and READY. `take` sends heartbeats while it waits."""

    def __init__(
        self,
        endpoint: str,
        service: bytes | None = None,
        *,
        opening: dict[str, Any] | None = None,
        beat: float = 1.0,
        **more: Any,
    ) -> None:
        super().__init__(endpoint, **more)
        self.service = service or b""
        self.beat = beat
        if opening is not None:
            self.open(json.dumps(opening).encode())
        if service is not None:
            self.command(READY, service)

    def command(self, command: bytes, *frames: bytes) -> None:
        self.send(b"", b"NFPW01", command, *frames)

    def open(self, body: bytes = b"") -> Any:
        self.command(OPEN, body)
        command, frames = self.heard()
        assert command == OPEN
        assert len(frames) == 1
        return json.loads(frames[0])

    def heard(self, timeout: float = PATIENCE) -> tuple[bytes, list[bytes]]:
        """Return the next command, whatever it is, and its frames."""
        lead, header, command, *frames = self.recv(timeout)
        assert (lead, header) == (b"", b"NFPB01")
        return command, frames

    def expect(self, wanted: bytes, timeout: float = PATIENCE) -> list[bytes]:
        """Return the frames of the next `wanted` command; keepalives before it are skipped."""
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            try:
                command, frames = self.heard(min(self.beat, left) if self.beat else left)
            except Silence:
                if not self.beat or left <= self.beat:
                    raise
                self.keepalive()
                continue
            if command == wanted:
                return frames
            if command == DISCONNECT:
                raise Disconnected(frames)
            assert command == KEEPALIVE, (command, frames)

    def keepalive(self) -> None:
        self.command(KEEPALIVE, self.service)

    def take(self, timeout: float = PATIENCE) -> Task:
        token, delimiter, uuid, *body = self.expect(POST, timeout)
        assert delimiter == b""
        return Task(token, body, b"", (uuid,))

    def respond(self, task: Task, status: bytes, *body: bytes) -> None:
        self.command(RESPONSE, task.address, b"", task.metadata[0], status, *body)

    def reply(self, task: Task, body: Sequence[bytes]) -> None:
        self.respond(task, b"200", *body)

    def partial(self, task: Task, body: Sequence[bytes]) -> None:
        self.command(STREAM, task.address, b"", task.metadata[0], b"200", *body)

    def fence(self) -> list[list[bytes]]:
        """Return the messages of `Peer.fence` without keepalives, which may arrive at any time."""
        return [message for message in super().fence() if message[:3] != [b"", b"NFPB01", KEEPALIVE]]
