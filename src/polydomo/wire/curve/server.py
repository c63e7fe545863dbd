"""Server's end of CURVE: sends WELCOME and READY (RFC 26).

Between HELLO and INITIATE the server keeps a cookie key and the last nonce, and neither the client's keys nor its own
of this connection: they come back in the cookie.
"""

from nacl.bindings import crypto_secretbox, crypto_secretbox_open
from nacl.exceptions import CryptoError

from polydomo.errors import ProtocolError
from polydomo.wire.curve.boxes import LONG_NONCE, SHORT_NONCE, open_box, seal_box, shared_key
from polydomo.wire.curve.handshake import (
    COOKIE_NONCE,
    COOKIE_SIZE,
    HELLO,
    HELLO_CONTENT,
    HELLO_NONCE,
    HELLO_SIZE,
    INITIATE,
    INITIATE_MIN,
    INITIATE_NONCE,
    PADDING,
    READY,
    READY_NONCE,
    VERSION,
    VOUCH_NONCE,
    VOUCH_SIZE,
    WELCOME,
    WELCOME_NONCE,
    CurveMechanism,
    Random,
)
from polydomo.wire.curve.keys import KEY_SIZE, KeyPair, new_key_pair
from polydomo.wire.zmtp import commands


class CurveServer(CurveMechanism):
    """Mechanism of one connection from a client, whose long-term public key is `key` after the handshake.

    `random` returns that many bytes from a secure source. Any client with a key pair is accepted here; the owner of the
    connection may refuse its key.
    """

    def __init__(self, keys: KeyPair, random: Random) -> None:
        super().__init__(keys, random, HELLO, as_server=True)
        self._cookie_key = b""

    def start(self, metadata: bytes) -> bytes:
        self._ours = metadata
        return b""

    def receive(self, name: bytes, data: bytes) -> bytes:
        if self._expected == HELLO:
            self._check(name, data, HELLO_SIZE, True)
            return self._welcome(data)
        self._check(name, data, INITIATE_MIN, False)
        self._initiate(data)
        return b""

    def finish(self) -> bytes:
        nonce = self._nonces.take()
        return commands.encode(READY, nonce + seal_box(self._ours, READY_NONCE + nonce, self._connection_key))

    def _welcome(self, hello: bytes) -> bytes:
        """Check HELLO, whose sender must know the server key, and return WELCOME."""
        key_start = len(VERSION) + len(PADDING)
        if hello[:2] != VERSION:
            raise ProtocolError(f"the peer speaks CurveZMQ {hello[0]}.{hello[1]}; 1.0 is needed")
        if hello[2:key_start] != PADDING:
            raise ProtocolError("the padding of CURVE's HELLO is not zero")
        client = hello[key_start : key_start + KEY_SIZE]
        nonce = hello[key_start + KEY_SIZE : key_start + KEY_SIZE + SHORT_NONCE]
        box = hello[key_start + KEY_SIZE + SHORT_NONCE :]
        self._nonces.check(nonce)
        key = shared_key(client, self._keys.secret)
        problem = "CURVE's HELLO cannot be decrypted: the client expects a server with another key"
        if open_box(box, HELLO_NONCE + nonce, key, problem) != HELLO_CONTENT:
            raise ProtocolError("the box of CURVE's HELLO does not contain zeros")
        short_term = new_key_pair(self._random)
        welcome_nonce = self._random(LONG_NONCE)
        content = short_term.public + self._new_cookie(client, short_term.secret)
        self._expected = INITIATE
        return commands.encode(WELCOME, welcome_nonce + seal_box(content, WELCOME_NONCE + welcome_nonce, key))

    def _new_cookie(self, client: bytes, secret: bytes) -> bytes:
        self._cookie_key = self._random(KEY_SIZE)
        nonce = self._random(LONG_NONCE)
        return nonce + crypto_secretbox(client + secret, COOKIE_NONCE + nonce, self._cookie_key)

    def _open_cookie(self, cookie: bytes) -> tuple[bytes, bytes]:
        """Return the client's and the server's short-term keys, C' and s'. A cookie key is used once (RFC 26)."""
        key = self._cookie_key
        self._cookie_key = b""
        try:
            content = crypto_secretbox_open(cookie[LONG_NONCE:], COOKIE_NONCE + cookie[:LONG_NONCE], key)
        except CryptoError:
            raise ProtocolError("the cookie of CURVE's INITIATE is not the one of this connection") from None
        return content[:KEY_SIZE], content[KEY_SIZE:]

    def _initiate(self, data: bytes) -> None:
        """Check INITIATE and its vouch: the client owns the long-term key that it names."""
        client, secret = self._open_cookie(data[:COOKIE_SIZE])
        nonce = data[COOKIE_SIZE : COOKIE_SIZE + SHORT_NONCE]
        self._nonces.check(nonce)
        self._connection_key = shared_key(client, secret)
        content = open_box(
            data[COOKIE_SIZE + SHORT_NONCE :],
            INITIATE_NONCE + nonce,
            self._connection_key,
            "CURVE's INITIATE cannot be decrypted",
        )
        key = content[:KEY_SIZE]
        vouch = content[KEY_SIZE : KEY_SIZE + VOUCH_SIZE]
        vouched = open_box(
            vouch[LONG_NONCE:],
            VOUCH_NONCE + vouch[:LONG_NONCE],
            shared_key(key, secret),
            "the client does not own the CURVE key that it names",
        )
        # The vouch must be for this connection and this server: one made for another server could be forwarded.
        if vouched != client + self._keys.public:
            raise ProtocolError("the vouch of CURVE's INITIATE is for another connection or server")
        self.key = key
        self.metadata = content[KEY_SIZE + VOUCH_SIZE :]
        self._expected = b""
