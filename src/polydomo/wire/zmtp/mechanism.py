"""Security mechanisms: the handshake between the greeting and the first message.

`Null` is RFC 37's NULL: each side sends READY with its metadata and waits for the other's.
"""

from abc import ABC, abstractmethod

from polydomo.errors import ProtocolError
from polydomo.wire.zmtp import commands


class Mechanism(ABC):
    """One side of a handshake."""

    name: bytes = b""

    def __init__(self, properties: dict[bytes, bytes]) -> None:
        self.properties = properties
        self.peer_properties: dict[bytes, bytes] = {}
        self.done = False

    @abstractmethod
    def start(self) -> bytes:
        """Return the commands to send directly after the greetings, as wire bytes."""

    @abstractmethod
    def receive(self, name: bytes, data: bytes) -> bytes:
        """Handle the peer's next handshake command and return the commands to send."""

    def finish(self) -> bytes:
        """Return the commands to send after the peer's metadata was accepted."""
        return b""


class Null(Mechanism):
    """No security. The listening side (`late`) sends READY only after it has accepted the peer: a refused peer gets
    ERROR instead and never considers itself connected."""

    def __init__(self, properties: dict[bytes, bytes], late: bool) -> None:
        super().__init__(properties)
        self.name = b"NULL"
        self.late = late

    def _ready(self) -> bytes:
        return commands.encode(commands.READY, commands.encode_properties(self.properties))

    def start(self) -> bytes:
        return b"" if self.late else self._ready()

    def receive(self, name: bytes, data: bytes) -> bytes:
        if name != commands.READY:
            raise ProtocolError(f"expected READY in the handshake, the peer sent {name!r}")
        self.peer_properties = commands.decode_properties(data)
        self.done = True
        return b""

    def finish(self) -> bytes:
        return self._ready() if self.late else b""
