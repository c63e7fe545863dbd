"""The approval of keys as the server's peers see it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from polydomo.dialects.session import NATIVE_PROPERTY
from polydomo.security.authenticator import KeyRefused
from polydomo.security.keys import ACCEPTED, REJECTED, KeyFolder
from polydomo.server.peer_security import PeerSecurity
from polydomo.server.settings import BrokerSection, SecuritySection, Settings
from polydomo.wire.curve.keys import encode_key, new_key_pair
from polydomo.wire.zmtp.connection import Connection, PeerInfo

KEY = new_key_pair(os.urandom).public


class FakePeer:
    """A connection that records how it ended."""

    def __init__(self) -> None:
        self.address = "10.0.0.1:5"
        self.key = b""
        self.principal = ""
        self.ended: list[str] = []

    @property
    def connection(self) -> Connection:
        return self  # type: ignore[return-value]

    def close(self) -> None:
        self.ended.append("silently")

    def refuse(self, reason: str) -> None:
        self.ended.append(reason)

    def cut(self, reason: str) -> None:
        self.ended.append(reason)


@pytest.fixture
def folder(tmp_path: Path) -> KeyFolder:
    return KeyFolder(tmp_path / "keys")


@pytest.fixture
def security(folder: KeyFolder) -> PeerSecurity:
    return PeerSecurity(settings(folder), print)


def settings(folder: KeyFolder, **broker: list[str]) -> Settings:
    section = SecuritySection(curve="on", keys=str(folder.path))
    return Settings(broker=BrokerSection(data="", **broker), security=section)


def info(*, native: bool = False) -> PeerInfo:
    properties = {NATIVE_PROPERTY.lower(): b"1"} if native else {}
    return PeerInfo(b"DEALER", b"anna", 1, properties, KEY)


def set_state(folder: KeyFolder, state: str) -> None:
    folder.move(folder.resolve(encode_key(KEY)), state, "anna")


def test_a_foreign_peer_that_waits_is_disconnected_without_error(security: PeerSecurity) -> None:
    """libzmq would not connect again after ERROR."""
    peer = FakePeer()
    assert not security.admits(peer, info())
    assert peer.ended[0] == "silently"
    assert "waits for approval" in peer.ended[1]


def test_our_own_peer_that_waits_gets_the_reason(security: PeerSecurity) -> None:
    with pytest.raises(KeyRefused, match="waits for approval"):
        security.admits(FakePeer(), info(native=True))


def test_a_rejected_peer_gets_the_reason(security: PeerSecurity, folder: KeyFolder) -> None:
    set_state(folder, REJECTED)
    with pytest.raises(KeyRefused, match="is rejected"):
        security.admits(FakePeer(), info())


def test_an_accepted_peer_has_its_principal_until_it_is_revoked(
    security: PeerSecurity, folder: KeyFolder
) -> None:
    set_state(folder, ACCEPTED)
    peer, plain = FakePeer(), FakePeer()
    assert security.admits(peer, info())
    assert (peer.principal, peer.key) == ("anna", KEY)
    security.inspect([peer, plain])
    assert not peer.ended
    set_state(folder, REJECTED)
    security.inspect([peer, plain])
    assert "of anna is no longer accepted" in peer.ended[0]
    assert not plain.ended


def test_a_folder_that_cannot_be_read_is_logged_once_and_cuts_nobody(
    security: PeerSecurity, folder: KeyFolder, caplog: pytest.LogCaptureFixture
) -> None:
    set_state(folder, ACCEPTED)
    peer = FakePeer()
    assert security.admits(peer, info())
    (folder.path / "accepted").rename(folder.path / "elsewhere")
    (folder.path / "accepted").write_text("not a folder")
    for _ in range(3):
        security.inspect([peer])
    assert not peer.ended
    assert caplog.text.count("revoked keys cannot be detected") == 1


def test_a_secret_key_that_others_can_read_is_reported(
    security: PeerSecurity, folder: KeyFolder, caplog: pytest.LogCaptureFixture
) -> None:
    assert "readable by others" not in caplog.text
    (folder.path / "broker.key").chmod(0o644)
    PeerSecurity(settings(folder), print)
    assert "file readable by others" in caplog.text
    assert "chmod 600" in caplog.text


@pytest.mark.parametrize(("roles", "warned"), [("off", True), ("on", False)])
def test_listeners_whose_peers_may_do_everything_without_a_key_are_named_in_the_log(
    folder: KeyFolder, caplog: pytest.LogCaptureFixture, roles: str, warned: bool
) -> None:
    given = settings(folder, http=["127.0.0.1:8080"])
    given.security.roles = roles  # type: ignore[assignment]
    PeerSecurity(given, print)
    assert ("NNG and HTTP peers need no key" in caplog.text) is warned
