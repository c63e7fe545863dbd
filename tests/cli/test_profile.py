"""`polydomo profile`, and commands that use a profile."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from polydomo.cli.processes import url_of
from polydomo.sdk.profiles import Profile, profile_file
from polydomo.security.token_text import BEARER, new_token
from tests.cli.support import here
from tests.support.broker import BrokerProcess

TOKEN = new_token(BEARER)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def profile(*words: str, stdin: str | None = None) -> Any:
    return here("profile", *words, stdin=stdin)


def test_a_profile_is_added_changed_used_and_removed() -> None:
    assert "no profiles" in profile().stdout
    assert profile("add", "lab", "--url", "mdp://lab:7", "--http", "https://lab:8080").exit_code == 0
    assert profile("add", "lab", "--token", "-", stdin=f"{TOKEN}\n").exit_code == 0
    assert profile_file().get("lab") == Profile(url="mdp://lab:7", http="https://lab:8080", token=TOKEN)
    assert profile("show").exit_code == 2
    assert profile("use", "lab").exit_code == 0
    for words in (("ls",), ("show",), ("show", "lab", "--json"), ("ls", "--json")):
        said = profile(*words).stdout
        assert ("mdp://lab:7" in said, TOKEN in said) == (True, False)
    assert [row["current"] for row in json.loads(profile("ls", "--json").stdout)] == [True]
    assert profile("use", "-").exit_code == 0
    assert profile_file().current == ""
    assert profile("rm", "lab").exit_code == 0
    assert profile("rm", "lab").exit_code == 2


def test_a_profile_is_printed_for_a_shell() -> None:
    profile("add", "lab", "--url", "mdp://lab:7", "--token", TOKEN, "--key", "my file.key")
    said = profile("env", "lab").stdout
    assert said.splitlines() == [
        "export POLYDOMO_URL=mdp://lab:7",
        f"export POLYDOMO_KEY='{Path('my file.key').absolute()}'",
        f"export POLYDOMO_TOKEN={TOKEN}",
    ]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--url", "nonsense"], "is not a broker's URL"),
        (["--url", "mdp://a?key=x"], "has no parameters"),
        (["--server-key", "short"], "public key is not valid"),
        (["--http", "lab:8080"], "is not the URL of a REST API"),
        (["--http", "https://me:secret@lab"], "is not the URL of a REST API"),
        (["--token", "two words"], "characters that no token has"),
    ],
)
def test_mistakes_are_explained_and_nothing_is_written(words: list[str], reason: str, tmp_path: Path) -> None:
    done = profile("add", "lab", *words)
    assert (done.exit_code, reason in done.stderr) == (2, True)
    assert "secret" not in done.stderr
    assert profile("add", "a/b").exit_code == 2
    assert not (tmp_path / "polydomo").exists()


def test_commands_find_their_broker_by_a_profile(broker: BrokerProcess) -> None:
    url = url_of(broker.endpoint)
    profile_file().set("here", Profile(url=url))
    profile_file().set("nowhere", Profile(url="mdp://127.0.0.1:1"))
    assert here("status", "--profile", "here").exit_code == 0
    assert "POLYDOMO_PROFILE" not in os.environ
    assert here("status", "--profile", "nowhere").exit_code == 3
    assert here("services", "ls", env={"POLYDOMO_PROFILE": "here"}).exit_code == 0
    profile_file().use("here")
    assert here("status").exit_code == 0
    assert here("status", "--url", url, "--profile", "nowhere").exit_code == 0
    assert here("status", env={"POLYDOMO_URL": "mdp://127.0.0.1:1"}).exit_code == 3
    unknown = here("status", "--profile", "unknown")
    assert (unknown.exit_code, "there is no profile 'unknown'" in unknown.stderr) == (2, True)
