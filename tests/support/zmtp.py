"""ZMTP over a plain TCP socket (RFC 37), for behaviour that no ZeroMQ library shows. Nothing here imports polydomo."""

from __future__ import annotations

import socket
import time
from typing import Any

PATIENCE = 20.0


def greeting(version: bytes = b"\x03\x01", mechanism: bytes = b"NULL") -> bytes:
    return b"\xff" + bytes(7) + b"\x01\x7f" + version + mechanism.ljust(20, b"\0") + bytes(32)


def command(name: bytes, data: bytes = b"") -> bytes:
    body = bytes((len(name),)) + name + data
    if len(body) > 255:
        return b"\x06" + len(body).to_bytes(8, "big") + body
    return bytes((4, len(body))) + body


def ready(socket_type: bytes = b"DEALER", identity: bytes = b"", **more: bytes) -> bytes:
    properties = {"Socket-Type": socket_type, "Identity": identity, **more}
    return command(
        b"READY",
        b"".join(
            bytes((len(name),)) + name.encode() + len(value).to_bytes(4, "big") + value
            for name, value in properties.items()
        ),
    )


def message(*frames: bytes) -> bytes:
    parts = []
    for index, frame in enumerate(frames):
        more = index < len(frames) - 1
        if len(frame) > 255:
            parts.append(bytes((2 | more,)) + len(frame).to_bytes(8, "big") + frame)
        else:
            parts.append(bytes((more, len(frame))) + frame)
    return b"".join(parts)


class Raw:
    """A TCP connection to a ZeroMQ port."""

    def __init__(self, endpoint: str, *, receive_buffer: int = 0, source: str = "") -> None:
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(PATIENCE)
        if source:
            self.socket.bind((source, 0))
        try:
            self.socket.connect((host, int(port)))
        except OSError:
            self.socket.close()
            raise
        self._unread = b""

    def shake(self, **properties: Any) -> Raw:
        """Do the whole handshake."""
        self.send(greeting() + ready(**properties))
        self.read(64)
        name, data = self.command()
        assert name == b"READY", (name, data)
        return self

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, size: int) -> bytes:
        while len(self._unread) < size:
            more = self.socket.recv(65536)
            if not more:
                raise ConnectionResetError("closed by the broker")
            self._unread += more
        data, self._unread = self._unread[:size], self._unread[size:]
        return data

    def frame(self) -> tuple[int, bytes]:
        flags = self.read(1)[0]
        size = int.from_bytes(self.read(8 if flags & 2 else 1), "big")
        return flags, self.read(size)

    def command(self) -> tuple[bytes, bytes]:
        flags, body = self.frame()
        assert flags & 4, (flags, body)
        return body[1 : 1 + body[0]], body[1 + body[0] :]

    def message(self) -> list[bytes]:
        """Return the next message. PINGs before it are skipped: their times depend on the broker's clock."""
        frames: list[bytes] = []
        while True:
            flags, body = self.frame()
            if flags & 4 and body.startswith(b"\x04PING") and not frames:
                continue
            assert not flags & 4, (flags, body)
            frames.append(body)
            if not flags & 1:
                return frames

    def refusal(self) -> str:
        """Return the reason of the broker's ERROR, which follows its greeting."""
        self.read(64)
        name, data = self.command()
        assert name == b"ERROR", (name, data)
        return data[1:].decode()

    def wait_closed(self, timeout: float = PATIENCE) -> bytes:
        """Read until the broker closes the connection; return what came before."""
        deadline = time.monotonic() + timeout
        found = self._unread
        while True:
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                more = self.socket.recv(65536)
            except TimeoutError:
                raise AssertionError(f"still open after {timeout} s; got {found[:100]!r}") from None
            except ConnectionError:
                return found
            if not more:
                return found
            found += more

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
