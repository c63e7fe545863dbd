"""Handshake of CURVE: its commands, and what both ends have in common (RFC 26 §CurveZMQ Commands).

    client                                              server
    HELLO     C', Box [64 zeros](C'->S)            →    has S, nothing else
              has S' now                           ←    WELCOME   Box [S', cookie](S->C')
    INITIATE  cookie,                              →    opens the cookie: C', s'
              Box [C, vouch, metadata](C'->S')          knows C now
              knows the server's metadata          ←    READY     Box [metadata](S'->C')

C and S are the long-term keys of client and server, C' and S' (secret s') their keys for this connection. The cookie is
[C', s'] encrypted with a key that only the server knows, so the server need not remember a client before INITIATE. The
vouch is Box [C', S](C->S'): only the owner of C can have made it, for this connection and this server.
"""

from collections.abc import Callable
from typing import Final

from polydomo.errors import ProtocolError
from polydomo.wire.curve.boxes import ShortNonces
from polydomo.wire.curve.keys import KeyPair
from polydomo.wire.curve.traffic import CurveTraffic
from polydomo.wire.zmtp.mechanism import Mechanism, SecureTraffic

MECHANISM: Final = b"CURVE"

HELLO: Final = b"HELLO"
WELCOME: Final = b"WELCOME"
INITIATE: Final = b"INITIATE"
READY: Final = b"READY"

# HELLO: version 1.0, padding that makes it larger than WELCOME, C', nonce, box.
VERSION: Final = b"\x01\x00"
PADDING: Final = bytes(72)
HELLO_CONTENT: Final = bytes(64)
HELLO_SIZE: Final = 194

# WELCOME: nonce, box of S' and cookie. The cookie: nonce, box of C' and s'.
WELCOME_SIZE: Final = 160
COOKIE_SIZE: Final = 96

# INITIATE: cookie, nonce, box of C, vouch and metadata. The vouch: nonce, box of C' and S.
VOUCH_SIZE: Final = 96
INITIATE_MIN: Final = 248

# READY: nonce, box of metadata.
READY_MIN: Final = 24

# Prefixes that make nonces of 24 bytes.
HELLO_NONCE: Final = b"CurveZMQHELLO---"
WELCOME_NONCE: Final = b"WELCOME-"
COOKIE_NONCE: Final = b"COOKIE--"
INITIATE_NONCE: Final = b"CurveZMQINITIATE"
VOUCH_NONCE: Final = b"VOUCH---"
READY_NONCE: Final = b"CurveZMQREADY---"

Random = Callable[[int], bytes]


class CurveMechanism(Mechanism):
    """Common part of both ends: the long-term keys, the nonces and the command that must come next."""

    def __init__(self, keys: KeyPair, random: Random, expected: bytes, *, as_server: bool) -> None:
        # RFC 26 §General Design: only a server sends ERROR.
        super().__init__(MECHANISM, as_server=as_server, encrypts=True, sends_error=as_server)
        self._keys = keys
        self._random = random
        self._expected = expected  # b"": the handshake is over
        self._nonces = ShortNonces()
        self._ours = b""  # this side's metadata
        self._connection_key = b""  # of the boxes between C' and S'

    def open_traffic(self, message_bytes: int, frames: int) -> SecureTraffic:
        return CurveTraffic(self._connection_key, self._nonces, self.as_server, message_bytes, frames)

    def _check(self, name: bytes, data: bytes, size: int, exact: bool) -> None:
        """Raise ProtocolError unless this is the expected command, with `size` bytes of data or, not `exact`, more."""
        if name != self._expected:
            raise ProtocolError(
                f"expected {self._expected.decode() or 'nothing'} in the CURVE handshake, the peer sent {name!r}"
            )
        if len(data) < size or (exact and len(data) > size):
            raise ProtocolError(
                f"CURVE's {name.decode()} has {len(data)} bytes of data instead of {size}{'' if exact else ' or more'}"
            )
