"""Client's end of CURVE: sends HELLO and INITIATE (RFC 26)."""

from polydomo.wire.curve.boxes import LONG_NONCE, SHORT_NONCE, open_box, seal_box, shared_key
from polydomo.wire.curve.handshake import (
    HELLO,
    HELLO_CONTENT,
    HELLO_NONCE,
    INITIATE,
    INITIATE_NONCE,
    PADDING,
    READY,
    READY_MIN,
    READY_NONCE,
    VERSION,
    VOUCH_NONCE,
    WELCOME,
    WELCOME_NONCE,
    WELCOME_SIZE,
    CurveMechanism,
    Random,
)
from polydomo.wire.curve.keys import KEY_SIZE, KeyPair, new_key_pair
from polydomo.wire.zmtp import commands


class CurveClient(CurveMechanism):
    """Mechanism of one connection to the server with the long-term public key `server_key`.

    `random` returns that many bytes from a secure source.
    """

    def __init__(self, keys: KeyPair, server_key: bytes, random: Random) -> None:
        if len(server_key) != KEY_SIZE:
            raise ValueError(f"a server key has {KEY_SIZE} bytes, not {len(server_key)}")
        super().__init__(keys, random, WELCOME, as_server=False)
        self._server_key = server_key
        self._short_term: KeyPair | None = None  # C'

    def start(self, metadata: bytes) -> bytes:
        self._ours = metadata
        short_term = self._short_term = new_key_pair(self._random)
        nonce = self._nonces.take()
        key = shared_key(self._server_key, short_term.secret)
        box = seal_box(HELLO_CONTENT, HELLO_NONCE + nonce, key)
        return commands.encode(HELLO, VERSION + PADDING + short_term.public + nonce + box)

    def receive(self, name: bytes, data: bytes) -> bytes:
        if self._expected == WELCOME:
            self._check(name, data, WELCOME_SIZE, True)
            return self._initiate(data)
        self._check(name, data, READY_MIN, False)
        self._ready(data)
        return b""

    def finish(self) -> bytes:
        return b""

    def _initiate(self, welcome: bytes) -> bytes:
        """Open WELCOME, which only the owner of the server key can have made, and return INITIATE."""
        short_term = self._short_term
        assert short_term is not None  # `start` comes first
        content = open_box(
            welcome[LONG_NONCE:],
            WELCOME_NONCE + welcome[:LONG_NONCE],
            shared_key(self._server_key, short_term.secret),
            "CURVE's WELCOME cannot be decrypted: the server does not have the expected key",
        )
        server_short_term = content[:KEY_SIZE]
        cookie = content[KEY_SIZE:]
        self._connection_key = shared_key(server_short_term, short_term.secret)
        self._short_term = None  # only the shared key is needed from here on
        self._expected = READY
        self.key = self._server_key
        vouch_nonce = self._random(LONG_NONCE)
        vouch = seal_box(
            short_term.public + self._server_key,
            VOUCH_NONCE + vouch_nonce,
            shared_key(server_short_term, self._keys.secret),
        )
        nonce = self._nonces.take()
        box = seal_box(
            self._keys.public + vouch_nonce + vouch + self._ours, INITIATE_NONCE + nonce, self._connection_key
        )
        return commands.encode(INITIATE, cookie + nonce + box)

    def _ready(self, data: bytes) -> None:
        nonce = data[:SHORT_NONCE]
        self._nonces.check(nonce)
        self.metadata = open_box(
            data[SHORT_NONCE:], READY_NONCE + nonce, self._connection_key, "CURVE's READY cannot be decrypted"
        )
        self._expected = b""
