"""Words for NFP conversations with a `Desk` (tests/support/dialects.py), in either form."""

from __future__ import annotations

import json
from typing import Any

from polydomo.core.broker import Broker
from tests.support.dialects import Desk, Seat

NUMBERS = {
    "OPEN": 0x00,
    "READY": 0x01,
    "KEEPALIVE": 0x02,
    "DISCONNECT": 0x03,
    "POST": 0x04,
    "RESPONSE": 0x05,
    "GET": 0x06,
    "DELETE": 0x07,
    "EVENT": 0x08,
    "STREAM": 0x09,
    "PUT": 0x10,
    "MMI": 0x11,
}
NAMES = {number: name for name, number in NUMBERS.items()}
TASK = b'{"task":"echo","kwargs":{},"args":[],"timeout":30}'


class Talker:
    """A seat that speaks NFP."""

    header = b""

    def __init__(
        self,
        desk: Desk,
        identity: bytes = b"",
        *,
        norfab: bool = False,
        native: bool = False,
        instance: bytes = b"",
    ) -> None:
        self.seat: Seat = desk.seat(identity, native=native, instance=instance)
        self.norfab = norfab

    def word(self, name: str) -> bytes:
        number = NUMBERS[name]
        return b"0x%02x" % number if self.norfab else bytes((number,))

    def say(self, name: str, *frames: bytes) -> None:
        self.seat.send(b"", self.header, self.word(name), *frames)

    def heard(self) -> list[tuple[Any, ...]]:
        """What it was told since the last time: the command's name, then the frames."""
        found = []
        for lead, header, word, *frames in self.seat.take():
            assert (lead, header) == (b"", b"NFPB01")
            number = int(word, 16) if self.norfab else word[0]
            assert word == self.word(NAMES[number])
            found.append((NAMES[number], *frames))
        return found

    def ask(self, name: str, *frames: bytes) -> list[tuple[Any, ...]]:
        self.heard()
        self.say(name, *frames)
        return self.heard()

    @property
    def complaints(self) -> list[str]:
        return self.seat.complaints


class ClientTalker(Talker):
    header = b"NFPC01"

    def open(self, **said: Any) -> dict[str, Any]:
        ((name, body),) = self.ask("OPEN", json.dumps(said).encode())
        assert name == "OPEN"
        return json.loads(body)

    def post(self, uuid: bytes, *body: bytes, service: bytes = b"svc", target: bytes = b"any") -> list[Any]:
        return self.ask("POST", service, target, uuid, *(body or (TASK,)))

    def get(self, uuid: bytes, *, service: bytes = b"svc", target: bytes = b"any") -> list[Any]:
        return self.ask("GET", service, target, uuid, b"{}")


class WorkerTalker(Talker):
    header = b"NFPW01"

    def __init__(
        self, desk: Desk, identity: bytes = b"", service: bytes = b"svc", *, ready: bool = True, **more: Any
    ) -> None:
        super().__init__(desk, identity, **more)
        if ready:
            self.say("READY", service)

    def open(self, **said: Any) -> dict[str, Any]:
        ((name, body),) = self.ask("OPEN", json.dumps(said).encode())
        assert name == "OPEN"
        return json.loads(body)

    def job(self) -> tuple[bytes, bytes, list[bytes]]:
        """The one job it was given: token, UUID, body."""
        ((name, token, delimiter, uuid, *body),) = self.heard()
        assert (name, delimiter) == ("POST", b"")
        return token, uuid, body

    def respond(self, token: bytes, uuid: bytes, status: bytes, *body: bytes) -> None:
        self.say("RESPONSE", token, b"", uuid, status, *body)


def status(message: tuple[Any, ...]) -> tuple[str, bytes]:
    """The command and status of what a client was told."""
    return message[0], message[3]


def said(message: tuple[Any, ...]) -> Any:
    """The JSON body of what a client was told."""
    return json.loads(message[4])


def nothing_left(broker: Broker) -> bool:
    return broker.accounting.active == 0 and broker.accounting.memory == 0
