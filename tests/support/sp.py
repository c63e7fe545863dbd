"""SP in bytes, encoded by the specification and not by our code; and a handler that records its calls."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

from polydomo.errors import ProtocolError
from polydomo.wire.sp.connection import Connection, Handler
from polydomo.wire.sp.hello import REP
from polydomo.wire.stream import TRAFFIC

Call = tuple[object, ...]

REQ_HELLO = b"\x00SP\x00\x00\x30\x00\x00"
REP_HELLO = b"\x00SP\x00\x00\x31\x00\x00"


def hello(protocol: int) -> bytes:
    return b"\x00SP\x00" + struct.pack(">H", protocol) + b"\x00\x00"


def request(number: int, content: bytes, *devices: int, ipc: bool = False) -> bytes:
    """Encode a message with a request ID, after the words of the devices it passed."""
    stack = b"".join(struct.pack(">I", word) for word in (*devices, number | 0x80000000))
    return (b"\x01" if ipc else b"") + struct.pack(">Q", len(stack) + len(content)) + stack + content


def split(data: bytes, *, ipc: bool = False) -> list[tuple[int, bytes]]:
    """Decode complete messages with one-word IDs: number and content of each."""
    found = []
    pos = 0
    while pos < len(data):
        if ipc:
            assert data[pos] == 1
            pos += 1
        (size,) = struct.unpack_from(">Q", data, pos)
        (word,) = struct.unpack_from(">I", data, pos + 8)
        assert word & 0x80000000
        assert pos + 8 + size <= len(data), "truncated"
        found.append((word & 0x7FFFFFFF, data[pos + 12 : pos + 8 + size]))
        pos += 8 + size
    return found


class Recorder(Handler):
    """Records `calls` in order, and `sent` bytes. `on_message` may pause or fail the connection from inside a call."""

    def __init__(self, refuse: str = "") -> None:
        self.sent = b""
        self.calls: list[Call] = []
        self.refuse = refuse
        self.on_message: Callable[[], None] | None = None

    def transmit(self, data: bytes) -> None:
        self.sent += data

    def peer_ready(self) -> None:
        if self.refuse:
            raise ProtocolError(self.refuse)
        self.calls.append(("ready",))

    def message(self, stack: bytes, data: bytes, start: int, end: int) -> None:
        assert type(data) is bytes
        assert 0 <= start <= end <= len(data)
        self.calls.append(("message", stack, data[start:end]))
        if self.on_message is not None:
            self.on_message()

    def dropped(self, reason: str) -> None:
        self.calls.append(("dropped",))

    def failed(self, error: ProtocolError) -> None:
        self.calls.append(("failed", error.message))

    def messages(self) -> list[tuple[object, ...]]:
        return [call[1:] for call in self.calls if call[0] == "message"]

    def failures(self) -> list[object]:
        return [call[1] for call in self.calls if call[0] == "failed"]


def connect(role: int = REP, limit: int = 600, ipc: bool = False) -> tuple[Connection, Recorder]:
    recorder = Recorder()
    connection = Connection(recorder, role, limit, ipc)
    connection.start()
    return connection, recorder


def in_traffic(limit: int = 600, ipc: bool = False) -> tuple[Connection, Recorder]:
    connection, recorder = connect(limit=limit, ipc=ipc)
    connection.receive(REQ_HELLO)
    assert connection.phase == TRAFFIC
    recorder.calls.clear()
    return connection, recorder


class Raw:
    """A real socket that speaks SP byte by byte."""

    def __init__(self, endpoint: str, first: bytes = REQ_HELLO) -> None:
        if endpoint.startswith("ipc://"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(endpoint[len("ipc://") :])
        else:
            host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
            self.socket = socket.create_connection((host.strip("[]"), int(port)))
        self.socket.settimeout(10)
        self.socket.sendall(first)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self.socket.recv(size - len(found))
            assert more, "closed by the broker"
            found += more
        return found

    def receive_message(self) -> tuple[int, bytes]:
        (size,) = struct.unpack(">Q", self.receive(8))
        content = self.receive(size)
        return struct.unpack(">I", content[:4])[0] & 0x7FFFFFFF, content[4:]

    def is_closed(self) -> bool:
        """Return whether the broker closes the connection within a while, after reading what came before."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
