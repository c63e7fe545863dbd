"""Handshakes with CURVE that are refused: the operator reads the reason in the log and in the audit log.

The peers are made by hand (tests/support/curve.py), because no library does what they do. Keys that libzmq's peers and
our own show are in test_key_approval.py.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from polydomo.errors import PolydomoError
from polydomo.security.audit_check import read
from polydomo.security.audit_record import DENIED
from polydomo.security.key_files import fingerprint
from polydomo.security.keys import ACCEPTED, PENDING, REJECTED, KeyFolder
from polydomo.server.server import BrokerServer
from polydomo.server.settings import (
    AuditSection,
    BrokerSection,
    LimitsSection,
    SecuritySection,
    Settings,
)
from polydomo.wire.curve.keys import KeyPair, encode_key, new_key_pair
from tests.support import zmtp
from tests.support.curve import METADATA, HandClient
from tests.support.zmq_ends import patient

ANYWHERE = "tcp://127.0.0.1:*"
GREETING = 64

# Keys in the folder of each broker, by the state that their names say.
GOOD, OTHER, REFUSED, REVOKED = (new_key_pair(os.urandom) for _ in range(4))


@pytest.fixture
def folder(tmp_path: Path) -> KeyFolder:
    folder = KeyFolder(tmp_path / "keys")
    folder.open()
    for pair, name, *states in (
        (GOOD, "good", ACCEPTED),
        (OTHER, "other", ACCEPTED),
        (REFUSED, "refused", REJECTED),
        (REVOKED, "revoked", ACCEPTED, REJECTED),
    ):
        for state in states:
            folder.move(folder.resolve(encode_key(pair.public)), state, name)
    return folder


@asynccontextmanager
async def running(folder: KeyFolder, **limits: float) -> AsyncIterator[BrokerServer]:
    server = BrokerServer(
        Settings(
            broker=BrokerSection(zmq=[ANYWHERE], events=[ANYWHERE], data=""),
            security=SecuritySection(curve="on", keys=str(folder.path)),
            audit=AuditSection(folder=str(folder.path.parent / "audit")),
            limits=LimitsSection(**limits),
        )
    )
    await server.start()
    yield server
    server.stop(drain=False)
    await server.wait()


@pytest.fixture
async def server(folder: KeyFolder) -> AsyncIterator[BrokerServer]:
    async with running(folder) as server:
        yield server


class Peer:
    """A connection of a client that is made by hand; remembers what it has sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, folder: KeyFolder) -> None:
        self.reader = reader
        self.writer = writer
        self.folder = folder
        self.hand = HandClient(folder.open().public)
        self.metadata = METADATA
        self.sent = b""

    def send(self, data: bytes) -> None:
        self.sent += data
        self.writer.write(data)

    def greet(self, mechanism: bytes = b"CURVE") -> None:
        self.send(zmtp.greeting(mechanism=mechanism))

    async def hello(self) -> None:
        """Greet, send HELLO and read WELCOME."""
        self.greet()
        self.send(zmtp.command(b"HELLO", self.hand.hello()))
        await self.reader.readexactly(GREETING)
        await self.read_welcome()

    async def read_welcome(self) -> None:
        head = await self.reader.readexactly(2)
        size = head[1] if head[0] == 4 else int.from_bytes(head[1:] + await self.reader.readexactly(7), "big")
        body = await self.reader.readexactly(size)
        assert body[:8] == b"\x07WELCOME"
        self.hand.welcomed(body[8:])

    def initiate(self, pair: KeyPair, vouching: bytes = b"") -> bytes:
        """Return INITIATE for this key, vouched for with another secret key if one is given."""
        return self.hand.initiate(key=pair.public, vouching=vouching or pair.secret, metadata=self.metadata)

    async def show(self, pair: KeyPair) -> None:
        await self.hello()
        self.send(zmtp.command(b"INITIATE", self.initiate(pair)))


async def connect(server: BrokerServer, folder: KeyFolder, kind: str) -> Peer:
    host, port = server.groups[kind].bound[0].removeprefix("tcp://").split(":")
    peer = Peer(*await asyncio.open_connection(host, int(port)), folder)
    if kind == "events":
        peer.metadata = METADATA.replace(b"\6DEALER", b"\3SUB")
    return peer


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


# What strangers try: each ends with its last bytes sent.


async def shows_an_unknown_key(peer: Peer) -> None:
    await peer.show(new_key_pair(os.urandom))


async def shows_a_pending_key(peer: Peer) -> None:
    pair = new_key_pair(os.urandom)
    assert peer.folder.record(pair.public, "waiting", "10.0.0.1:5", PENDING, 10)
    await peer.show(pair)


async def shows_a_rejected_key(peer: Peer) -> None:
    await peer.show(REFUSED)


async def shows_a_revoked_key(peer: Peer) -> None:
    await peer.show(REVOKED)


async def names_a_key_that_it_does_not_own(peer: Peer) -> None:
    await peer.hello()
    peer.send(zmtp.command(b"INITIATE", peer.initiate(GOOD, vouching=OTHER.secret)))


async def expects_another_server(peer: Peer) -> None:
    peer.hand = HandClient(OTHER.public)
    peer.greet()
    peer.send(zmtp.command(b"HELLO", peer.hand.hello()))


async def sends_a_short_hello(peer: Peer) -> None:
    peer.greet()
    peer.send(zmtp.command(b"HELLO", peer.hand.hello()[:-1]))


async def sends_a_short_initiate(peer: Peer) -> None:
    """Its box is cut, in a command that is complete."""
    await peer.hello()
    peer.send(zmtp.command(b"INITIATE", peer.initiate(GOOD)[:-1]))


async def hangs_up_in_initiate(peer: Peer) -> None:
    await peer.hello()
    peer.send(zmtp.command(b"INITIATE", peer.initiate(GOOD))[:-1])
    peer.writer.close()


async def requires_null(peer: Peer) -> None:
    peer.greet(b"NULL")


async def requires_plain(peer: Peer) -> None:
    peer.greet(b"PLAIN")


async def goes_down_to_null_after_the_greeting(peer: Peer) -> None:
    peer.greet()
    peer.send(zmtp.ready())


async def goes_down_to_null_after_hello(peer: Peer) -> None:
    await peer.hello()
    peer.send(zmtp.ready())


async def sends_a_plain_message_instead_of_initiate(peer: Peer) -> None:
    await peer.hello()
    peer.send(zmtp.message(b"MDPC02", b"\1", b"mmi.service", b"echo"))


ATTEMPTS: dict[Callable[[Peer], Awaitable[None]], str] = {
    shows_an_unknown_key: "waits for approval (polydomo keys accept",
    shows_a_pending_key: "waits for approval (polydomo keys accept",
    shows_a_rejected_key: f"the key {fingerprint(REFUSED.public)} is rejected",
    shows_a_revoked_key: f"the key {fingerprint(REVOKED.public)} is rejected",
    names_a_key_that_it_does_not_own: "the client does not own the CURVE key that it names",
    expects_another_server: "the client expects a server with another key",
    sends_a_short_hello: "CURVE's HELLO has 193 bytes of data instead of 194",
    sends_a_short_initiate: "CURVE's INITIATE cannot be decrypted",
    hangs_up_in_initiate: "the peer disconnected in its handshake",
    requires_null: "the peer requires the security mechanism NULL, this side CURVE",
    requires_plain: "the peer requires the security mechanism PLAIN, this side CURVE",
    goes_down_to_null_after_the_greeting: "expected HELLO in the CURVE handshake, the peer sent b'READY'",
    goes_down_to_null_after_hello: "expected INITIATE in the CURVE handshake, the peer sent b'READY'",
    sends_a_plain_message_instead_of_initiate: "a message before the end of the handshake",
}


@patient
@pytest.mark.parametrize("kind", ["zmq", "events"])
@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.__name__)
async def test_a_stranger_is_refused_and_the_operator_reads_why(
    server: BrokerServer,
    folder: KeyFolder,
    caplog: pytest.LogCaptureFixture,
    attempt: Callable[[Peer], Awaitable[None]],
    kind: str,
) -> None:
    peer = await connect(server, folder, kind)
    await attempt(peer)
    reason = ATTEMPTS[attempt]
    ((line, denial),) = await refusals(folder, caplog)
    assert reason in line
    assert reason in denial
    assert b"\x05READY" not in await rest_of(peer)
    assert not server.groups[kind].peers


@patient
@pytest.mark.parametrize("kind", ["zmq", "events"])
async def test_a_handshake_that_stops_in_hello_is_cut(
    folder: KeyFolder, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    async with running(folder, handshake=0.1) as server:
        peer = await connect(server, folder, kind)
        peer.greet()
        peer.send(zmtp.command(b"HELLO", peer.hand.hello())[:-1])
        assert b"\x05READY" not in await rest_of(peer)
        ((line, denial),) = await refusals(folder, caplog)
        assert "no handshake within 0.1 s" in line
        assert "no handshake within 0.1 s" in denial
        assert not server.groups[kind].peers


@patient
@pytest.mark.parametrize("kind", ["zmq", "events"])
async def test_a_replayed_handshake_is_refused_as_a_whole_and_in_part(
    server: BrokerServer, folder: KeyFolder, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """The bytes of a client that got in let nobody else in: the server's keys and cookie are other ones."""
    good = await connect(server, folder, kind)
    await good.show(GOOD)
    await until(lambda: server.groups[kind].peers)
    good.writer.close()
    await until(lambda: not server.groups[kind].peers)
    replay = await connect(server, folder, kind)
    replay.send(good.sent)
    await rest_of(replay)
    own_hello = await connect(server, folder, kind)
    await own_hello.hello()
    own_hello.send(good.sent[good.sent.index(b"\x08INITIATE") - 9 :])
    await rest_of(own_hello)
    reason = "the cookie of CURVE's INITIATE is not the one of this connection"
    assert all(reason in line and reason in denial for line, denial in await refusals(folder, caplog, 2))
    assert not server.groups[kind].peers


@patient
async def test_a_key_has_its_own_name_whatever_its_owner_says(
    server: BrokerServer, folder: KeyFolder
) -> None:
    """A ZeroMQ identity is no principal: `other` with the identity `good` is still `other`."""
    peer = await connect(server, folder, "zmq")
    peer.metadata = METADATA[: -len(b"\0\0\0\0")] + b"\0\0\0\4good"
    await peer.show(OTHER)
    await until(lambda: server.zmq.peers)
    (found,) = server.zmq.peers
    assert (found.link.identity, found.link.principal) == (b"good", "other")
    peer.writer.close()


@patient
async def test_an_unknown_key_that_suggests_an_accepted_name_waits_and_cannot_be_given_it(
    server: BrokerServer, folder: KeyFolder, caplog: pytest.LogCaptureFixture
) -> None:
    peer = await connect(server, folder, "zmq")
    peer.metadata = METADATA[: -len(b"\0\0\0\0")] + b"\0\0\0\4good"
    await peer.show(new_key_pair(os.urandom))
    await refusals(folder, caplog)
    (waiting,) = folder.entries(PENDING)
    assert waiting.name == "good"
    with pytest.raises(PolydomoError, match="another accepted key has the name 'good'"):
        folder.move(waiting, ACCEPTED)
    assert not server.zmq.peers
    await rest_of(peer)


async def refusals(
    folder: KeyFolder, caplog: pytest.LogCaptureFixture, count: int = 1
) -> list[tuple[str, str]]:
    """Return the log's lines and the audit log's reasons of refused handshakes, when there are that many of each."""
    audit = folder.path.parent / "audit"
    events = ("peer refused", "peer cut", "handshake not finished")

    def lines() -> list[str]:
        return [text for text in (one.getMessage() for one in caplog.records) if text.startswith(events)]

    def denials() -> list[str]:
        return [one.reason for one in read(audit) if one is not None and one.kind == DENIED]

    await until(lambda: len(lines()) >= count and len(denials()) >= count)
    return list(zip(lines(), denials(), strict=True))


async def rest_of(peer: Peer) -> bytes:
    """Return what the broker still sends before it closes the connection."""
    try:
        return await peer.reader.read()
    except ConnectionError:
        return b""
    finally:
        peer.writer.close()
