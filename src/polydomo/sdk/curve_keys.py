"""Keys of a client or worker for CURVE: the broker's public key, and a key pair of its own."""

from __future__ import annotations

import functools
import logging
import os
from contextlib import suppress
from pathlib import Path

from polydomo.errors import ConfigError
from polydomo.security.key_files import create_key_pair, fingerprint, open_to, read_key_pair
from polydomo.security.token_text import JOIN, is_token
from polydomo.wire.curve.client import CurveClient
from polydomo.wire.curve.keys import KeyPair, decode_key, new_key_pair
from polydomo.wire.zmtp.mechanism import Mechanism

log = logging.getLogger("polydomo.sdk")


class CurveKeys:
    """The broker's public key, this side's key pair, and the join token with which the broker accepts it."""

    __slots__ = ("join", "pair", "server_key")

    def __init__(self, server_key: bytes, pair: KeyPair, join: str = "") -> None:
        self.server_key = server_key
        self.pair = pair
        self.join = join

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


def load_keys(server_key: str, file: str, join: str = "") -> CurveKeys:
    """Return the keys from the text of the broker's public key and a key file. Raises ConfigError.

    Without a file, the process makes a key pair that it forgets when it ends. With a join token (`join`) a missing file
    is made.
    """
    try:
        public = decode_key(server_key)
    except ValueError as error:
        raise ConfigError(
            f"the broker's public key is not valid: {error}", hint="'polydomo keys show' prints it"
        ) from None
    if not join:
        return CurveKeys(public, _read(file) if file else _temporary_pair())
    if not is_token(join, JOIN):
        raise ConfigError("the join token is malformed", hint="'polydomo keys invite NAME' makes one")
    if not file:
        raise ConfigError(
            "a join token is of no use without a key file: the key would be forgotten, and the token used",
            hint="add key=FILE to the URL or set POLYDOMO_KEY; the file is made if it is missing",
        )
    return CurveKeys(public, _read_or_create(file), join)


def _read_or_create(file: str) -> KeyPair:
    path = Path(file).expanduser()
    if not path.exists():
        try:
            with suppress(FileExistsError):  # another process has just made it
                create_key_pair(path)
                log.info("made the key file %s", path)
        except OSError as error:
            raise ConfigError(
                f"cannot make the key file {path}: {error.strerror}", hint="choose another file"
            ) from error
    return _read(file)


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
