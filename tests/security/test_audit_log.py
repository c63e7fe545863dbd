"""The audit log: what is appended stays, through killed processes, full disks, two writers and damaged files."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polydomo import redaction
from polydomo.security import audit_log as module
from polydomo.security.audit_check import MISSING, UNFINISHED, check, read
from polydomo.security.audit_folder import HEAD, segment_name, segments
from polydomo.security.audit_log import AuditLog, AuditUnavailable
from polydomo.security.audit_record import ACT, EVENT, LONGEST, AuditEntry, AuditRecord
from polydomo.security.audit_retention import REMOVED
from tests.store.disks import small_disk


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "audit"


@pytest.fixture
def damage() -> list[str]:
    """What the log reported."""
    return []


@pytest.fixture
def log(folder: Path, damage: list[str]) -> AuditLog:
    return AuditLog(folder, damage.append)


def act(target: str) -> AuditEntry:
    return AuditEntry(ACT, "ann", "operate", "pause_service", target, "10.0.0.1:5")


def records(folder: Path) -> list[AuditRecord]:
    found = list(read(folder))
    assert None not in found
    return [record for record in found if record is not None]


def targets(folder: Path) -> list[str]:
    return [record.target for record in records(folder) if record.kind == ACT]


def events(folder: Path) -> list[tuple[str, str]]:
    return [(record.action, record.reason) for record in records(folder) if record.kind == EVENT]


def append_without_end(log: AuditLog) -> None:
    for number in range(1000):
        log.append([act(f"{number}" * 50)])


def test_records_have_numbers_times_and_what_was_done(folder: Path) -> None:
    AuditLog(folder, print, clock=lambda: 1_700_000_000.5).append([act("one"), act("two")])
    first, second = records(folder)
    assert (first.number, second.number) == (1, 2)
    assert second.at == "2023-11-14T22:13:20.500000Z"
    assert second.previous == first.hash
    assert (first.kind, first.principal, first.verb, first.action) == (ACT, "ann", "operate", "pause_service")
    assert (first.target, first.address) == ("one", "10.0.0.1:5")


def test_an_opened_log_has_no_record_yet(log: AuditLog, folder: Path) -> None:
    log.open()
    assert (records(folder), segments(folder)) == ([], [])


def test_only_its_owner_can_read_the_log(log: AuditLog, folder: Path) -> None:
    log.append([act("one")])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_texts_of_peers_are_in_one_line_truncated_and_without_secrets(log: AuditLog, folder: Path) -> None:
    redaction.learn(["a-secret-of-the-configuration"])
    log.append(
        [act("a\n\x1b[31m"), act("x" * 10_000), act("key=a-secret-of-the-configuration"), act("\udcff")]
    )
    first, second, third, fourth = targets(folder)
    assert first == "a\\n\\x1b[31m"
    assert len(second) == LONGEST
    assert "a-secret" not in third
    assert fourth == "\\udcff"
    assert not check(folder).problems


def test_a_segment_that_is_large_enough_gets_no_further_record(folder: Path) -> None:
    log = AuditLog(folder, pytest.fail, segment_bytes=500)
    for number in range(5):
        log.append([act(str(number))])
    assert segments(folder) == [segment_name(number) for number in (1, 3, 5)]
    assert targets(folder) == ["0", "1", "2", "3", "4"]


def test_two_writers_take_turns(folder: Path) -> None:
    """The broker and the commands that change its keys."""
    code = """
import sys
from pathlib import Path
from polydomo.security.audit_log import AuditLog
from polydomo.security.audit_record import ACT, AuditEntry
log = AuditLog(Path(sys.argv[1]), sys.exit, segment_bytes=2000)
for number in range(100):
    log.append([AuditEntry(ACT, target=f"{sys.argv[2]} {number}")])
"""
    writers = [subprocess.Popen([sys.executable, "-c", code, str(folder), name]) for name in "ab"]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert not check(folder).problems
    for name in "ab":
        assert [one for one in targets(folder) if one[0] == name] == [f"{name} {n}" for n in range(100)]


def test_a_writer_that_is_killed_anywhere_leaves_at_most_a_torn_record_which_is_repaired(
    tmp_path: Path,
) -> None:
    subprocess.run([sys.executable, "-m", "tests.support.killed_write", str(tmp_path)], check=True)
    torn = 0
    for folder in sorted(tmp_path.iterdir()):
        name = folder.name
        assert {problem.kind for problem in check(folder).problems} <= {UNFINISHED}, name
        damage: list[str] = []
        AuditLog(folder, damage.append).append([act("after")])
        assert not check(folder).problems, name
        kept = targets(folder)
        assert (kept[0], kept[-1]) == ("before", "after"), name
        assert set(kept[1:-1]) <= {"killed", "killed too"}, name
        copies = [path for path in folder.iterdir() if "torn-" in path.name]
        repaired = {reason for action, reason in events(folder) if action == "repaired"}
        assert len(repaired) == len(copies) <= 1, name
        for copy in copies:
            torn += 1
            assert copy.name in repaired.pop()
            assert not copy.name.startswith(".")
            assert copy.read_bytes().startswith(b'{"number":2,')
        assert set(damage) <= {reason for _, reason in events(folder)}
    assert torn > 10, "the repair was not killed in between"


def test_a_disk_that_is_full_takes_no_record_and_the_next_one_follows(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        folder = disk / "audit"
        log = AuditLog(folder, pytest.fail)
        log.append([act("before")])
        (disk / "filler").write_bytes(bytes(36 * 1024))
        with pytest.raises(AuditUnavailable, match="No space left on device") as raised:
            append_without_end(log)
        assert raised.value.passing
        report = check(folder)
        assert not report.problems
        assert 1 < report.records < 1000
        (disk / "filler").unlink()
        log.append([act("after")])
        assert (targets(folder)[-1], len(targets(folder))) == ("after", report.records + 1)
        assert not check(folder).problems


def test_a_write_that_fails_in_the_middle_leaves_nothing(
    log: AuditLog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append([act("before")])
    write = os.write

    def full(handle: int, data: bytes) -> int:
        if len(data) < 200:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(handle, bytes(data)[:200])

    monkeypatch.setattr(module.os, "write", full)
    with pytest.raises(AuditUnavailable, match="No space left on device") as raised:
        log.append([act("killed")])
    assert raised.value.passing
    monkeypatch.undo()
    assert (targets(folder), check(folder).problems) == (["before"], [])


def test_a_folder_that_cannot_be_made_will_not_pass(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(AuditUnavailable, match="cannot be written: Not a directory") as raised:
        AuditLog(tmp_path / "file" / "audit", pytest.fail).append([act("one")])
    assert not raised.value.passing


def test_records_cut_off_at_the_end_are_reported_once_and_stay_visible(
    log: AuditLog, folder: Path, damage: list[str]
) -> None:
    for target in ("one", "two", "three"):
        log.append([act(target)])
    whole = (folder / segment_name(1)).read_bytes()
    (folder / segment_name(1)).write_bytes(b"".join(whole.splitlines(keepends=True)[:1]))
    log.append([act("four")])
    log.append([act("five")])
    assert len(damage) == 1
    assert f"{segment_name(1)} has " in damage[0]
    assert events(folder) == [("damaged", damage[0])]
    assert targets(folder) == ["one", "four", "five"]
    assert [(problem.kind, problem.message) for problem in check(folder).problems] == [
        (MISSING, "records 2 to 3 are missing")
    ]


def test_a_removed_last_segment_is_reported_and_stays_visible(
    log: AuditLog, folder: Path, damage: list[str]
) -> None:
    log.append([act("one")])
    (folder / segment_name(1)).unlink()
    log.append([act("two")])
    assert damage == [f"{segment_name(1)} is missing: records up to 1 were removed"]
    assert [problem.kind for problem in check(folder).problems] == [MISSING]


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"number":"x"}'])
def test_the_log_goes_on_after_its_last_record_if_the_head_file_is_missing_or_damaged(
    folder: Path, damage: list[str], content: bytes | None
) -> None:
    log = AuditLog(folder, damage.append, segment_bytes=500)
    for target in ("one", "two", "three"):
        log.append([act(target)])
    (folder / HEAD).unlink()
    if content is not None:
        (folder / HEAD).write_bytes(content)
    log.append([act("four")])
    assert len(damage) == 1
    assert damage[0].startswith(f"{HEAD} is ")
    assert targets(folder) == ["one", "two", "three", "four"]
    assert not check(folder).problems


def test_old_segments_are_removed_when_one_begins_and_that_is_recorded(folder: Path) -> None:
    now = time.time()
    log = AuditLog(folder, pytest.fail, segment_bytes=500)
    for number in range(1, 7):
        log.append([act(str(number))])
    assert segments(folder) == [segment_name(number) for number in (1, 3, 5)]
    for number, age in ((1, 30), (3, 20), (5, 10)):
        os.utime(folder / segment_name(number), (now - age, now - age))
    AuditLog(folder, pytest.fail, keep=15.0).append([act("7")])
    assert len(segments(folder)) == 3, "no segment began"
    AuditLog(folder, pytest.fail, segment_bytes=500, keep=15.0).append([act("8")])
    assert segments(folder) == [segment_name(5), segment_name(8)]
    assert targets(folder) == ["5", "6", "7", "8"]
    assert [reason for action, reason in events(folder) if action == REMOVED] == [
        f"{segment_name(1)} is old",
        f"{segment_name(3)} is old",
    ]
    assert not check(folder).problems
    (folder / segment_name(5)).unlink()
    assert [problem.message for problem in check(folder).problems] == ["records 1 to 7 are missing"]


def test_a_segment_whose_removal_was_recorded_and_not_done_is_removed_later(folder: Path) -> None:
    log = AuditLog(folder, pytest.fail, segment_bytes=1, keep=10.0)
    for number in range(1, 4):
        log.append([act(str(number))])
    second = (folder / segment_name(2)).read_bytes()
    for number in (1, 2):
        os.utime(folder / segment_name(number), (0, 0))
    log.append([act("4")])
    assert segments(folder) == [segment_name(3), segment_name(4)]
    (folder / segment_name(2)).write_bytes(second)
    os.utime(folder / segment_name(2), (0, 0))
    assert not check(folder).problems
    log.append([act("5")])
    assert segments(folder) == [segment_name(3), segment_name(4), segment_name(7)]
    assert not check(folder).problems


def test_a_log_that_is_not_one_is_moved_aside_and_begun_again(
    log: AuditLog, folder: Path, damage: list[str]
) -> None:
    folder.mkdir(parents=True)
    (folder / segment_name(1)).write_bytes(b"not a log\n")
    log.append([act("one")])
    assert f"{HEAD} is missing" in damage
    assert [path.read_bytes() for path in folder.glob("torn-*")] == [b"not a log\n"]
    assert (targets(folder), check(folder).problems) == (["one"], [])
