"""Bearer tokens on disk, and their check."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest

from polydomo.errors import PolydomoError
from polydomo.security import tokens
from polydomo.security.token_text import ALPHABET, BEARER, JOIN, LENGTH, new_token
from polydomo.security.tokens import (
    CACHE_TIME,
    EXPIRED,
    REVOKED,
    VALID,
    TokenChecker,
    TokenFolder,
    TokenRefused,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path, clock: Clock) -> TokenFolder:
    return TokenFolder(tmp_path, clock)


def test_a_token_has_at_least_160_random_bits() -> None:
    assert len(set(ALPHABET)) ** LENGTH > 2**160
    texts = {new_token(BEARER) for _ in range(100)}
    assert len(texts) == 100
    assert all(re.fullmatch(r"pdm_[A-Za-z0-9]{40}", text) for text in texts)


def test_only_the_hash_is_stored_in_a_private_file(folder: TokenFolder, tmp_path: Path) -> None:
    text, token = folder.new("shop-1", 60)
    (file,) = folder.path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert text.removeprefix(BEARER) not in file.read_text()
    assert json.loads(file.read_text()) == {
        "name": "shop-1",
        "digest": token.digest,
        "created": 1_000_000.0,
        "expires": 1_000_060.0,
        "revoked": None,
    }


def test_a_token_is_valid_until_it_expires(folder: TokenFolder, clock: Clock) -> None:
    checker = TokenChecker(folder)
    text, token = folder.new("shop-1", 60)
    clock.now += 59.9
    assert checker.principal_of(text) == "shop-1"
    assert token.state(clock.now) == VALID
    clock.now += 0.1
    with pytest.raises(TokenRefused, match=f"the token {token.id} of shop-1 has expired"):
        checker.principal_of(text)
    assert token.state(clock.now) == EXPIRED


def test_a_revoked_token_is_refused_within_a_second(folder: TokenFolder, clock: Clock) -> None:
    checker = TokenChecker(folder)
    text, token = folder.new("shop-1", None)
    assert checker.principal_of(text) == "shop-1"
    assert folder.revoke(token).state(clock.now) == REVOKED
    clock.now += CACHE_TIME
    with pytest.raises(TokenRefused, match="was revoked"):
        checker.principal_of(text)
    assert CACHE_TIME <= 1


def test_a_clock_that_is_set_back_does_not_prolong_the_cache(folder: TokenFolder, clock: Clock) -> None:
    checker = TokenChecker(folder)
    text, token = folder.new("shop-1", None)
    assert checker.principal_of(text) == "shop-1"
    folder.revoke(token)
    clock.now -= 1000
    with pytest.raises(TokenRefused):
        checker.principal_of(text)


def test_a_new_token_is_valid_at_once_also_if_it_was_refused_before(folder: TokenFolder) -> None:
    checker = TokenChecker(folder)
    text, token = folder.new("shop-1", None)
    file = folder.path / f"{token.id}.json"
    content = file.read_bytes()
    file.unlink()
    with pytest.raises(TokenRefused, match="is unknown"):
        checker.principal_of(text)
    file.write_bytes(content)
    assert checker.principal_of(text) == "shop-1"


def test_unknown_tokens_take_no_memory_and_valid_ones_a_bounded_amount(
    folder: TokenFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "CACHED", 3)
    checker = TokenChecker(folder)
    for _ in range(10):
        with pytest.raises(TokenRefused):
            checker.principal_of(new_token(BEARER))
    assert not checker._valid
    for number in range(10):
        assert checker.principal_of(folder.new(f"shop-{number}", None)[0]) == f"shop-{number}"
    assert 0 < len(checker._valid) <= 3


@pytest.mark.parametrize(
    "text", ["", "pdm_", "pdm_" + "x" * 39, "pdm_" + "x" * 41, "pdm_" + "x" * 39 + "/", "pdm_" + "ä" * 40]
)
def test_a_malformed_token_reads_no_file(folder: TokenFolder, text: str) -> None:
    folder.find = None  # type: ignore[assignment, method-assign]
    with pytest.raises(TokenRefused, match="malformed"):
        TokenChecker(folder).principal_of(text)
    with pytest.raises(TokenRefused, match="malformed"):
        TokenChecker(folder).principal_of(new_token(JOIN))


def test_another_hash_with_the_same_id_is_not_the_token(folder: TokenFolder) -> None:
    text, token = folder.new("shop-1", None)
    file = folder.path / f"{token.id}.json"
    file.write_text(file.read_text().replace(token.digest, token.digest[:16] + "0" * 48))
    with pytest.raises(TokenRefused, match="is unknown"):
        TokenChecker(folder).principal_of(text)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"name": 1}'])
def test_a_damaged_file_lets_nobody_in(folder: TokenFolder, content: bytes) -> None:
    text, token = folder.new("shop-1", None)
    (folder.path / f"{token.id}.json").write_bytes(content)
    with pytest.raises(TokenRefused, match="is unknown"):
        TokenChecker(folder).principal_of(text)
    assert folder.entries() == []


@pytest.mark.parametrize("name", ["", "anonymous", "user:1001", "a b", "x" * 65, "-x", "ä"])
def test_names_that_are_for_others_are_refused(folder: TokenFolder, name: str) -> None:
    with pytest.raises(PolydomoError, match="cannot be a principal's name"):
        folder.new(name, None)
    assert folder.entries() == []


def test_a_token_is_found_by_id_text_and_unique_name(folder: TokenFolder, clock: Clock) -> None:
    text, first = folder.new("shop-1", None)
    for given in (first.id, first.id[:6].upper(), text, "shop-1"):
        assert folder.resolve(given) == first
    clock.now += 1
    _, second = folder.new("shop-1", None)
    with pytest.raises(PolydomoError, match=r"stands for 2 tokens") as caught:
        folder.resolve("shop-1")
    assert caught.value.advice == f"say which: {first.id}, {second.id}"
    folder.revoke(first)
    assert folder.resolve("shop-1") == second
    for unknown in (first.id[:5], "nobody", new_token(BEARER)):
        with pytest.raises(PolydomoError, match="there is no such token") as caught:
            folder.resolve(unknown)
        assert unknown not in str(caught.value)


def test_an_unusable_folder_is_explained(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a file")
    with pytest.raises(PolydomoError, match="cannot change the tokens"):
        TokenFolder(tmp_path / "keys").new("shop-1", None)


def test_an_unreadable_folder_is_explained(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("a file")
    with pytest.raises(PolydomoError, match="cannot read the tokens"):
        TokenFolder(tmp_path).entries()
