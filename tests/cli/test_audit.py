"""`polydomo audit`, and the commands that record what they do."""

from __future__ import annotations

import getpass
import json
import os
from pathlib import Path
from typing import Any

import pytest

from polydomo.security.audit_check import check
from polydomo.security.audit_log import AuditLog
from polydomo.security.audit_record import ACT, DENIED, EVENT, AuditEntry
from polydomo.security.keys import ACCEPTED, PENDING, KeyFolder
from polydomo.wire.curve.keys import encode_key, new_key_pair
from tests.cli.support import here

NOON = 1_767_268_800.0  # 2026-01-01T12:00Z

ENTRIES = [
    AuditEntry(EVENT, action="started", target="house"),
    AuditEntry(ACT, "ann", "operate", "pause_service", "resize", "10.0.0.1:5"),
    AuditEntry(ACT, "berta", "administer", "shutdown"),
    AuditEntry(DENIED, "ann", "call", target="mail"),
    AuditEntry(DENIED, "anonymous", action="authentication", reason="a \x1b[31mred\x1b[0m reason", count=7),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with one record per hour from noon (UTC) on."""
    times = iter(range(len(ENTRIES)))
    log = AuditLog(tmp_path / "data" / "audit", pytest.fail, clock=lambda: NOON + 3600 * next(times))
    for entry in ENTRIES:
        log.append([entry])
    return tmp_path / "data"


def audit(data: Path, *words: str) -> Any:
    return here("audit", *words, "--data", str(data), env={"TZ": "UTC"})


def numbers(data: Path, *filters: str) -> list[int]:
    done = audit(data, "ls", *filters, "--json")
    assert done.exit_code == 0, done.stderr
    return [row["number"] for row in json.loads(done.stdout)]


def test_records_are_listed_with_who_did_what_where(data: Path) -> None:
    done = audit(data)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert len(lines) == 1 + len(ENTRIES)
    assert [word in lines[2] for word in ("ann", "operate", "pause_service", "resize", "10.0.0.1:5")] == [
        True
    ] * 5
    assert lines[0].split()[-3:] == ["from", "reason", "times"]
    assert lines[5].split()[-1] == "7"
    assert "times" not in audit(data, "ls", "--kind", "act").stdout
    assert "\x1b" not in done.stdout
    (row,) = json.loads(audit(data, "ls", "-n", "1", "--json").stdout)
    assert (row["principal"], row["count"], row["at"]) == ("anonymous", 7, "2026-01-01T16:00:00.000000Z")


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ((), [1, 2, 3, 4, 5]),
        (("-n", "2"), [4, 5]),
        (("--kind", "act"), [2, 3]),
        (("--principal", "ann"), [2, 4]),
        (("--principal", "an*"), [2, 4, 5]),
        (("--verb", "call"), [4]),
        (("--action", "s*"), [1, 3]),
        (("--target", "resize"), [2]),
        (("--kind", "denied", "--principal", "ann"), [4]),
        (("--since", "2026-01-01T14:00:00+00:00"), [3, 4, 5]),
        (("--until", "2026-01-01T13:00:00+00:00"), [1, 2]),
        (("--since", "2027-01-01"), []),
    ],
)
def test_filters_choose_records(data: Path, filters: tuple[str, ...], found: list[int]) -> None:
    assert numbers(data, *filters) == found


@pytest.mark.parametrize(
    "filters", [("--kind", "x"), ("--verb", "x"), ("--since", "x"), ("--until", "x")], ids=" ".join
)
def test_a_filter_that_means_nothing_is_a_mistake(data: Path, filters: tuple[str, ...]) -> None:
    assert audit(data, "ls", *filters).exit_code == 2


def test_verify_says_that_all_is_well_and_names_an_anchor_that_it_accepts(data: Path) -> None:
    done = audit(data, "verify")
    assert (done.exit_code, "ok  5 records" in done.stdout) == (0, True)
    anchor = done.stdout.split()[-1]
    assert anchor.startswith("5:")
    assert audit(data, "verify", "--anchor", anchor).exit_code == 0
    other = f"5:{'0' * 64}"
    assert audit(data, "verify", "--anchor", other).exit_code == 1
    assert audit(data, "verify", "--anchor", "5").exit_code == 2
    told = json.loads(audit(data, "verify", "--json").stdout)
    assert (told["ok"], told["records"], f"{told['number']}:{told['hash']}") == (True, 5, anchor)


def test_verify_names_what_is_wrong_and_fails(data: Path) -> None:
    (segment,) = (data / "audit").glob("*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join([lines[0], lines[1].replace(b"resize", b"rezise"), lines[2], lines[4]]))
    done = audit(data, "verify")
    assert done.exit_code == 1
    assert "record 2 was changed" in done.stdout
    assert "record 4 is missing" in done.stdout
    told = json.loads(audit(data, "verify", "--json").stdout)
    assert (told["ok"], [problem["kind"] for problem in told["problems"]]) == (False, ["changed", "missing"])
    listed = audit(data, "ls")
    assert (listed.exit_code, "1 line" in listed.stderr, "verify" in listed.stderr) == (0, True, True)


def test_a_missing_log_is_an_error(tmp_path: Path) -> None:
    for words in (("ls",), ("verify",)):
        done = audit(tmp_path, *words)
        assert (done.exit_code, "there is no audit log in" in done.stderr) == (1, True)
    nowhere = here("audit", "ls", "--data", "")
    assert (nowhere.exit_code, "this broker has no audit log" in nowhere.stderr) == (2, True)


def test_the_folder_comes_from_the_configuration(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "polydomo.toml"
    file.write_text(f'[audit]\nfolder = "{data}/audit"\n')
    assert here("audit", "verify", "--config", str(file)).exit_code == 0


# Commands that change keys


KEY = new_key_pair(os.urandom).public


@pytest.fixture
def keys(data: Path) -> KeyFolder:
    folder = KeyFolder(data / "keys")
    folder.record(KEY, "anna", "10.0.0.1:7", PENDING, 10)
    return folder


def change(data: Path, *words: str) -> Any:
    return here("keys", *words, "--data", str(data))


def test_changes_of_keys_are_recorded_with_the_user(data: Path, keys: KeyFolder) -> None:
    changes = [
        ("accept", "anna", "--name", "berta"),
        ("revoke", "berta"),
        ("accept", "berta"),
        ("reject", "berta"),
    ]
    for words in changes:
        assert change(data, *words).exit_code == 0
    rows = json.loads(audit(data, "ls", "--action", "keys *", "--json").stdout)
    assert [row["action"] for row in rows] == ["keys accept", "keys revoke", "keys accept", "keys reject"]
    assert {row["principal"] for row in rows} == {f"user:{getpass.getuser()}"}
    assert {(row["kind"], row["verb"], row["address"]) for row in rows} == {
        (ACT, "administer", "command line")
    }
    print_of_key = keys.resolve(encode_key(KEY)).fingerprint
    assert {row["target"] for row in rows} == {f"berta {print_of_key}"}
    assert not check(data / "audit").problems


def test_a_key_that_does_not_exist_is_no_act(data: Path, keys: KeyFolder) -> None:
    assert change(data, "accept", "nobody").exit_code == 1
    assert numbers(data, "--action", "keys *") == []


@pytest.mark.parametrize("word", ["accept", "reject"])
def test_a_key_stays_as_it_is_if_its_change_cannot_be_recorded(
    data: Path, keys: KeyFolder, word: str
) -> None:
    (data / "audit").rename(data / "aside")
    (data / "audit").write_text("not a folder")
    done = change(data, word, "anna")
    assert done.exit_code == 1
    assert "the audit log in" in done.stderr
    assert "administration is possible again" in done.stderr
    assert [key.state for key in keys.entries()] == [PENDING]


def test_a_change_without_a_known_audit_log_says_that_it_is_not_recorded(data: Path, keys: KeyFolder) -> None:
    done = here("keys", "accept", "anna", "--keys", str(keys.path))
    assert (done.exit_code, "not recorded" in done.stderr) == (0, True)
    assert [key.name for key in keys.entries(ACCEPTED)] == ["anna"]
    assert "not recorded" not in here("keys", "ls", "--keys", str(keys.path)).stderr
