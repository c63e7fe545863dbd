"""Wire format of pyload: MDP's dialects as frames, and the part of ZMTP 3.0 (NULL) that a DEALER needs.

A dialect is data: the frames before the body or the address, and the position of the command byte.
"""

from dataclasses import dataclass

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
SERVICE = None  # placeholder of the service's name in a dialect's frames

Parts = tuple[bytes | None, ...]


@dataclass(frozen=True)
class Dialect:
    """Frames that a broker of that kind expects."""

    request: Parts = ()  # a client's frames before the body
    reply_command_at: int = -1  # index of the command frame; -1: none
    reply_final: int = 0
    ready: Parts = ()
    heartbeat: Parts = ()
    final: Parts = ()  # a worker's frames before the address
    command_at: int = -1
    command_request: int = 0
    command_disconnect: int = 0
    address_at: int = 0  # index of the client's address; echoed from here on


DIALECTS = {
    "mdp02": Dialect(
        request=(b"MDPC02", b"\x01", SERVICE),
        reply_command_at=1,
        reply_final=3,
        ready=(b"MDPW02", b"\x01", SERVICE),
        heartbeat=(b"MDPW02", b"\x05"),
        final=(b"MDPW02", b"\x04"),
        command_at=1,
        command_request=2,
        command_disconnect=6,
        address_at=2,
    ),
    "mdp01": Dialect(
        request=(b"", b"MDPC01", SERVICE),
        ready=(b"", b"MDPW01", b"\x01", SERVICE),
        heartbeat=(b"", b"MDPW01", b"\x04"),
        final=(b"", b"MDPW01", b"\x03"),
        command_at=2,
        command_request=2,
        command_disconnect=5,
        address_at=3,
    ),
    "tomo": Dialect(  # majortomo: 0.2's headers after an empty frame, other numbers towards the client
        request=(b"", b"MDPC02", b"\x02", SERVICE),
        reply_command_at=2,
        reply_final=4,
        ready=(b"", b"MDPW02", b"\x01", SERVICE),
        heartbeat=(b"", b"MDPW02", b"\x05"),
        final=(b"", b"MDPW02", b"\x04"),
        command_at=2,
        command_request=2,
        command_disconnect=6,
        address_at=3,
    ),
    "raw": Dialect(),  # a bare proxy: workers send [address][body] back
    "echo": Dialect(),  # a ROUTER that answers by itself: no workers
}


def frame(body: bytes, more: bool) -> bytes:
    if len(body) > 255:
        return bytes([2 | more]) + len(body).to_bytes(8, "big") + body
    return bytes([more, len(body)]) + body


def encode(parts: Parts, service: bytes, head: bool = False) -> bytes:
    """Encode parts as frames; a head has MORE on its last frame too, because a body follows."""
    last = len(parts) - 1
    return b"".join(frame(service if p is None else p, head or i < last) for i, p in enumerate(parts))


def handshake(identity: bytes) -> bytes:
    ready = b"\x05READY"
    for name, value in ((b"Socket-Type", b"DEALER"), (b"Identity", identity)):
        ready += bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value
    return bytes([4, len(ready)]) + ready


@dataclass
class Message:
    """One message in a connection's inbox: the start of each frame's header and content, and the end."""

    data: bytes
    heads: list[int]
    starts: list[int]
    end: int
    is_command: bool

    def command(self, at: int) -> int:
        return self.data[self.starts[at]] if at < len(self.starts) and self.starts[at] < self.end else -1


def next_message(data: bytes, at: int) -> Message | None:
    """Return the complete message or command that starts at `at`, or None while bytes are missing."""
    heads, starts, limit = [], [], len(data)
    while at + 2 <= limit:
        heads.append(at)
        flags = data[at]
        if flags & 2:
            size = int.from_bytes(data[at + 1 : at + 9], "big")
            at += 9
        else:
            size = data[at + 1]
            at += 2
        starts.append(at)
        at += size
        if at > limit:
            return None
        if not flags & 1:
            return Message(data, heads, starts, at, bool(flags & 4))
    return None
