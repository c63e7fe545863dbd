"""The decision who a peer is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from polydomo.security.authenticator import Authenticator, KeyRefused
from polydomo.security.invitations import Invitations
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
    return Authenticator(
        folder, auto_accept=auto_accept, pending=5, on_auto_accept=told.append, on_join=told.append
    )


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


OTHER = new_key_pair(os.urandom).public


@pytest.mark.parametrize("seen_before", [False, True])
def test_a_join_token_lets_in_one_key_under_its_name(folder: KeyFolder, seen_before: bool) -> None:
    told: list[ClientKey] = []
    authenticator = asked(folder, told)
    text, _ = Invitations(folder.path).new("worker-1", 60)
    if seen_before:
        with pytest.raises(KeyRefused):
            authenticator.admit(KEY, "10.0.0.1:4", "anna")
    assert authenticator.admit(KEY, "10.0.0.1:5", "anna", text) == "worker-1"
    assert [key.name for key in told] == ["worker-1"]
    (found,) = folder.entries(ACCEPTED)
    assert (found.name, found.address) == ("worker-1", "10.0.0.1:4" if seen_before else "10.0.0.1:5")
    assert authenticator.admit(KEY, "10.0.0.1:6", "anna", text) == "worker-1", (
        "it reconnects with the used token"
    )
    assert authenticator.admit(KEY, "10.0.0.1:6") == "worker-1"
    with pytest.raises(KeyRefused, match=r"waits for approval; the join token \w+ is unknown, or was used"):
        authenticator.admit(OTHER, "10.0.0.1:7", "berta", text)
    assert folder.accepted() == {found.file}


def test_a_join_token_does_not_bring_back_a_rejected_key(folder: KeyFolder) -> None:
    folder.move(folder.resolve(encode_key(KEY)), REJECTED)
    text, made = Invitations(folder.path).new("worker-1", 60)
    with pytest.raises(KeyRefused, match="is rejected"):
        asked(folder).admit(KEY, "", "", text)
    assert Invitations(folder.path).open() == [made], "it was not used"


def test_a_join_token_is_not_used_if_another_key_has_taken_its_name(folder: KeyFolder) -> None:
    text, made = Invitations(folder.path).new("worker-1", 60)
    folder.move(folder.resolve(encode_key(OTHER)), ACCEPTED, "worker-1")
    with pytest.raises(KeyRefused, match="another accepted key has the join token's name worker-1"):
        asked(folder).admit(KEY, "", "", text)
    assert Invitations(folder.path).open() == [made]


def test_nobody_joins_if_the_token_cannot_be_used_up(
    folder: KeyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, _ = Invitations(folder.path).new("worker-1", 60)

    def failing(self: Invitations, invitation: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Invitations, "use", failing)
    with pytest.raises(KeyRefused, match="cannot be checked: Read-only file system"):
        asked(folder).admit(KEY, "", "", text)
    assert folder.accepted() == set()
