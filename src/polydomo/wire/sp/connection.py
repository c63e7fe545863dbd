"""SP connection without a socket, for either end of REQ and REP.

`start` sends the hello. `receive` takes bytes as the socket read them, in chunks of any size, and calls the handler:
`peer_ready` once, then `message` for each complete message, or `failed` once, which is the end. A message's size is
checked before any of it is buffered, so a peer can occupy memory for one message of the allowed size and no more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import mypyc_attr

from polydomo.errors import ProtocolError
from polydomo.wire.sp import hello
from polydomo.wire.sp.hello import REP, REQ
from polydomo.wire.sp.requests import stack_end

HELLO: Final = 0
TRAFFIC: Final = 1
CLOSED: Final = 2

# An incomplete message is reported to the handler each time it has grown by this many bytes.
BUFFER_STEP: Final = 65536

# The peer's protocol for each role.
OPPOSITE: Final = {REP: REQ, REQ: REP}


@mypyc_attr(allow_interpreted_subclasses=True)
class Handler(ABC):
    """Owner of a connection: its output and its events."""

    @abstractmethod
    def transmit(self, data: bytes) -> None:
        """Write the hello to the peer at once."""

    @abstractmethod
    def peer_ready(self) -> None:
        """Handle the end of the handshake; raise ProtocolError to refuse the peer."""

    @abstractmethod
    def message(self, stack: bytes, data: bytes, start: int, end: int) -> None:
        """Handle a complete message: its request IDs, and its content in `data[start:end]`."""

    @abstractmethod
    def dropped(self, reason: str) -> None:
        """Handle a message that was skipped; the connection goes on."""

    @abstractmethod
    def failed(self, error: ProtocolError) -> None:
        """Close the socket: the peer violated the protocol, and no more events follow."""

    def buffered(self, size: int) -> None:  # noqa: B027 (optional)
        """Note that an incomplete message has grown to `size` bytes; 0: it is complete. Called every `BUFFER_STEP`."""


class Connection:
    """One end of an SP connection: `role` is REP or REQ, `limit` the largest message, its stack included."""

    def __init__(self, handler: Handler, role: int, limit: int, ipc: bool = False) -> None:
        self.handler = handler
        self.role = role
        self.limit = limit
        self.ipc = ipc
        self.phase = HELLO
        self.paused = False
        self.spanned = 0  # messages that came in more than one chunk
        self._lead = 9 if ipc else 8  # bytes before a message's content
        self._pending = bytearray()  # an incomplete message
        self._need = 0  # size of _pending at which it is worth parsing again
        self._told = 0  # size of _pending last reported to the handler

    def start(self) -> None:
        """Send the hello. Both sides do so at once."""
        self.handler.transmit(hello.encode(self.role))

    def receive(self, data: bytes) -> None:
        """Parse bytes from the peer, in chunks of any size."""
        pending = self._pending
        if pending:
            pending += data
            if len(pending) < self._need or (self.paused and self.phase == TRAFFIC):
                if len(pending) - self._told >= BUFFER_STEP:
                    self._told = len(pending)
                    self.handler.buffered(self._told)
                return
            data = bytes(pending)
            pending.clear()
            self._need = 0
            self.spanned += 1
            if self._told:
                self._told = 0
                self.handler.buffered(0)
        try:
            if self.phase == TRAFFIC:
                self._scan(data, 0)
            elif self.phase == HELLO:
                self._hello(data)
        except ProtocolError as error:
            self.fail(error)

    def pause(self) -> None:
        """Stop calling `message` until `resume`; bytes received until then are kept."""
        self.paused = True

    def resume(self) -> None:
        """Continue with the bytes kept, then with new ones."""
        if not self.paused:
            return
        self.paused = False
        if self._pending:
            self.receive(b"")

    def kept(self) -> int:
        """Return how many received bytes have not been passed to the handler."""
        return len(self._pending)

    def fail(self, error: ProtocolError) -> None:
        """Close the connection because of an error. SP has no message for it."""
        if self.phase != CLOSED:
            self.phase = CLOSED
            self._pending = bytearray()
            self.handler.failed(error)

    def close(self) -> None:
        """Drop the bytes kept and ignore new ones; the handler is not called."""
        self.phase = CLOSED
        self._pending = bytearray()
        self._told = 0

    def _hello(self, data: bytes) -> None:
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
        if self.phase == HELLO:
            self.phase = TRAFFIC
            self._scan(data, hello.SIZE)

    def _scan(self, data: bytes, pos: int) -> None:
        """Pass each complete message in `data` from `pos` to the handler, keep the rest."""
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
