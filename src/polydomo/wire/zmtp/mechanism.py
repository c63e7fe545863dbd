"""Security mechanisms: what happens between the greeting and the first message.

`Null` is RFC 37's NULL: each side sends READY with its metadata and waits for the other's. A mechanism that encrypts
(CURVE) fits behind the same interface: it makes and reads the handshake's commands, and says with `transforms` that
traffic must pass through `decode` and `encode` on its way.
"""

from abc import ABC, abstractmethod

from polydomo.errors import ProtocolError
from polydomo.wire.zmtp import commands


class Mechanism(ABC):
    """One side of one connection's handshake."""

    name: bytes = b""
    transforms: bool = False

    def __init__(self, properties: dict[bytes, bytes]) -> None:
        self.properties = properties
        self.peer_properties: dict[bytes, bytes] = {}
        self.done = False

    @abstractmethod
    def start(self) -> bytes:
        """Commands to send right after the greetings, as wire bytes."""

    @abstractmethod
    def receive(self, name: bytes, data: bytes) -> bytes:
        """Take the peer's next handshake command; gives back commands to send."""

    def finish(self) -> bytes:
        """Commands to send once the peer's metadata has been accepted."""
        return b""


class Null(Mechanism):
    """No security. Our READY goes out only once the peer was accepted when we listen (`late`), so that a refused
    peer gets ERROR instead of READY and never believes it is connected."""

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
