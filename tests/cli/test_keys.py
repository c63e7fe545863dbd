"""`polydomo keys`, and commands that use keys."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from polydomo.cli.processes import url_of
from polydomo.security.key_files import create_key_pair, fingerprint, read_key_pair
from polydomo.security.keys import PENDING, KeyFolder
from polydomo.wire.curve.keys import encode_key
from tests.cli.support import here, run
from tests.support.broker import BrokerProcess, wait_for


@pytest.fixture
def folder(tmp_path: Path) -> KeyFolder:
    return KeyFolder(tmp_path / "data" / "keys")


def keys(folder: KeyFolder, *words: str) -> tuple[int, str]:
    done = here("keys", *words, "--keys", str(folder.path))
    return done.exit_code, done.stdout + done.stderr


def test_new_makes_a_private_file_and_shows_only_the_public_key(tmp_path: Path) -> None:
    file = tmp_path / "me.key"
    done = here("keys", "new", str(file))
    assert done.exit_code == 0
    pair = read_key_pair(file)
    assert encode_key(pair.public) in done.stdout
    assert fingerprint(pair.public) in done.stdout
    assert encode_key(pair.secret) not in done.stdout
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = here("keys", "new", str(file))
    assert (again.exit_code, "File exists" in again.stderr) == (2, True)


def test_show_makes_the_brokers_key_once(folder: KeyFolder, tmp_path: Path) -> None:
    shown = [
        json.loads(here("keys", "show", "--data", str(tmp_path / "data"), "--json").stdout) for _ in "12"
    ]
    assert shown[0] == shown[1]
    assert shown[0]["key"] == encode_key(folder.open().public)
    assert shown[0]["file"] == str(folder.path / "broker.key")


def test_a_key_is_listed_accepted_and_revoked(folder: KeyFolder, tmp_path: Path) -> None:
    pair = create_key_pair(tmp_path / "me.key")
    assert "no keys" in keys(folder)[1]
    folder.record(pair.public, "anna", "10.0.0.1:7", PENDING, 10)
    assert [word in keys(folder)[1] for word in ("anna", "pending", fingerprint(pair.public), "10.0.0.1:7")]
    code, said = keys(folder, "revoke", "anna")
    assert (code, "is not accepted" in said) == (1, True)
    code, said = keys(folder, "accept", fingerprint(pair.public)[:9], "--name", "berta")
    assert (code, "accepted berta" in said) == (0, True)
    (row,) = json.loads(here("keys", "ls", "--keys", str(folder.path), "--json").stdout)
    assert (row["name"], row["state"], row["key"]) == ("berta", "accepted", encode_key(pair.public))
    assert keys(folder, "revoke", "berta")[0] == 0
    assert "no keys" in keys(folder, "ls", "--state", "accepted")[1]
    assert keys(folder, "reject", "berta")[0] == 0


def test_mistakes_are_explained(folder: KeyFolder) -> None:
    code, said = keys(folder, "accept", "nobody")
    assert (code, "there is no key 'nobody'" in said, "polydomo keys ls" in said) == (1, True, True)
    assert keys(folder, "ls", "--state", "unknown")[0] == 2
    nowhere = here("keys", "ls", "--data", "")
    assert (nowhere.exit_code, "--data or --keys" in nowhere.stderr) == (2, True)


def test_commands_take_keys_from_the_url_and_the_environment(tmp_path: Path) -> None:
    """A broker in its own process: its log and its reaction to the folder are part of the test."""
    file = tmp_path / "me.key"
    pair = create_key_pair(file)
    with BrokerProcess("--set", "security.curve=on", "--set", "security.roles=off") as broker:
        folder = KeyFolder(broker.data / "keys")
        server_key = encode_key(folder.open().public)
        url = url_of(broker.endpoint)
        plain = run("status", "--url", url)
        assert (plain.returncode, "POLYDOMO_SERVER_KEY" in plain.stderr) == (3, True)
        waiting = run("status", "--url", f"{url}?server_key={server_key}&key={file}")
        assert waiting.returncode == 3
        assert fingerprint(pair.public) in waiting.stderr
        wait_for(lambda: fingerprint(pair.public) in broker.log(), 5)
        done = here("keys", "accept", fingerprint(pair.public), "--data", str(broker.data))
        assert done.exit_code == 0, done.stderr
        known = {"POLYDOMO_SERVER_KEY": server_key, "POLYDOMO_KEY": str(file)}
        assert run("status", "--url", url, env=known).returncode == 0
        assert run("services", "--url", f"{url}?server_key={server_key}&key={file}").returncode == 0
        secrets = [encode_key(pair.secret), encode_key(folder.open().secret)]
        assert not any(secret in broker.log() for secret in secrets)


def test_dev_says_that_its_services_have_no_keys() -> None:
    done = here("dev", env={"POLYDOMO_SECURITY_CURVE": "on"})
    assert (done.exit_code, "have no keys" in done.stderr) == (2, True)
