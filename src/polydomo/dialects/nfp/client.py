"""A client's side of NFP in the specification's form, without a socket.

NFP §NFP/Client: OPEN and its reply, then commands, each with the UUID of its job. Each command has one RESPONSE, in the
order of the commands. With `"push": true` in OPEN a job's events, streamed pieces and end are sent without being asked
for, with its UUID. One connection can carry any number of jobs; the caller matches replies to them.
"""

from typing import Final

from polydomo.dialects.nfp import messages
from polydomo.dialects.nfp.messages import BROKER, CLIENT, SPEC, read_command, status_of
from polydomo.wire.frames import EMPTY_BODY, Message, frame

_POST_HEAD: Final = SPEC.head(CLIENT, messages.POST)
_JOB_REPLIES: Final = (messages.RESPONSE, messages.EVENT, messages.STREAM, messages.MMI)


class NfpAnswer:
    """A message from the broker. OPEN has only a body."""

    __slots__ = ("body", "command", "service", "status", "uuid")

    def __init__(self, command: int, service: bytes, uuid: bytes, status: int, body: bytes) -> None:
        self.command = command
        self.service = service
        self.uuid = uuid
        self.status = status  # 0 for OPEN
        self.body = body  # canonical (wire.frames)


class NfpClientProtocol:
    """One connection to a broker."""

    def open(self, body: bytes) -> bytes:
        """Return OPEN, the first message, as wire bytes."""
        return SPEC.short(CLIENT, messages.OPEN, body)

    def post(self, service: bytes, target: bytes, uuid: bytes, body: bytes) -> bytes:
        """Return the POST of a job. NFP requires a body, so an empty one becomes an empty frame."""
        return _POST_HEAD + _address(service, target, uuid) + (body or EMPTY_BODY)

    def get(self, service: bytes, target: bytes, uuid: bytes) -> bytes:
        """Return a request for a job's result."""
        return SPEC.head(CLIENT, messages.GET) + _address(service, target, uuid) + EMPTY_BODY

    def delete(self, service: bytes, target: bytes, uuid: bytes) -> bytes:
        """Return a request to cancel a job."""
        return SPEC.head(CLIENT, messages.DELETE) + _address(service, target, uuid) + EMPTY_BODY

    def put(self, service: bytes, target: bytes, uuid: bytes, body: bytes) -> bytes:
        """Return further input for a running job."""
        return SPEC.head(CLIENT, messages.PUT) + _address(service, target, uuid) + (body or EMPTY_BODY)

    def receive(self, message: Message) -> NfpAnswer | None:
        """Return the broker's message. An invalid one is dropped: None."""
        if message.take() == b"" and message.take() == BROKER:
            known = read_command(message.take())
            command = -1 if known is None else known[0]
            if command == messages.OPEN:
                return NfpAnswer(messages.OPEN, b"", b"", 0, message.rest())
            if command in _JOB_REPLIES:
                service = message.take()
                uuid = message.take()
                status = status_of(message.take() or b"")
                if service is not None and uuid and status:
                    return NfpAnswer(command, service, uuid, int(status), message.rest())
        return None


def _address(service: bytes, target: bytes, uuid: bytes) -> bytes:
    return frame(service, True) + frame(target, True) + frame(uuid, True)
