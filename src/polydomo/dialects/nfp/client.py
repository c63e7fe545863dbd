"""A client's side of NFP in the specification's form, without a socket.

NFP §NFP/Client: OPEN, answered, then commands, each with the UUID of the job it is about. Unless a client asks for more
in its OPEN (`"push": true`), each command has one RESPONSE, in the order of the commands; with push a job's events,
streamed pieces and its end come by themselves, named by its UUID. One connection can carry any number of jobs, and
who is told what is the owner's affair.
"""

from typing import Final

from polydomo.dialects.nfp.messages import (
    BROKER,
    CLIENT,
    DELETE,
    EVENT,
    GET,
    MMI,
    OPEN,
    POST,
    PUT,
    RESPONSE,
    SPEC,
    STREAM,
    read_command,
    status_of,
)
from polydomo.wire.frames import EMPTY_BODY, Message, frame

_POST_HEAD: Final = SPEC.head(CLIENT, POST)
_ANSWERS: Final = (RESPONSE, EVENT, STREAM, MMI)


class NfpAnswer:
    """Something the broker said. OPEN has only a body."""

    __slots__ = ("body", "command", "service", "status", "uuid")

    def __init__(self, command: int, service: bytes, uuid: bytes, status: int, body: bytes) -> None:
        self.command = command
        self.service = service
        self.uuid = uuid
        self.status = status  # as a number; 0 for OPEN
        self.body = body  # canonical (wire.frames)


class NfpClientProtocol:
    """One connection."""

    def __init__(self) -> None:
        self.opened = False  # the broker has answered our OPEN
        self.invalid = 0  # messages that no broker should have sent

    def open(self, body: bytes) -> bytes:
        """OPEN as wire bytes; comes first."""
        return SPEC.bare(CLIENT, OPEN, body)

    def post(self, service: bytes, target: bytes, uuid: bytes, body: bytes) -> bytes:
        """A job. NFP wants a body, so an empty one becomes an empty frame."""
        return _POST_HEAD + _address(service, target, uuid) + (body or EMPTY_BODY)

    def get(self, service: bytes, target: bytes, uuid: bytes, body: bytes = EMPTY_BODY) -> bytes:
        """Ask for a job's result."""
        return SPEC.head(CLIENT, GET) + _address(service, target, uuid) + body

    def delete(self, service: bytes, target: bytes, uuid: bytes, body: bytes = EMPTY_BODY) -> bytes:
        """A job is not wanted any more."""
        return SPEC.head(CLIENT, DELETE) + _address(service, target, uuid) + body

    def put(self, service: bytes, target: bytes, uuid: bytes, body: bytes) -> bytes:
        """Something more for a running job."""
        return SPEC.head(CLIENT, PUT) + _address(service, target, uuid) + (body or EMPTY_BODY)

    def mmi(self, service: bytes, target: bytes, uuid: bytes, body: bytes) -> bytes:
        """A question to the broker itself, or to a worker's management."""
        return SPEC.head(CLIENT, MMI) + _address(service, target, uuid) + (body or EMPTY_BODY)

    def receive(self, message: Message) -> NfpAnswer | None:
        """What the broker says, or None for anything that makes no sense: it is counted and dropped."""
        if message.take() == b"" and message.take() == BROKER:
            known = read_command(message.take())
            command = -1 if known is None else known[0]
            if command == OPEN:
                self.opened = True
                return NfpAnswer(OPEN, b"", b"", 0, message.rest())
            if command in _ANSWERS:
                service = message.take()
                uuid = message.take()
                status = status_of(message.take() or b"")
                if service is not None and uuid and status:
                    return NfpAnswer(command, service, uuid, int(status), message.rest())
        self.invalid += 1
        return None


def _address(service: bytes, target: bytes, uuid: bytes) -> bytes:
    return frame(service, True) + frame(target, True) + frame(uuid, True)
