"""Join tokens: used once, by one key."""

from __future__ import annotations

import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from polydomo.errors import PolydomoError
from polydomo.security.invitations import InvitationRefused, Invitations
from polydomo.security.token_text import BEARER, JOIN, new_token


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def invitations(tmp_path: Path, clock: Clock) -> Invitations:
    return Invitations(tmp_path, clock)


def test_a_token_is_stored_as_a_hash_and_used_once(invitations: Invitations) -> None:
    text, made = invitations.new("worker-1", 60)
    (file,) = invitations.path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert text.removeprefix(JOIN) not in file.read_text()
    found = invitations.find(text)
    assert (found, invitations.open()) == (made, [made])
    invitations.use(found)
    with pytest.raises(InvitationRefused, match=f"{made.id} is unknown, or was used"):
        invitations.find(text)
    with pytest.raises(InvitationRefused, match=f"{made.id} was used"):
        invitations.use(found)
    assert invitations.open() == []


def test_a_token_expires_and_its_file_is_removed_with_the_next_one(
    invitations: Invitations, clock: Clock
) -> None:
    text, made = invitations.new("worker-1", 60)
    clock.now += 60
    with pytest.raises(InvitationRefused, match=f"{made.id} for worker-1 has expired"):
        invitations.find(text)
    assert invitations.open() == []
    _, other = invitations.new("worker-2", 60)
    assert [file.name for file in invitations.path.iterdir()] == [f"{other.id}.json"]


def test_tokens_for_a_name_are_withdrawn(invitations: Invitations) -> None:
    texts = [invitations.new(name, 60)[0] for name in ("worker-1", "worker-1", "worker-2")]
    assert invitations.withdraw("worker-1") == 2
    assert [one.name for one in invitations.open()] == ["worker-2"]
    for text in texts[:2]:
        with pytest.raises(InvitationRefused):
            invitations.find(text)
    assert invitations.find(texts[2]).name == "worker-2"
    assert invitations.withdraw("worker-1") == 0


@pytest.mark.parametrize("text", ["", "pdj_", "pdj_" + "x" * 41, "../../etc", "pdj_" + "ä" * 40])
def test_a_malformed_token_is_refused(invitations: Invitations, text: str) -> None:
    with pytest.raises(InvitationRefused, match="malformed"):
        invitations.find(text)


def test_other_tokens_are_no_join_tokens(invitations: Invitations) -> None:
    with pytest.raises(InvitationRefused, match="malformed"):
        invitations.find(new_token(BEARER))
    with pytest.raises(InvitationRefused, match="is unknown"):
        invitations.find(new_token(JOIN))


def test_of_several_that_race_for_a_token_only_one_uses_it(tmp_path: Path) -> None:
    """As brokers with the same key folder. Removing a file is the operating system's decision, so threads do."""
    racers = 4
    with ThreadPoolExecutor(racers) as pool:
        for _ in range(50):
            text, _ = Invitations(tmp_path).new("worker-1", 60)
            start = threading.Barrier(racers)

            def use(text: str = text, start: threading.Barrier = start) -> bool:
                invitations = Invitations(tmp_path)
                found = invitations.find(text)
                start.wait(20)
                try:
                    invitations.use(found)
                except InvitationRefused:
                    return False
                return True

            assert sum(done.result() for done in [pool.submit(use) for _ in range(racers)]) == 1


def test_an_unusable_folder_is_explained(tmp_path: Path) -> None:
    (tmp_path / "invitations").write_text("a file")
    with pytest.raises(PolydomoError, match="cannot change the invitations"):
        Invitations(tmp_path).new("worker-1", 60)
