"""Common part of ZMTP's and SP's connections: chunks of bytes become complete messages, without a socket.

`receive` takes chunks of any size. A message that lies within one chunk is passed on at once; only one that spans
chunks is collected, and it is parsed again when enough of it has arrived.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, Generic, TypeVar

from mypy_extensions import mypyc_attr

from polydomo.errors import ProtocolError

# Phases of a connection. SP has no HANDSHAKE. In SECURE_TRAFFIC, messages are decrypted before they are scanned.
GREETING: Final = 0
HANDSHAKE: Final = 1
TRAFFIC: Final = 2
CLOSED: Final = 3
SECURE_TRAFFIC: Final = 4

# An incomplete message is reported to the handler each time it has grown by this many bytes.
BUFFER_STEP: Final = 65536


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamHandler(ABC):
    """Owner of a connection: its output and its events."""

    @abstractmethod
    def transmit(self, data: bytes) -> None:
        """Write bytes to the peer."""

    @abstractmethod
    def failed(self, error: ProtocolError) -> None:
        """Close the socket: the peer violated the protocol or refused the connection, and no more events follow."""

    def buffered(self, size: int) -> None:  # noqa: B027 (optional)
        """Note that an incomplete message has grown to `size` bytes; 0: it is complete. Called every `BUFFER_STEP`."""


HandlerT = TypeVar("HandlerT", bound=StreamHandler)


class Stream(ABC, Generic[HandlerT]):
    """One end of a connection."""

    def __init__(self, handler: HandlerT) -> None:
        self.handler = handler
        self.phase = GREETING
        self.paused = False
        self.spanned = 0  # messages that came in more than one chunk
        self._pending = bytearray()  # an incomplete message
        self._need = 0  # size of _pending at which it is worth parsing again
        self._told = 0  # size of _pending last reported to the handler

    def receive(self, data: bytes) -> None:
        """Parse bytes from the peer, in chunks of any size."""
        pending = self._pending
        if pending:
            pending += data
            if len(pending) < self._need or (
                self.phase == TRAFFIC and (self.paused or not self._can_parse())
            ):
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
            elif self.phase != CLOSED:
                self._handshake(data)
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
        """Close the connection because of an error."""
        if self.phase != CLOSED:
            self.close()
            self.handler.failed(error)

    def close(self) -> None:
        """Drop the bytes kept and ignore new ones; the handler is not called."""
        self.phase = CLOSED
        self._pending = bytearray()
        self._told = 0

    @abstractmethod
    def _handshake(self, data: bytes) -> None:
        """Parse the bytes before the first message: few, kept until a step is complete. Bytes in SECURE_TRAFFIC are
        passed to this method, too, so that plain traffic needs no check for it."""

    @abstractmethod
    def _scan(self, data: bytes, pos: int) -> None:
        """Pass each complete message in `data` from `pos` to the handler, keep the rest."""

    def _can_parse(self) -> bool:
        """Return whether `_scan` should see the pending message, which has reached the size `_need`."""
        return True
