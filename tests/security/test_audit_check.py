"""The check of the audit log: every kind of damage is detected and named, and named once."""

from __future__ import annotations

from pathlib import Path

import pytest

from polydomo.errors import PolydomoError
from polydomo.security.audit_check import (
    CHANGED,
    HEAD_FILE,
    MISSING,
    MOVED,
    TRUNCATED,
    UNFINISHED,
    Anchor,
    check,
    read,
)
from polydomo.security.audit_folder import HEAD, segment_name, segments
from polydomo.security.audit_log import AuditLog
from polydomo.security.audit_record import ACT, AuditEntry, decode_line

FIRST = segment_name(1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log with the records 1 to 9, three in each of three segments."""
    return filled(tmp_path / "audit")


def filled(folder: Path, count: int = 9) -> Path:
    log = AuditLog(folder, lambda damage: pytest.fail(damage), segment_bytes=700)
    for number in range(1, count + 1):
        log.append([AuditEntry(ACT, "ann", "operate", "pause_service", f"service-{number}")])
    return folder


def lines(folder: Path, name: str = FIRST) -> list[bytes]:
    return (folder / name).read_bytes().splitlines(keepends=True)


def rewrite(folder: Path, changed: list[bytes], name: str = FIRST) -> None:
    (folder / name).write_bytes(b"".join(changed))


def found(folder: Path, *anchors: Anchor) -> list[tuple[str, str]]:
    return [(problem.kind, problem.message) for problem in check(folder, anchors).problems]


def test_an_intact_log_has_no_problems(folder: Path) -> None:
    assert segments(folder) == [segment_name(number) for number in (1, 4, 7)]
    report = check(folder)
    assert (report.problems, report.segments, report.records, report.number) == ([], 3, 9, 9)
    assert report.hash == decode_line(lines(folder, segment_name(7))[-1]).hash
    assert [record.target for record in read(folder) if record] == [f"service-{n}" for n in range(1, 10)]


def test_a_log_without_records_has_no_problems_but_a_missing_one_is_an_error(tmp_path: Path) -> None:
    AuditLog(tmp_path / "audit", print).append([AuditEntry(ACT)])
    assert not check(tmp_path / "audit").problems
    with pytest.raises(PolydomoError, match="there is no audit log"):
        check(tmp_path / "none")


@pytest.mark.parametrize(("old", "new"), [(b"service-2", b"service-5"), (b'"ann"', b'"eve"'), (b"}", b" }")])
def test_a_changed_record_is_named(folder: Path, old: bytes, new: bytes) -> None:
    first, second, third = lines(folder)
    rewrite(folder, [first, second.replace(old, new), third])
    ((kind, message),) = found(folder)
    assert kind == CHANGED
    assert message.startswith("record 2 ")
    assert check(folder).problems[0].where == f"{FIRST} line 2"


def test_every_changed_byte_is_detected(tmp_path: Path) -> None:
    folder = filled(tmp_path / "audit", 2)
    whole = (folder / FIRST).read_bytes()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        (folder / FIRST).write_bytes(changed)
        assert check(folder).problems, f"byte {place}"


def test_a_record_that_was_replaced_with_a_fitting_hash_is_named(folder: Path, tmp_path: Path) -> None:
    other = filled(tmp_path / "other")
    first, _, third = lines(folder)
    rewrite(folder, [first, lines(other)[1], third])
    assert [kind for kind, _ in found(folder)] == [CHANGED, CHANGED]
    assert "record 2 does not follow record 1" in found(folder)[0][1]


def test_the_last_record_replaced_with_a_fitting_hash_is_named_by_the_head(
    folder: Path, tmp_path: Path
) -> None:
    other = filled(tmp_path / "other")
    for name in segments(folder):
        (folder / name).write_bytes((other / name).read_bytes())
    assert found(folder) == [(CHANGED, f"record 9 is not the one that {HEAD} names")]


def test_a_removed_record_is_named(folder: Path) -> None:
    first, _, third = lines(folder)
    rewrite(folder, [first, third])
    assert found(folder) == [(MISSING, "record 2 is missing")]
    assert check(folder).problems[0].where == f"before {FIRST} line 2"


def test_several_removed_records_are_one_problem(folder: Path) -> None:
    rewrite(folder, lines(folder)[2:])
    rewrite(folder, lines(folder, segment_name(4))[:1], segment_name(4))
    assert found(folder) == [
        (MISSING, "records 1 to 2 are missing"),
        (MISSING, "records 5 to 6 are missing"),
    ]


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (1, "records 1 to 3 are missing"),
        (4, "records 4 to 6 are missing"),
    ],
)
def test_a_removed_segment_is_named(folder: Path, number: int, message: str) -> None:
    (folder / segment_name(number)).unlink()
    assert found(folder) == [(MISSING, message)]


def test_the_last_segment_removed_is_named(folder: Path) -> None:
    (folder / segment_name(7)).unlink()
    assert found(folder) == [(TRUNCATED, f"records 7 to 9 are missing at the end: {HEAD} names record 9")]


def test_records_in_another_order_are_named(folder: Path) -> None:
    first, second, third = lines(folder)
    rewrite(folder, [first, third, second])
    assert found(folder) == [(MOVED, "record 2 stands after record 3")]
    rewrite(folder, [first, second, second, third])
    assert found(folder) == [(MOVED, "record 2 is there a second time")]


def test_an_inserted_line_is_named(folder: Path) -> None:
    first, second, third = lines(folder)
    rewrite(folder, [first, b"{}\n", second, third])
    assert found(folder) == [(CHANGED, f"{FIRST} line 2 is no record")]


def test_a_truncated_log_is_named(folder: Path) -> None:
    rewrite(folder, lines(folder, segment_name(7))[:2], segment_name(7))
    assert found(folder) == [(TRUNCATED, f"record 9 is missing at the end: {HEAD} names record 9")]


def test_a_log_that_was_truncated_within_a_record_is_named(folder: Path) -> None:
    name = segment_name(7)
    rewrite(folder, [*lines(folder, name)[:2], b"{"], name)
    assert [kind for kind, _ in found(folder)] == [TRUNCATED, UNFINISHED]
    rewrite(folder, [b"".join(lines(folder))[:-1]])
    assert found(folder)[0] == (CHANGED, "record 3 was cut off")


def test_an_unfinished_write_is_named(folder: Path) -> None:
    with (folder / segment_name(7)).open("ab") as file:
        file.write(b'{"number":10')
    assert found(folder) == [(UNFINISHED, "the last write did not finish: 12 bytes follow record 9")]


def test_records_that_the_head_does_not_name_yet_are_no_problem(folder: Path) -> None:
    before = (folder / HEAD).read_bytes()
    filled(folder, 2)
    (folder / HEAD).write_bytes(before)
    report = check(folder)
    assert (report.problems, report.number) == ([], 11)


def test_a_missing_and_a_damaged_head_are_named(folder: Path) -> None:
    (folder / HEAD).write_bytes(b"{")
    ((kind, message),) = found(folder)
    assert (kind, "head.json is damaged" in message) == (HEAD_FILE, True)
    (folder / HEAD).unlink()
    assert found(folder) == [(HEAD_FILE, "head.json is missing")]


def test_an_anchor_noted_elsewhere_detects_a_log_that_was_made_anew(folder: Path, tmp_path: Path) -> None:
    noted = Anchor.parse(f"9:{check(folder).hash}", "the note")
    short = Anchor.parse(f"9:{check(folder).hash[:16]}", "the note")
    assert not found(folder, noted, short)
    assert found(filled(tmp_path / "longer", 12), noted) == [
        (CHANGED, "record 9 is not the one that the note names")
    ]
    assert found(filled(tmp_path / "shorter", 7), noted) == [
        (TRUNCATED, "records 8 to 9 are missing at the end: the note names record 9")
    ]


@pytest.mark.parametrize("text", ["", "9", "9:", "9:abc", ":" + 64 * "a", "x:" + 64 * "a", "9:" + 64 * "X"])
def test_a_text_that_is_no_anchor_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"NUMBER:HASH|invalid literal"):
        Anchor.parse(text, "")


def test_many_problems_are_counted_and_the_first_are_listed(tmp_path: Path) -> None:
    folder = filled(tmp_path / "audit", 1)
    rewrite(folder, [*lines(folder), *[b"x\n"] * 1500])
    report = check(folder)
    assert (len(report.problems), report.more) == (1000, 500)
