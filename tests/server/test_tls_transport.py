"""server/tls_transport: both sides in memory, whole and byte by byte, and against Python's own sockets."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.server.security_settings import TlsSection
from polydomo.server.tls_contexts import server_context
from polydomo.server.tls_transport import PIECE, UNREAD_REPLIES_MAX, TlsTransport
from tests.support.tls import Authority


class RawTransport(asyncio.Transport):
    """A TCP transport in memory: what is written stays in `out` until `take`."""

    def __init__(self) -> None:
        super().__init__()
        self.out: list[bytes] = []
        self.closed = ""
        self.paused = False
        self.limits: tuple[int | None, int | None] = (None, None)

    def write(self, data: Any) -> None:
        assert not self.closed
        self.out.append(bytes(data))

    def write_eof(self) -> None:
        self.closed = self.closed or "half"

    def close(self) -> None:
        self.closed = "closed"

    def abort(self) -> None:
        self.closed = "aborted"

    def is_closing(self) -> bool:
        return self.closed in ("closed", "aborted")

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_reading(self) -> bool:
        return not self.paused

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.out))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = (high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 5) if name == "peername" else default

    def take(self) -> bytes:
        data = b"".join(self.out)
        self.out.clear()
        return data


class Recorder(asyncio.Protocol):
    """The protocol above a TLS connection."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.received: list[bytes] = []
        self.events: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.received.append(data)

    def eof_received(self) -> None:
        self.events.append("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Watch:
    """The watch of a handshake: how it ended, and whether the peer is then refused."""

    def __init__(self, refuse: str = "", abort: bool = False) -> None:
        self.refuse = refuse
        self.abort = abort
        self.ended: list[str] = []

    def started(self, transport: TlsTransport) -> None:
        if self.abort:
            transport.abort()

    def finished(self, reason: str) -> str:
        self.ended.append(reason)
        return self.refuse


class Side:
    """One side of a connection."""

    def __init__(self, context: ssl.SSLContext, server_name: str | None = None, **watch: Any) -> None:
        self.inner = Recorder()
        self.watch = Watch(**watch)
        self.raw = RawTransport()
        self.tls = TlsTransport(self.inner, context, self.watch, server_name)


class Pair:
    """A client and a server; `step` bytes are carried at a time, 0: all."""

    def __init__(self, server: Side, client: Side, step: int = 0) -> None:
        self.server = server
        self.client = client
        self.step = step

    def connect(self) -> None:
        for side in (self.server, self.client):
            side.tls.connection_made(side.raw)
        self.carry()

    def carry(self) -> None:
        """Carry bytes both ways until neither side has any more."""
        while True:
            moved = False
            for sender, receiver in ((self.client, self.server), (self.server, self.client)):
                data = sender.raw.take()
                step = self.step or len(data) or 1
                for start in range(0, len(data), step):
                    moved = True
                    receiver.tls.data_received(data[start : start + step])
            if not moved:
                return


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def section(authority: Authority) -> TlsSection:
    files = authority.issue("127.0.0.1", "broker.example")
    return TlsSection(certificate=files.certificate, key=files.key, client_ca=authority.ca)


@pytest.fixture(params=[0, 1, 7], ids=["whole", "byte-by-byte", "by-seven"])
def pair(request: pytest.FixtureRequest, authority: Authority, section: TlsSection) -> Pair:
    client = Side(authority.client_context(), "broker.example")
    return Pair(Side(server_context(section)), client, request.param)


def test_the_protocols_meet_after_the_handshake(pair: Pair) -> None:
    pair.server.tls.connection_made(pair.server.raw)
    assert not pair.server.inner.events
    pair.client.tls.connection_made(pair.client.raw)
    pair.carry()
    for side in (pair.server, pair.client):
        assert side.inner.events == ["made"]
        assert side.watch.ended == [""]
        assert side.inner.transport.get_extra_info("peername") == ("10.0.0.1", 5)
        assert isinstance(side.inner.transport.get_extra_info("sslcontext"), ssl.SSLContext)


def test_bytes_arrive_as_they_were_sent(pair: Pair) -> None:
    pair.connect()
    pair.client.tls.write(b"question")
    pair.carry()
    pair.server.tls.write(memoryview(b"answer"))
    pair.server.tls.write(b"")
    pair.carry()
    assert b"".join(pair.server.inner.received) == b"question"
    assert b"".join(pair.client.inner.received) == b"answer"


def test_the_first_bytes_may_come_with_the_end_of_the_handshake(pair: Pair) -> None:
    """In TLS 1.3 the client may send at once after its last message of the handshake."""
    pair.server.tls.connection_made(pair.server.raw)
    pair.client.tls.connection_made(pair.client.raw)
    while not pair.client.inner.events:
        for sender, receiver in ((pair.client, pair.server), (pair.server, pair.client)):
            receiver.tls.data_received(sender.raw.take())
    assert not pair.server.inner.events
    pair.client.tls.write(b"at once")
    pair.carry()
    assert b"".join(pair.server.inner.received) == b"at once"


def test_a_large_write_is_one_write_below_and_one_delivery_above(
    authority: Authority, section: TlsSection
) -> None:
    pair = Pair(Side(server_context(section)), Side(authority.client_context(), "127.0.0.1"))
    pair.connect()
    data = bytes(range(256)) * (3 * PIECE // 256) + b"end"
    pair.server.tls.write(data)
    assert len(pair.server.raw.out) == 1
    assert pair.server.tls.get_write_buffer_size() >= len(data)
    pair.carry()
    assert pair.client.inner.received == [data]


def test_pauses_and_limits_are_those_of_the_tcp_transport(pair: Pair) -> None:
    server = pair.server
    pair.server.tls.connection_made(server.raw)
    server.tls.pause_writing()  # of the handshake: nobody to tell
    server.tls.resume_writing()
    pair.client.tls.connection_made(pair.client.raw)
    pair.carry()
    server.tls.pause_writing()
    server.tls.resume_writing()
    assert server.inner.events == ["made", "pause", "resume"]
    server.tls.set_write_buffer_limits(10, 0)
    server.tls.pause_reading()
    assert server.raw.limits == (10, 0)
    assert server.raw.paused
    assert not server.tls.is_reading()
    server.tls.resume_reading()
    assert not server.raw.paused


def test_close_tells_the_peer(pair: Pair) -> None:
    pair.connect()
    pair.server.tls.write(b"last")
    pair.server.tls.close()
    pair.server.tls.write(b"too late")
    assert pair.server.raw.closed == "closed"
    pair.carry()
    assert b"".join(pair.client.inner.received) == b"last"
    assert pair.client.inner.events == ["made", "eof"]
    assert pair.client.raw.closed == "closed"


def test_a_half_closed_connection_drops_what_arrives(pair: Pair) -> None:
    pair.connect()
    assert pair.server.tls.can_write_eof()
    pair.client.tls.write(b"still sending")
    pair.server.tls.write_eof()
    assert pair.server.raw.closed == "half"
    pair.carry()
    assert not pair.server.inner.received
    assert pair.client.inner.events == ["made", "eof"]


def test_a_broken_record_ends_the_connection_after_what_came_before(pair: Pair) -> None:
    pair.connect()
    pair.client.tls.write(b"valid")
    data = pair.client.raw.take()
    pair.client.tls.write(b"broken")
    broken = bytearray(pair.client.raw.take())
    broken[-1] ^= 1
    pair.server.tls.data_received(data + bytes(broken))
    assert b"".join(pair.server.inner.received) == b"valid"
    assert pair.server.raw.closed == "closed"
    pair.server.tls.write(b"too late")
    pair.server.tls.connection_lost(None)
    assert pair.server.inner.events == ["made", "lost"]


def test_a_peer_that_leaves_in_the_handshake_never_reaches_the_protocol(pair: Pair) -> None:
    pair.server.tls.connection_made(pair.server.raw)
    assert pair.server.tls.eof_received() is None
    pair.server.tls.connection_lost(None)
    assert not pair.server.inner.events
    assert "closed the connection during the TLS handshake" in pair.server.watch.ended[0]
    assert len(pair.server.watch.ended) == 1


def test_the_end_of_a_connection_is_passed_on_once(pair: Pair) -> None:
    pair.connect()
    pair.server.tls.eof_received()
    pair.server.tls.connection_lost(None)
    assert pair.server.inner.events == ["made", "eof", "lost"]
    assert pair.server.watch.ended == [""]


def test_a_connection_that_the_watch_aborts_sends_nothing(authority: Authority) -> None:
    client = Side(authority.client_context(), "127.0.0.1", abort=True)
    client.tls.connection_made(client.raw)
    assert client.raw.closed == "aborted"
    assert not client.raw.out


def test_a_peer_that_the_watch_refuses_never_reaches_the_protocol(
    authority: Authority, section: TlsSection
) -> None:
    pair = Pair(
        Side(server_context(section), refuse="no common name"), Side(authority.client_context(), "127.0.0.1")
    )
    pair.connect()
    assert not pair.server.inner.events
    assert pair.server.raw.closed == "closed"
    assert pair.client.inner.events == ["made", "eof"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", "speaks HTTP without TLS"),
        (b"\0SP\0\0\x30\0\0", "does not speak TLS"),
        (b"\x16\x03\x01\xff\xff" + bytes(20), "TLS"),
    ],
)
def test_a_peer_without_tls_is_refused_with_the_reason(section: TlsSection, data: bytes, reason: str) -> None:
    server = Side(server_context(section))
    server.tls.connection_made(server.raw)
    server.tls.data_received(data)
    assert reason in server.watch.ended[0]
    assert server.raw.closed == "closed"
    assert not server.inner.events


def test_a_certificate_of_another_host_is_refused(authority: Authority, section: TlsSection) -> None:
    pair = Pair(Side(server_context(section)), Side(authority.client_context(), "elsewhere.example"))
    pair.connect()
    assert "Hostname mismatch" in pair.client.watch.ended[0]
    assert not pair.client.inner.events


def test_a_certificate_of_an_unknown_authority_is_refused(tmp_path: Path, section: TlsSection) -> None:
    pair = Pair(Side(server_context(section)), Side(Authority(tmp_path).client_context(), "127.0.0.1"))
    pair.connect()
    assert "the peer's certificate is refused: " in pair.client.watch.ended[0]
    assert "does not trust the authority" in pair.server.watch.ended[0]


def test_a_client_certificate_is_known_after_the_handshake(authority: Authority, section: TlsSection) -> None:
    files = authority.issue(common_name="worker-1")
    pair = Pair(Side(server_context(section)), Side(authority.client_context(files), "127.0.0.1"))
    pair.server.tls.connection_made(pair.server.raw)
    assert pair.server.tls.get_extra_info("peercert", "none") == "none"
    pair.client.tls.connection_made(pair.client.raw)
    pair.carry()
    subject = pair.server.tls.get_extra_info("peercert")["subject"]
    assert (("commonName", "worker-1"),) in subject


@given(data=st.binary(min_size=1, max_size=600), chunk=st.integers(1, 200))
def test_no_bytes_pass_the_handshake_or_raise(section: TlsSection, data: bytes, chunk: int) -> None:
    server = Side(server_context(section))
    server.tls.connection_made(server.raw)
    for start in range(0, len(data), chunk):
        server.tls.data_received(data[start : start + chunk])
    server.tls.connection_lost(None)
    assert not server.inner.events
    assert len(server.watch.ended) == 1
    assert server.watch.ended[0]


@given(position=st.integers(0, 10_000), flip=st.integers(1, 255), flight=st.integers(0, 2))
def test_a_changed_byte_ends_the_connection_and_delivers_nothing(
    authority: Authority, section: TlsSection, position: int, flip: int, flight: int
) -> None:
    """In the client's hello, in its last message of the handshake, or in its data."""
    server = Side(server_context(section))
    client = Side(authority.client_context(), "127.0.0.1")
    client.tls.connection_made(client.raw)
    server.tls.connection_made(server.raw)
    for number in range(3):
        if number == 2 and client.inner.events:
            client.tls.write(b"data")
        data = bytearray(client.raw.take())
        if number == flight and data:
            # The version of the outer record, which TLS 1.3 ignores (RFC 8446 §5.1), is left alone.
            place = position % len(data)
            data[5 if place in (1, 2) else place] ^= flip
        server.tls.data_received(bytes(data))
        if client.raw.closed or server.raw.closed:
            break
        client.tls.data_received(server.raw.take())
    server.tls.connection_lost(None)
    assert not server.inner.received
    assert server.inner.events == (["made", "lost"] if flight == 2 else [])


class Chatty:
    """An SSLContext and its SSLObject, which answer a kilobyte to whatever is read. Python cannot send KeyUpdate."""

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **options: Any) -> Chatty:
        self.incoming, self.outgoing = incoming, outgoing
        return self

    def do_handshake(self) -> None: ...

    def read(self, size: int) -> bytes:
        if self.incoming.read():
            self.outgoing.write(bytes(1024))
        raise ssl.SSLWantReadError


@pytest.mark.parametrize("reads", [True, False])
def test_a_peer_that_never_reads_the_answers_of_tls_is_cut(reads: bool) -> None:
    server = Side(Chatty())  # type: ignore[arg-type]
    server.tls.connection_made(server.raw)
    for _ in range(UNREAD_REPLIES_MAX // 1024):
        server.tls.data_received(b"KeyUpdate")
        if reads:
            server.raw.take()
    assert not server.raw.closed
    server.tls.data_received(b"KeyUpdate")
    assert server.raw.closed == ("" if reads else "aborted")


def test_old_versions_of_tls_are_refused(authority: Authority, section: TlsSection) -> None:
    context = authority.client_context()
    with warnings.catch_warnings(action="ignore"):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    pair = Pair(Side(server_context(section)), Side(context, "127.0.0.1"))
    pair.connect()
    assert "too old" in pair.server.watch.ended[0]
