"""Keys of a client or worker for CURVE: the broker's public key, and a key pair of its own."""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path

from polydomo.errors import ConfigError
from polydomo.security.key_files import fingerprint, open_to, read_key_pair
from polydomo.wire.curve.client import CurveClient
from polydomo.wire.curve.keys import KeyPair, decode_key, new_key_pair
from polydomo.wire.zmtp.mechanism import Mechanism

log = logging.getLogger("polydomo.sdk")


class CurveKeys:
    """The broker's public key and this side's key pair."""

    __slots__ = ("pair", "server_key")

    def __init__(self, server_key: bytes, pair: KeyPair) -> None:
        self.server_key = server_key
        self.pair = pair

    def new_mechanism(self) -> Mechanism:
        """Return the mechanism of a new connection."""
        return CurveClient(self.pair, self.server_key, os.urandom)

    @property
    def hint(self) -> str:
        """Advice for a user who gets no connection."""
        return (
            f"is the broker running, is its key {fingerprint(self.server_key)} ('polydomo keys show' there), and has "
            f"it accepted {fingerprint(self.pair.public)} ('polydomo keys ls')?"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CurveKeys) and self._public == other._public

    def __hash__(self) -> int:
        return hash(self._public)

    @property
    def _public(self) -> tuple[bytes, bytes]:
        return self.server_key, self.pair.public


def load_keys(server_key: str, file: str) -> CurveKeys:
    """Return the keys from the text of the broker's public key and a key file. Raises ConfigError.

    Without a file, the process makes a key pair that it forgets when it ends.
    """
    try:
        public = decode_key(server_key)
    except ValueError as error:
        raise ConfigError(
            f"the broker's public key is not valid: {error}", hint="'polydomo keys show' prints it"
        ) from None
    return CurveKeys(public, _read(file) if file else _temporary_pair())


def _read(file: str) -> KeyPair:
    path = Path(file).expanduser()
    pair = read_key_pair(path)
    to = open_to(path)
    if to:
        log.warning("the key file %s can be read by %s: chmod 600 %s", path, to, path)
    return pair


@functools.cache
def _temporary_pair() -> KeyPair:
    """Return the key pair of this process."""
    return new_key_pair(os.urandom)
