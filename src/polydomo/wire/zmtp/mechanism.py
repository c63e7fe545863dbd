"""Security mechanisms of ZMTP: the commands of a handshake, and the encryption of the traffic after it.

A connection has one `Mechanism` for its whole life. After the peer's greeting it calls `start`, then `receive` for each
handshake command until `metadata` is set, then `finish`. NULL is here; CURVE is in `wire/curve`.
"""

from abc import ABC, abstractmethod

from polydomo.errors import ProtocolError
from polydomo.wire.zmtp import commands


class SecureTraffic(ABC):
    """Encrypted traffic in both directions."""

    @abstractmethod
    def seal(self, frames: bytes) -> bytes:
        """Encrypt complete frames. The results must be sent in the order of the calls."""

    @abstractmethod
    def feed(self, data: bytes) -> None:
        """Take bytes from the peer, in chunks of any size."""

    @abstractmethod
    def next_message(self) -> bytes | None:
        """Return the frames of the next message or command, None if it is incomplete; raise ProtocolError if it breaks
        a limit or was not sent by the peer."""

    @abstractmethod
    def kept(self) -> int:
        """Return how many bytes of incomplete messages are held."""


class Mechanism(ABC):
    """One end's security mechanism on one connection."""

    def __init__(self, name: bytes, *, as_server: bool, encrypts: bool, sends_error: bool) -> None:
        self.name = name  # in the greeting
        self.as_server = as_server  # in the greeting
        self.encrypts = encrypts  # `open_traffic` returns one
        self.sends_error = sends_error  # a failed handshake is reported to the peer
        self.metadata: bytes | None = None  # the peer's encoded properties; None: not received yet
        self.key = b""  # the peer's long-term public key, proved when `metadata` is set; b"": NULL

    @abstractmethod
    def start(self, metadata: bytes) -> bytes:
        """Return the first command, or `b""` if the peer sends it. `metadata` are this side's encoded properties."""

    @abstractmethod
    def receive(self, name: bytes, data: bytes) -> bytes:
        """Handle a handshake command and return the reply, or `b""`."""

    @abstractmethod
    def finish(self) -> bytes:
        """Return the last command, or `b""`, after the peer was accepted."""

    def open_traffic(self, message_bytes: int, frames: int) -> SecureTraffic | None:
        """Return the encryption of the traffic, with limits on one message; None: the traffic is plain."""
        return None


class NullMechanism(Mechanism):
    """No security (RFC 37 §The NULL Security Mechanism): both ends send READY with their metadata.

    The listening end sends it last, so that a refused peer gets ERROR instead and never considers itself connected.
    """

    def __init__(self, listening: bool) -> None:
        super().__init__(b"NULL", as_server=False, encrypts=False, sends_error=True)
        self._listening = listening
        self._ready = b""

    def start(self, metadata: bytes) -> bytes:
        self._ready = commands.encode(commands.READY, metadata)
        return b"" if self._listening else self._ready

    def receive(self, name: bytes, data: bytes) -> bytes:
        if name != commands.READY:
            raise ProtocolError(f"expected READY in the handshake, the peer sent {name!r}")
        self.metadata = data
        return b""

    def finish(self) -> bytes:
        return self._ready if self._listening else b""
