"""A client's side of MDP/0.2, without a socket.

RFC 18 §MDP/Client, one thing after the other: REQUEST, any number of PARTIALs, one FINAL. Nothing in an
answer says which request it belongs to, so one connection carries one request at a time, and a connection
whose request was given up must be closed: its answer would be taken for the next one's.
"""

from typing import Final

from polydomo.dialects.mdp.messages import C_02, CLIENT_02
from polydomo.wire.frames import EMPTY_BODY, Message, frame, head

_PARTIAL: Final = b"\x02"
_FINAL: Final = b"\x03"


class MdpAnswer:
    """One of several answers, or the last."""

    __slots__ = ("body", "final")

    def __init__(self, body: bytes, final: bool) -> None:
        self.body = body  # canonical (wire.frames)
        self.final = final


class MdpClientProtocol:
    """One connection's dialog."""

    def __init__(self) -> None:
        self.waiting = False
        self.invalid = 0  # messages that answered nothing
        self._service = b""
        self._request_head = b""
        self._partial_head = b""
        self._final_head = b""

    def request(self, service: bytes, body: bytes) -> bytes:
        """A REQUEST as wire bytes. RFC 18 wants a body, so an empty one becomes an empty frame."""
        if self.waiting:
            raise RuntimeError("MDP allows one request at a time on a connection")
        if service != self._service:
            self._prepare(service)
        self.waiting = True
        return self._request_head + (body or EMPTY_BODY)

    def receive(self, message: Message) -> MdpAnswer | None:
        """An answer to the request, or None for anything else: it is counted and dropped."""
        if self.waiting:
            data = message.data
            if data.startswith(self._final_head, message.pos):
                return self._answer(data[message.pos + len(self._final_head) : message.end], True)
            if data.startswith(self._partial_head, message.pos):
                return self._answer(data[message.pos + len(self._partial_head) : message.end], False)
            header = message.take()  # the same frames may be encoded in another way
            command = message.take()
            service = message.take()
            body = message.rest()
            known = command in (_FINAL, _PARTIAL)
            if header == CLIENT_02 and known and service == self._service and body:
                return self._answer(body, command == _FINAL)
        self.invalid += 1
        return None

    def _answer(self, body: bytes, final: bool) -> MdpAnswer:
        self.waiting = not final
        return MdpAnswer(body, final)

    def _prepare(self, service: bytes) -> None:
        """Make the heads of everything said about this service."""
        name = frame(service, True)
        self._service = service
        self._request_head = C_02.request_head + name
        self._final_head = head(CLIENT_02, _FINAL) + name
        self._partial_head = head(CLIENT_02, _PARTIAL) + name
