"""CURVE for the peers of a server: the mechanism of new connections, and the approval of their keys.

A peer whose key is refused gets the reason in ERROR, except a foreign peer whose key waits for approval. libzmq never
connects again after ERROR; if its connection is only closed, it tries again and gets in after the key was accepted
(RFC 27 makes the same distinction between its status codes 300 and 400).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from polydomo.dialects.session import JOIN_PROPERTY, NATIVE_PROPERTY
from polydomo.errors import ConfigError, PolydomoError
from polydomo.security.authenticator import Authenticator, KeyRefused
from polydomo.security.key_files import fingerprint
from polydomo.security.keys import BROKER_KEY, ClientKey, KeyFolder, file_name
from polydomo.server.data_dir import warn_if_open
from polydomo.server.log import Log
from polydomo.server.settings import Settings
from polydomo.wire.curve.keys import encode_key
from polydomo.wire.curve.server import CurveServer
from polydomo.wire.zmtp.connection import Connection, PeerInfo
from polydomo.wire.zmtp.mechanism import Mechanism

log = Log()


class KeyedPeer(Protocol):
    """Connection whose peer has a key. `connection` is its ZMTP side."""

    address: str
    key: bytes
    principal: str

    @property
    def connection(self) -> Connection: ...

    def refuse(self, reason: str) -> None:
        """Close the connection after its pending output."""

    def cut(self, reason: str) -> None:
        """Close the connection at once; unsent output is lost."""


class PeerSecurity:
    """The key pair of a server and the approval list of its peers. Raises ConfigError if there is no key folder.

    `note` is called with an event and a key that was accepted without an operator.
    """

    def __init__(self, settings: Settings, note: Callable[[str, str], object]) -> None:
        folder = settings.keys_folder()
        if not folder:
            raise ConfigError(
                "security.curve is on, and there is no folder for the keys",
                hint="set security.keys or --data",
            )
        section = settings.security
        keys = KeyFolder(Path(folder))
        self._pair = keys.open()
        for path in (keys.path, keys.path / BROKER_KEY):
            warn_if_open(path)
        self._authenticator = Authenticator(
            keys,
            auto_accept=section.auto_accept,
            pending=section.pending_keys,
            on_auto_accept=self._note_accepted,
            on_join=self._note_joined,
        )
        self._note = note
        self._failing = False  # the last inspection failed
        log.info(
            "CURVE is on",
            server_key=encode_key(self._pair.public),
            fingerprint=fingerprint(self._pair.public),
            keys=folder,
        )
        if (settings.broker.nng or settings.broker.http) and not settings.roles_apply():
            log.warning("NNG and HTTP peers need no key", nng=settings.broker.nng, http=settings.broker.http)
        if section.auto_accept:
            log.warning("unknown keys are accepted at once", hint="set security.auto_accept = false")

    def configure(self, settings: Settings) -> None:
        """Apply changed settings."""
        self._authenticator.auto_accept = settings.security.auto_accept
        self._authenticator.pending = settings.security.pending_keys

    def new_mechanism(self) -> Mechanism:
        """Return the mechanism of a new connection."""
        return CurveServer(self._pair, os.urandom)

    def admits(self, peer: KeyedPeer, info: PeerInfo) -> bool:
        """Give the peer its key and principal. Return False if the connection was closed because the key waits for
        approval; raise KeyRefused if the peer is to get the reason in ERROR. The key's name is the peer's identity."""
        name = info.identity.decode("ascii", "replace")
        join = info.properties.get(JOIN_PROPERTY.lower(), b"").decode("ascii", "replace")
        try:
            peer.principal = self._authenticator.admit(info.key, peer.address, name, join)
        except KeyRefused as refused:
            if not refused.pending or NATIVE_PROPERTY.lower() in info.properties:
                raise
            peer.connection.close()
            peer.refuse(str(refused))
            return False
        peer.key = info.key
        return True

    def inspect(self, peers: Iterable[KeyedPeer]) -> None:
        """Cut the peers whose keys are no longer accepted."""
        try:
            accepted = self._authenticator.folder.accepted()
        except PolydomoError as error:
            if not self._failing:
                log.error("revoked keys cannot be detected", reason=str(error))
            self._failing = True
            return
        self._failing = False
        files: dict[bytes, str] = {}
        for peer in peers:
            if peer.key and files.setdefault(peer.key, file_name(peer.key)) not in accepted:
                peer.cut(f"the key {fingerprint(peer.key)} of {peer.principal} is no longer accepted")

    def _note_accepted(self, key: ClientKey) -> None:
        log.warning("unknown key accepted", name=key.name, fingerprint=key.fingerprint, peer=key.address)
        self._note("unknown key accepted", f"{key.name} {key.fingerprint}")

    def _note_joined(self, key: ClientKey) -> None:
        log.info(
            "key accepted with a join token", name=key.name, fingerprint=key.fingerprint, peer=key.address
        )
        self._note("key accepted with a join token", f"{key.name} {key.fingerprint}")
