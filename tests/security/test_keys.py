"""The key folder."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from polydomo.errors import ConfigError, PolydomoError
from polydomo.security.key_files import fingerprint
from polydomo.security.keys import ACCEPTED, PENDING, RATE, REJECTED, KeyFolder, file_name, suggested_name
from polydomo.wire.curve.keys import encode_key, new_key_pair


class Clock:
    """Every reading is a second later."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.step = 1.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture
def folder(tmp_path: Path) -> KeyFolder:
    return KeyFolder(tmp_path / "keys", Clock())


def public() -> bytes:
    return new_key_pair(os.urandom).public


def pend(folder: KeyFolder, key: bytes, name: str = "", address: str = "10.0.0.1:5", limit: int = 10) -> None:
    assert folder.record(key, name, address, PENDING, limit) is not None


def test_the_folder_is_private_and_its_key_stays_the_same(folder: KeyFolder) -> None:
    first = folder.open()
    assert folder.open().public == first.public
    for path in (folder.path, *(folder.path / state for state in (ACCEPTED, PENDING, REJECTED))):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder.path / "broker.key").stat().st_mode) == 0o600


def test_an_unusable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a file")
    with pytest.raises(ConfigError, match="cannot use the key folder"):
        KeyFolder(tmp_path / "keys").open()


def test_a_key_goes_from_pending_to_accepted_to_rejected(folder: KeyFolder) -> None:
    key = public()
    assert folder.find(key) is None
    pend(folder, key, "worker-1")
    found = folder.find(key)
    assert found is not None
    assert (found.state, found.name, found.address) == (PENDING, "worker-1", "10.0.0.1:5")
    assert folder.accepted() == set()
    for state in (ACCEPTED, REJECTED, ACCEPTED):
        folder.move(folder.resolve("worker-1"), state)
        moved = folder.find(key)
        assert moved is not None
        assert (moved.state, moved.seen) == (state, found.seen)
        assert [entry.key for entry in folder.entries()] == [encode_key(key)]
        assert folder.accepted() == ({file_name(key)} if state == ACCEPTED else set())


def test_a_file_is_small_private_json(folder: KeyFolder) -> None:
    key = public()
    pend(folder, key, "anna")
    file = folder.path / PENDING / file_name(key)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    fields = json.loads(file.read_text())
    assert fields == {"name": "anna", "key": encode_key(key), "seen": fields["seen"], "address": "10.0.0.1:5"}
    assert os.listdir(folder.path / PENDING) == [file.name]


def test_a_key_in_two_folders_counts_as_the_stricter(folder: KeyFolder) -> None:
    """As after a crash between the two steps of a change."""
    key = public()
    pend(folder, key)
    folder.move(folder.resolve(encode_key(key)), ACCEPTED)
    accepted = folder.path / ACCEPTED / file_name(key)
    content = accepted.read_bytes()
    folder.move(folder.resolve(encode_key(key)), REJECTED)
    accepted.write_bytes(content)
    found = folder.find(key)
    assert found is not None
    assert found.state == REJECTED
    assert folder.accepted() == set()
    assert [entry.state for entry in folder.entries()] == [REJECTED]


def test_the_oldest_pending_keys_make_room(folder: KeyFolder) -> None:
    keys = [public() for _ in range(6)]
    for number, key in enumerate(keys):
        pend(folder, key, limit=3)
        os.utime(folder.path / PENDING / file_name(key), (number, number))
    assert [entry.key for entry in folder.entries()] == [encode_key(key) for key in keys[3:]]


def test_pending_keys_are_recorded_at_a_limited_rate(folder: KeyFolder) -> None:
    clock = folder._clock
    assert isinstance(clock, Clock)
    clock.step = 0.0
    recorded = [folder.record(public(), "", "", PENDING, 1000) for _ in range(RATE + 5)]
    assert [entry is not None for entry in recorded] == [True] * RATE + [False] * 5
    clock.step = 1.0
    pend(folder, public(), limit=1000)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("worker-1", "worker-1"),
        ("ada", "ada"),
        ("two words\n", "two_words_"),
        ("\x1b[31mred", "__31mred"),
        ("x" * 300, "x" * 64),
    ],
)
def test_a_suggested_name_is_cleaned(sent: str, kept: str) -> None:
    assert suggested_name(sent, public()) == kept


@pytest.mark.parametrize("sent", ["", "..", "1f3a-22b0-aaaa", "DEADBEEF", encode_key(b"\1" * 32), "-rf"])
def test_a_name_like_a_fingerprint_or_a_key_is_replaced(sent: str) -> None:
    """Otherwise a stranger's key could be accepted instead of the one that is meant."""
    key = public()
    assert suggested_name(sent, key) == fingerprint(key)


def test_a_strangers_address_is_cleaned_and_truncated(folder: KeyFolder) -> None:
    key = public()
    pend(folder, key, address="\x1b[2J" + "x" * 1000)
    found = folder.find(key)
    assert found is not None
    assert "\x1b" not in found.address
    assert len(found.address) < 100


def test_a_key_is_found_by_name_fingerprint_and_text(folder: KeyFolder) -> None:
    key = public()
    pend(folder, key, "anna")
    pend(folder, public(), "berta")
    digits = fingerprint(key)
    for text in ("anna", digits, digits[:9], digits.replace("-", "").upper(), encode_key(key)):
        assert folder.resolve(text).name == "anna"
    for text in ("carla", "0000-0000-0000", digits[:4]):
        with pytest.raises(PolydomoError, match="there is no key"):
            folder.resolve(text)


def test_a_name_of_two_keys_is_ambiguous(folder: KeyFolder) -> None:
    one, two = public(), public()
    pend(folder, one, "anna")
    pend(folder, two, "anna")
    with pytest.raises(PolydomoError, match="2 keys") as raised:
        folder.resolve("anna")
    assert fingerprint(one) in raised.value.advice
    folder.move(folder.resolve(fingerprint(one)), ACCEPTED)
    with pytest.raises(PolydomoError, match="another accepted key"):
        folder.move(folder.resolve(fingerprint(two)), ACCEPTED)
    folder.move(folder.resolve(fingerprint(two)), ACCEPTED, "anna-2")
    assert {entry.name for entry in folder.entries(ACCEPTED)} == {"anna", "anna-2"}


def test_a_key_can_be_accepted_before_it_was_seen(folder: KeyFolder) -> None:
    key = public()
    folder.move(folder.resolve(encode_key(key)), ACCEPTED, "anna")
    found = folder.find(key)
    assert found is not None
    assert (found.state, found.name, found.address) == (ACCEPTED, "anna", "")


@pytest.mark.parametrize("name", ["two words", "x" * 65, "0123-4567-89ab", "\x1b"])
def test_bad_names_are_refused(folder: KeyFolder, name: str) -> None:
    with pytest.raises(PolydomoError, match="cannot be a key's name"):
        folder.move(folder.resolve(encode_key(public())), ACCEPTED, name)


def test_automatically_accepted_keys_have_names_of_their_own(folder: KeyFolder) -> None:
    one, two = public(), public()
    first = folder.record(one, "anna", "", ACCEPTED, 10)
    second = folder.record(two, "anna", "", ACCEPTED, 10)
    assert first is not None
    assert second is not None
    assert (first.name, second.name) == ("anna", fingerprint(two))


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\xff", b'{"name": "x", "key": "short", "seen": 1, "address": ""}']
)
def test_a_damaged_file_accepts_nobody(folder: KeyFolder, content: bytes) -> None:
    key = public()
    folder.move(folder.resolve(encode_key(key)), ACCEPTED)
    (folder.path / ACCEPTED / file_name(key)).write_bytes(content)
    assert folder.find(key) is None
    assert folder.entries() == []


def test_a_file_under_another_keys_name_accepts_nobody(folder: KeyFolder) -> None:
    one, two = public(), public()
    folder.move(folder.resolve(encode_key(one)), ACCEPTED)
    (folder.path / ACCEPTED / file_name(one)).rename(folder.path / ACCEPTED / file_name(two))
    assert folder.find(two) is None
