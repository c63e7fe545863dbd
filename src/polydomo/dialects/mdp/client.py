"""A client's side of MDP/0.2, without a socket.

RFC 18 §MDP/Client: REQUEST, any number of PARTIALs, one FINAL, strictly in this order. A reply does not identify its
request, so a connection carries one request at a time, and a connection with an abandoned request must be closed: its
reply would be taken for the next request's.
"""

from typing import Final

from polydomo.dialects.mdp.messages import C_02, CLIENT_02
from polydomo.wire.frames import EMPTY_BODY, Message, frame

_PARTIAL_HEAD: Final = C_02.partial_head or b""


class MdpAnswer:
    """A partial or final reply."""

    __slots__ = ("body", "final")

    def __init__(self, body: bytes, final: bool) -> None:
        self.body = body  # canonical (wire.frames)
        self.final = final


class MdpClientProtocol:
    """One connection to a broker."""

    def __init__(self) -> None:
        self.waiting = False
        self._service = b""
        self._request_head = b""
        self._partial_head = b""
        self._final_head = b""

    def request(self, service: bytes, body: bytes) -> bytes:
        """Return a REQUEST as wire bytes. RFC 18 requires a body, so an empty one becomes an empty frame."""
        if self.waiting:
            raise RuntimeError("MDP allows one request at a time on a connection")
        if service != self._service:
            self._prepare_heads(service)
        self.waiting = True
        return self._request_head + (body or EMPTY_BODY)

    def receive(self, message: Message) -> MdpAnswer | None:
        """Return the reply to the request. Any other message is dropped: None."""
        if self.waiting:
            data = message.data
            if data.startswith(self._final_head, message.pos):
                return self._answer(data[message.pos + len(self._final_head) : message.end], True)
            if data.startswith(self._partial_head, message.pos):
                return self._answer(data[message.pos + len(self._partial_head) : message.end], False)
            header = message.take()  # the same frames may be encoded differently
            command = message.take()
            service = message.take()
            body = message.rest()
            final = command == C_02.final
            known = final or command == C_02.partial
            if header == CLIENT_02 and known and service == self._service and body:
                return self._answer(body, final)
        return None

    def _answer(self, body: bytes, final: bool) -> MdpAnswer:
        self.waiting = not final
        return MdpAnswer(body, final)

    def _prepare_heads(self, service: bytes) -> None:
        name = frame(service, True)
        self._service = service
        self._request_head = C_02.request_head + name
        self._final_head = C_02.final_head + name
        self._partial_head = _PARTIAL_HEAD + name
