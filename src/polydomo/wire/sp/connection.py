"""One SP connection without a socket: bytes in, messages out, for either end of REQ and REP.

`start` sends our hello. `receive` takes whatever the socket read, in any cut, and calls the handler: `peer_ready` once,
then `message` for each whole message, or `failed` once, after which it is over. A message's size is looked at before
anything is kept for it, so a peer can make us hold one message of the allowed size and no more.
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

# A message that arrives in many chunks is reported each time it has grown by this much.
BUFFER_STEP: Final = 65536

# Whom each role talks to.
OPPOSITE: Final = {REP: REQ, REQ: REP}


@mypyc_attr(allow_interpreted_subclasses=True)
class Handler(ABC):
    """What a connection needs of its owner."""

    @abstractmethod
    def transmit(self, data: bytes) -> None:
        """Send these bytes to the peer at once: the hello."""

    @abstractmethod
    def peer_ready(self) -> None:
        """The peer is one we can talk to. Raise ProtocolError to refuse it all the same."""

    @abstractmethod
    def message(self, stack: bytes, data: bytes, start: int, end: int) -> None:
        """A whole message: its request IDs; its content lies in `data` from `start` to `end`."""

    @abstractmethod
    def dropped(self, reason: str) -> None:
        """A message was left out; the connection goes on."""

    @abstractmethod
    def failed(self, error: ProtocolError) -> None:
        """The peer broke the protocol; nothing more will come. Close the socket."""

    def buffered(self, size: int) -> None:  # noqa: B027 (only those who watch their memory care)
        """An unfinished message has grown to `size` bytes; 0: it is whole. Called in steps of `BUFFER_STEP`."""


class Connection:
    """See the module's text. `role` is our own: REP or REQ; `limit` is the largest message, its stack included."""

    def __init__(self, handler: Handler, role: int, limit: int, ipc: bool = False) -> None:
        self.handler = handler
        self.role = role
        self.limit = limit
        self.ipc = ipc
        self.phase = HELLO
        self.paused = False
        self.spanned = 0  # messages handed on that came in more than one chunk
        self._lead = 9 if ipc else 8  # bytes before a message
        self._pending = bytearray()  # the start of a message whose end has not come
        self._need = 0  # no use looking at _pending before it holds this many bytes
        self._told = 0  # bytes in _pending that the handler knows of

    def start(self) -> None:
        """Send our hello. Both sides do so at once."""
        self.handler.transmit(hello.encode(self.role))

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer, in any cut."""
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
        """Hand on no more messages until `resume`; what the peer already sent is kept."""
        self.paused = True

    def resume(self) -> None:
        """Go on with what was kept, then with new bytes."""
        if not self.paused:
            return
        self.paused = False
        if self._pending:
            self.receive(b"")

    def kept(self) -> int:
        """Bytes received and not yet handed on."""
        return len(self._pending)

    def fail(self, error: ProtocolError) -> None:
        """Give the peer up. SP has no word for it: its connection is closed."""
        if self.phase != CLOSED:
            self.phase = CLOSED
            self._pending = bytearray()
            self.handler.failed(error)

    def close(self) -> None:
        """Drop what was kept and take nothing more; the handler is not told."""
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
                f"the peer is a {hello.name(theirs)} socket, and a {hello.name(OPPOSITE[self.role])} is needed here"
            )
        self.handler.peer_ready()
        if self.phase == HELLO:
            self.phase = TRAFFIC
            self._scan(data, hello.SIZE)

    def _scan(self, data: bytes, pos: int) -> None:
        """Cut whole messages off `data` from `pos` and hand each on."""
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
                    hint="raise limits.message_bytes if it is meant",
                )
            if length < 4:
                raise ProtocolError("a message without a request ID", hint="REQ sockets never send one")
            end = start + length
            if end > size:  # cut by the end of the chunk
                self._pending += data[pos:]
                self._need = end - pos
                return
            pos = end
            if data[start] & 0x80:  # as nearly always: no device on the way
                handler.message(data[start : start + 4], data, start + 4, end)
            else:
                rest = stack_end(data, start, end)
                if rest < 0:
                    handler.dropped("a stack of too many request IDs: it went in circles")
                else:
                    handler.message(data[start:rest], data, rest, end)
            if self.phase != TRAFFIC:
                return
