"""The decision who a peer is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from polydomo.security.authenticator import Authenticator, KeyRefused
from polydomo.security.key_files import fingerprint
from polydomo.security.keys import ACCEPTED, REJECTED, ClientKey, KeyFolder
from polydomo.wire.curve.keys import encode_key, new_key_pair

KEY = new_key_pair(os.urandom).public


@pytest.fixture
def folder(tmp_path: Path) -> KeyFolder:
    return KeyFolder(tmp_path)


def asked(
    folder: KeyFolder, told: list[ClientKey] | None = None, *, auto_accept: bool = False
) -> Authenticator:
    told = [] if told is None else told
    return Authenticator(folder, auto_accept=auto_accept, pending=5, on_auto_accept=told.append)


def test_an_unknown_key_waits_for_approval_and_gets_in_after_it(folder: KeyFolder) -> None:
    authenticator = asked(folder)
    for _ in range(2):
        with pytest.raises(KeyRefused, match="waits for approval") as raised:
            authenticator.admit(KEY, "10.0.0.1:5", "anna")
        assert raised.value.pending
        assert fingerprint(KEY) in raised.value.message
        assert f"keys accept {fingerprint(KEY)}" in raised.value.advice
    folder.move(folder.resolve("anna"), ACCEPTED)
    assert authenticator.admit(KEY, "10.0.0.1:5", "another-name") == "anna"


def test_a_rejected_key_is_refused_for_good(folder: KeyFolder) -> None:
    folder.move(folder.resolve(encode_key(KEY)), REJECTED)
    for auto_accept in (False, True):
        with pytest.raises(KeyRefused, match="is rejected") as raised:
            asked(folder, auto_accept=auto_accept).admit(KEY, "")
        assert not raised.value.pending


def test_unknown_keys_are_accepted_at_once_and_reported_if_that_is_wanted(folder: KeyFolder) -> None:
    told: list[ClientKey] = []
    authenticator = asked(folder, told, auto_accept=True)
    for _ in range(2):
        assert authenticator.admit(KEY, "10.0.0.1:5", "anna") == "anna"
    assert [key.name for key in told] == ["anna"]


def test_the_companion_of_a_norfab_worker_acts_for_the_worker(folder: KeyFolder) -> None:
    folder.record(KEY, "lab-1-NFPClient", "", ACCEPTED, 10)
    assert asked(folder).admit(KEY, "") == "lab-1"


def test_nobody_gets_in_while_the_folder_cannot_be_written(folder: KeyFolder) -> None:
    (folder.path / "pending").write_text("not a folder")
    with pytest.raises(KeyRefused, match="cannot be checked") as raised:
        asked(folder).admit(KEY, "")
    assert raised.value.pending


def test_a_flood_of_strangers_is_refused_without_a_record(folder: KeyFolder) -> None:
    authenticator = asked(KeyFolder(folder.path, lambda: 1.0))
    for _ in range(100):
        with pytest.raises(KeyRefused):
            authenticator.admit(new_key_pair(os.urandom).public, "")
    with pytest.raises(KeyRefused, match="too many unknown keys"):
        authenticator.admit(KEY, "")
    assert len(folder.entries()) == 5
