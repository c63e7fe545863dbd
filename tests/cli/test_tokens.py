"""`polydomo tokens` and `polydomo keys invite`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from polydomo.security.invitations import Invitations
from polydomo.security.keys import ACCEPTED, KeyFolder
from polydomo.security.tokens import TokenChecker, TokenFolder
from polydomo.wire.curve.keys import encode_key
from tests.cli.support import here
from tests.support.curve import CLIENT


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "data" / "keys"


def command(keys: Path, *words: str) -> tuple[int, str]:
    done = here(*words, "--data", str(keys.parent))
    return done.exit_code, done.stdout + done.stderr


def test_a_token_is_printed_once_and_then_only_listed(keys: Path) -> None:
    done = here("tokens", "new", "shop-1", "--data", str(keys.parent), "--json")
    made = json.loads(done.stdout)
    assert TokenChecker(TokenFolder(keys)).principal_of(made["token"]) == "shop-1"
    assert 89 * 86400 < made["expires"] - time.time() < 91 * 86400
    code, said = command(keys, "tokens")
    assert (code, "shop-1" in said, "valid" in said, made["id"] in said) == (0, True, True, True)
    assert made["token"] not in said


def test_a_token_may_last_for_ever_or_not_at_all(keys: Path) -> None:
    assert command(keys, "tokens", "new", "shop-1", "--expires", "forever")[0] == 0
    assert "never" in command(keys, "tokens")[1]
    for wrong in ("0", "-1", "soon"):
        code, said = command(keys, "tokens", "new", "shop-1", f"--expires={wrong}")
        assert (code, "no duration" in said) == (2, True)
    assert len(TokenFolder(keys).entries()) == 1


def test_a_token_is_revoked_by_its_name_if_that_is_unique(keys: Path) -> None:
    ids = [
        json.loads(here("tokens", "new", "shop-1", "--data", str(keys.parent), "--json").stdout)["id"]
        for _ in "12"
    ]
    code, said = command(keys, "tokens", "revoke", "shop-1")
    assert (code, "stands for 2 tokens" in said, ids[0] in said) == (1, True, True)
    assert command(keys, "tokens", "revoke", ids[0][:8])[0] == 0
    code, said = command(keys, "tokens", "revoke", "shop-1")
    assert (code, f"revoked shop-1  {ids[1]}" in said) == (0, True)
    states = json.loads(here("tokens", "ls", "--data", str(keys.parent), "--json").stdout)
    assert [row["state"] for row in states] == ["revoked", "revoked"]
    assert "no tokens" in command(keys, "tokens", "ls", "--state", "valid")[1]
    assert command(keys, "tokens", "ls", "--state", "good")[0] == 2


def test_an_invitation_is_listed_until_it_is_withdrawn(keys: Path) -> None:
    done = here("keys", "invite", "worker-1", "--expires", "2h", "--data", str(keys.parent), "--json")
    made = json.loads(done.stdout)
    assert Invitations(keys).find(made["token"]).name == "worker-1"
    assert 7100 < made["expires"] - time.time() < 7300
    for words in (("keys",), ("keys", "ls", "--state", "invited")):
        said = command(keys, *words)[1]
        assert ("worker-1" in said, "invited" in said) == (True, True)
    assert "worker-1" not in command(keys, "keys", "ls", "--state", "pending")[1]
    assert command(keys, "keys", "invite", "worker-1", "--withdraw")[0] == 0
    assert "no keys" in command(keys, "keys")[1]
    code, said = command(keys, "keys", "invite", "worker-1", "--withdraw")
    assert (code, "no join token for 'worker-1'" in said) == (1, True)


def test_invitations_for_names_that_cannot_be_given_are_refused(keys: Path) -> None:
    folder = KeyFolder(keys)
    folder.move(folder.resolve(encode_key(CLIENT.public)), ACCEPTED, "anna")
    code, said = command(keys, "keys", "invite", "anna")
    assert (code, "an accepted key has the name 'anna'" in said) == (1, True)
    code, said = command(keys, "keys", "invite", "a b")
    assert (code, "cannot be a key's name" in said) == (1, True)
    code, said = command(keys, "keys", "invite", "berta", "--expires", "forever")
    assert (code, "no duration" in said) == (2, True)
    assert not Invitations(keys).open()


def test_acts_are_recorded_before_they_are_done(keys: Path) -> None:
    made = json.loads(here("tokens", "new", "shop-1", "--data", str(keys.parent), "--json").stdout)
    command(keys, "tokens", "revoke", "shop-1")
    command(keys, "keys", "invite", "worker-1")
    command(keys, "keys", "invite", "worker-1", "--withdraw")
    rows = json.loads(here("audit", "ls", "--data", str(keys.parent), "--json").stdout)
    assert sorted((row["action"], row["target"]) for row in rows) == [
        ("keys invite", "worker-1 for 1h"),
        ("keys invite --withdraw", "worker-1"),
        ("tokens new", "shop-1 for 90d"),
        ("tokens revoke", f"shop-1 {made['id']}"),
    ]
    written = b"".join(file.read_bytes() for file in (keys.parent / "audit").iterdir())
    assert b"shop-1 for 90d" in written
    assert b"pdm_" not in written
    assert b"pdj_" not in written


def test_without_an_audit_log_that_can_be_written_nothing_is_done(keys: Path) -> None:
    keys.parent.mkdir()
    (keys.parent / "audit").write_text("a file")
    for words in (("tokens", "new", "shop-1"), ("keys", "invite", "worker-1")):
        assert command(keys, *words)[0] != 0
    assert TokenFolder(keys).entries() == []
    assert Invitations(keys).open() == []
