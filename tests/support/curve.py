"""CURVE by hand (RFC 26), with PyNaCl's high-level classes, for commands that no correct peer sends.

Nothing here imports polydomo.wire.curve except the pair of real connections at the end.
"""

from __future__ import annotations

import os
from random import Random

from nacl.public import Box, PrivateKey, PublicKey
from nacl.secret import SecretBox

from polydomo.wire.curve.client import CurveClient
from polydomo.wire.curve.keys import KeyPair
from polydomo.wire.curve.server import CurveServer
from polydomo.wire.zmtp.connection import Connection, ConnectionLimits
from tests.support import zmtp
from tests.support.recorder import Recorder, connect

# Test keys of zmq_curve(7).
CLIENT_SECRET = bytes.fromhex("7BB864B489AFA3671FBE69101F94B38972F24816DFB01B51656B3FEC8DFD0888")
SERVER_SECRET = bytes.fromhex("8E0BDD697628B91D8F245587EE95C5B04D48963F79259877B49CD9063AEAD3B7")
CLIENT = KeyPair(CLIENT_SECRET)
SERVER = KeyPair(SERVER_SECRET)

# Points of low order (RFC 7748 §6.1: their shared secret is zero with any secret key).
LOW_ORDER = [
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
]

METADATA = b"\x0bSocket-Type\0\0\0\6DEALER\x08Identity\0\0\0\0"


def box(secret: bytes, public: bytes, nonce: bytes, content: bytes) -> bytes:
    return Box(PrivateKey(secret), PublicKey(public)).encrypt(content, nonce).ciphertext


def open_box(secret: bytes, public: bytes, nonce: bytes, sealed: bytes) -> bytes:
    return Box(PrivateKey(secret), PublicKey(public)).decrypt(sealed, nonce)


def short(number: int) -> bytes:
    return number.to_bytes(8, "big")


class HandClient:
    """The data of a client's commands; every part can be replaced by a wrong one."""

    def __init__(self, server: bytes = SERVER.public) -> None:
        self.server = server
        self.secret = bytes(PrivateKey.generate())
        self.public = bytes(PrivateKey(self.secret).public_key)
        self.server_short = b""
        self.cookie = b""

    def hello(
        self,
        *,
        version: bytes = b"\1\0",
        padding: bytes = bytes(72),
        public: bytes | None = None,
        nonce: int = 1,
        content: bytes = bytes(64),
    ) -> bytes:
        sealed = box(self.secret, self.server, b"CurveZMQHELLO---" + short(nonce), content)
        return version + padding + (self.public if public is None else public) + short(nonce) + sealed

    def welcomed(self, data: bytes) -> None:
        """Open the data of WELCOME."""
        content = open_box(self.secret, self.server, b"WELCOME-" + data[:16], data[16:])
        assert len(content) == 128
        self.server_short, self.cookie = content[:32], content[32:]

    def initiate(
        self,
        *,
        cookie: bytes | None = None,
        nonce: int = 2,
        key: bytes = CLIENT.public,
        vouching: bytes = CLIENT_SECRET,
        vouched: bytes | None = None,
        metadata: bytes = METADATA,
    ) -> bytes:
        vouch_nonce = os.urandom(16)
        vouch = box(
            vouching,
            self.server_short,
            b"VOUCH---" + vouch_nonce,
            self.public + self.server if vouched is None else vouched,
        )
        sealed = box(
            self.secret,
            self.server_short,
            b"CurveZMQINITIATE" + short(nonce),
            key + vouch_nonce + vouch + metadata,
        )
        return (self.cookie if cookie is None else cookie) + short(nonce) + sealed

    def ready(self, data: bytes) -> bytes:
        """Return the metadata in the data of READY."""
        return open_box(self.secret, self.server_short, b"CurveZMQREADY---" + data[:8], data[8:])

    def message(self, nonce: int, content: bytes) -> bytes:
        """Return a MESSAGE; `content` begins with its flags."""
        sealed = box(self.secret, self.server_short, b"CurveZMQMESSAGEC" + short(nonce), content)
        return zmtp.message(b"\7MESSAGE" + short(nonce) + sealed)

    def opened(self, body: bytes) -> bytes:
        """Return the content of the server's MESSAGE."""
        assert body[:8] == b"\7MESSAGE"
        return open_box(self.secret, self.server_short, b"CurveZMQMESSAGES" + body[8:16], body[16:])


class HandServer:
    """The data of a server's commands."""

    def __init__(self, secret: bytes = SERVER_SECRET) -> None:
        self.long_term = secret
        self.secret = bytes(PrivateKey.generate())
        self.public = bytes(PrivateKey(self.secret).public_key)
        self.client = b""

    def greeted(self, data: bytes) -> None:
        """Check the data of HELLO."""
        assert data[:74] == b"\1\0" + bytes(72)
        self.client = data[74:106]
        nonce = b"CurveZMQHELLO---" + data[106:114]
        assert open_box(self.long_term, self.client, nonce, data[114:]) == bytes(64)

    def welcome(self, *, public: bytes | None = None) -> bytes:
        cookie_nonce = os.urandom(16)
        key = SecretBox(os.urandom(32))
        cookie = cookie_nonce + key.encrypt(self.client + self.secret, b"COOKIE--" + cookie_nonce).ciphertext
        nonce = os.urandom(16)
        content = (self.public if public is None else public) + cookie
        return nonce + box(self.long_term, self.client, b"WELCOME-" + nonce, content)

    def initiated(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the client's long-term key and metadata in the data of INITIATE."""
        nonce = b"CurveZMQINITIATE" + data[96:104]
        content = open_box(self.secret, self.client, nonce, data[104:])
        key, vouch = content[:32], content[32:128]
        vouched = open_box(self.secret, key, b"VOUCH---" + vouch[:16], vouch[16:])
        assert vouched == self.client + bytes(PrivateKey(self.long_term).public_key)
        return key, content[128:]

    def ready(self, metadata: bytes, nonce: int = 1) -> bytes:
        return short(nonce) + box(self.secret, self.client, b"CurveZMQREADY---" + short(nonce), metadata)


Side = tuple[Connection, Recorder]


def curve_pair(
    limits: ConnectionLimits | None = None, *, refuse: str = "", seed: int = 1
) -> tuple[Side, Side]:
    """Return a ROUTER that is a CURVE server and a DEALER that is its client. All random bytes follow from `seed`."""
    server = CurveServer(SERVER, Random(2 * seed).randbytes)
    client = CurveClient(CLIENT, SERVER.public, Random(2 * seed + 1).randbytes)
    router = connect(b"ROUTER", limits=limits, mechanism=server, recorder=Recorder(refuse=refuse))
    dealer = connect(b"DEALER", server=False, identity=b"anna", limits=limits, mechanism=client)
    return router, dealer
