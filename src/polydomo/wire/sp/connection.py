"""SP connection without a socket, for either end of REQ and REP.

`start` sends the hello. `receive` takes bytes as the socket read them, in chunks of any size, and calls the handler:
`peer_ready` once, then `message` for each complete message, or `failed` once, which is the end. A message's size is
checked before any of it is buffered, so a peer can occupy memory for one message of the allowed size and no more.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from mypy_extensions import mypyc_attr

from polydomo.errors import ProtocolError
from polydomo.wire.sp import hello
from polydomo.wire.sp.hello import REP, REQ
from polydomo.wire.sp.requests import stack_end
from polydomo.wire.stream import GREETING, TRAFFIC, Stream, StreamHandler

# The peer's protocol for each role.
OPPOSITE: Final = {REP: REQ, REQ: REP}


@mypyc_attr(allow_interpreted_subclasses=True)
class Handler(StreamHandler):
    """Owner of a connection: its output and its events."""

    @abstractmethod
    def peer_ready(self) -> None:
        """Handle the end of the handshake; raise ProtocolError to refuse the peer."""

    @abstractmethod
    def message(self, stack: bytes, data: bytes, start: int, end: int) -> None:
        """Handle a complete message: its request IDs, and its content in `data[start:end]`."""

    @abstractmethod
    def dropped(self, reason: str) -> None:
        """Handle a message that was skipped; the connection goes on."""


class Connection(Stream[Handler]):
    """One end of an SP connection: `role` is REP or REQ, `limit` the largest message, its stack included."""

    def __init__(self, handler: Handler, role: int, limit: int, ipc: bool = False) -> None:
        super().__init__(handler)
        self.role = role
        self.limit = limit
        self.ipc = ipc
        self._lead = 9 if ipc else 8  # bytes before a message's content

    def start(self) -> None:
        """Send the hello. Both sides do so at once."""
        self.handler.transmit(hello.encode(self.role))

    def _handshake(self, data: bytes) -> None:
        hello.check_start(data)
        if len(data) < hello.SIZE:
            self._pending += data
            self._need = hello.SIZE if len(data) >= 4 else 0
            return
        theirs = hello.decode(data)
        if theirs != OPPOSITE[self.role]:
            raise ProtocolError(
                f"the peer is a {hello.name(theirs)} socket; a {hello.name(OPPOSITE[self.role])} is needed here"
            )
        self.handler.peer_ready()
        if self.phase == GREETING:
            self.phase = TRAFFIC
            self._scan(data, hello.SIZE)

    def _scan(self, data: bytes, pos: int) -> None:
        size = len(data)
        handler = self.handler
        lead = self._lead
        while pos < size:
            if self.paused:
                self._pending += data[pos:]
                return
            if self.ipc and data[pos] != 1:
                raise ProtocolError(f"an IPC message begins with 0x{data[pos]:02x}, not with 0x01")
            start = pos + lead
            if start > size:
                self._pending += data[pos:]
                self._need = lead
                return
            length = int.from_bytes(data[start - 8 : start], "big")
            if length > self.limit:
                raise ProtocolError(
                    f"a message of {length} bytes; {self.limit} are allowed",
                    hint="raise limits.message_bytes to allow it",
                )
            if length < 4:
                raise ProtocolError("a message without a request ID", hint="REQ sockets never send one")
            end = start + length
            if end > size:  # incomplete
                self._pending += data[pos:]
                self._need = end - pos
                return
            pos = end
            if data[start] & 0x80:  # the usual case: no device between
                handler.message(data[start : start + 4], data, start + 4, end)
            else:
                rest = stack_end(data, start, end)
                if rest < 0:
                    handler.dropped("a stack of too many request IDs: devices are connected in a loop")
                else:
                    handler.message(data[start:rest], data, rest, end)
            if self.phase != TRAFFIC:
                return
