"""Check of the whole audit log: changed, missing and moved records, and records that were cut off at its end.

The check goes on after a problem, so that each one is named, and named once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from polydomo.errors import PolydomoError
from polydomo.security.audit_folder import HEAD, locked_for_reading, read_head, segments
from polydomo.security.audit_record import EVENT, NOTHING, AuditRecord, BrokenRecord, decode_line
from polydomo.security.audit_retention import REMOVED

# Kinds of problems.
CHANGED: Final = "changed"  # a line is not as it was written
MISSING: Final = "missing"  # there are records before and after
TRUNCATED: Final = "truncated"  # the last records are missing
MOVED: Final = "moved"  # a record is in another place
UNFINISHED: Final = "unfinished"  # the last write did not finish: the process was killed, or the disk is full
HEAD_FILE: Final = "head"  # the head file is missing or damaged

# Problems that are listed; more are only counted.
LISTED: Final = 1000

# Fewest digits of a hash in an anchor.
ANCHOR_DIGITS: Final = 16
_DIGITS: Final = frozenset("0123456789abcdef")


class Problem(msgspec.Struct, frozen=True):
    """Something wrong with the log."""

    kind: str
    where: str
    message: str


class Anchor(msgspec.Struct, frozen=True):
    """A record that was noted elsewhere: its number, and its hash or the beginning of it."""

    number: int
    hash: str
    source: str  # where it was noted

    @classmethod
    def parse(cls, text: str, source: str) -> Anchor:
        """Return the anchor that NUMBER:HASH means; raise ValueError if the text is none."""
        number, _, digest = text.partition(":")
        if len(digest) < ANCHOR_DIGITS or not set(digest) <= _DIGITS:
            raise ValueError(f"{text!r} is not NUMBER:HASH")
        return cls(int(number), digest, source)


class AuditReport(msgspec.Struct):
    """The outcome of a check."""

    segments: int = 0
    records: int = 0
    number: int = 0  # of the latest record
    hash: str = NOTHING
    problems: list[Problem] = []
    more: int = 0  # problems that are not listed

    def add(self, kind: str, where: str, message: str) -> None:
        """Add a problem; beyond `LISTED` it is only counted."""
        if len(self.problems) < LISTED:
            self.problems.append(Problem(kind, where, message))
        else:
            self.more += 1


def check(folder: Path, anchors: Sequence[Anchor] = ()) -> AuditReport:
    """Check the log as it is now; it is locked only while its end is noted. Raises PolydomoError if there is none."""
    with _readable(folder):
        return _check(folder, anchors)


def read(folder: Path) -> Iterator[AuditRecord | None]:
    """Yield all records, the oldest first, and None for each line that is no record."""
    with _readable(folder):
        for name in segments(folder):
            with (folder / name).open("rb") as file:
                for line in file:
                    try:
                        record = decode_line(line)
                    except BrokenRecord:
                        yield None
                    else:
                        yield record


def _check(folder: Path, anchors: Sequence[Anchor]) -> AuditReport:
    report = AuditReport()
    expected = list(anchors)
    with locked_for_reading(folder):
        try:
            head = read_head(folder)
        except ValueError as error:
            report.add(HEAD_FILE, HEAD, str(error))
        else:
            if head is None:
                report.add(HEAD_FILE, HEAD, f"{HEAD} is missing")
            else:
                expected.append(Anchor(head.number, head.hash, HEAD))
        sizes = {name: (folder / name).stat().st_size for name in segments(folder)}
    chain = _Chain(report, expected)
    for name, size in sizes.items():
        with (folder / name).open("rb") as file:
            left = size
            while left > 0 and (line := file.readline(left)):
                left -= len(line)
                chain.add(line, name)
    chain.finish()
    report.segments = len(sizes)
    return report


class _Gap(msgspec.Struct):
    """Missing records, unless they are found in another place."""

    first: int
    last: int
    where: str


class _Chain:
    """The records up to the latest one."""

    def __init__(self, report: AuditReport, anchors: Sequence[Anchor]) -> None:
        self._report = report
        self._anchors = anchors
        self._wanted = {anchor.number for anchor in anchors}
        self._hashes: dict[int, str] = {}  # of the wanted records
        self._gaps: list[_Gap] = []
        self._begin = ""  # NUMBER:HASH of the record before the first one
        self._removed: set[str] = set()  # the same, of records after which the log may begin
        self._latest = 0
        self._previous = NOTHING  # hash of the latest record; empty: its line was changed
        self._broken: list[Problem] = []  # lines after the latest record that are no records
        self._unfinished = 0  # bytes of an incomplete last line
        self._segment = ""
        self._line = 0

    def add(self, line: bytes, segment: str) -> None:
        """Check the next line of the log against the one before it."""
        if self._unfinished:
            self._broken.append(Problem(CHANGED, self._place(), "was cut off"))
        if segment != self._segment:
            self._segment, self._line = segment, 0
        self._line += 1
        self._unfinished = 0 if line.endswith(b"\n") else len(line)
        if self._unfinished:
            return
        try:
            record = decode_line(line)
        except BrokenRecord as error:
            self._broken.append(Problem(CHANGED, self._place(), str(error)))
            return
        if not self._report.records:
            self._begin = f"{record.number - 1}:{record.previous}"
        if record.kind == EVENT and record.action == REMOVED:
            self._removed.add(record.target)
        self._report.records += 1
        if record.number in self._wanted:
            self._hashes[record.number] = record.hash
        if record.number <= self._latest:
            self._add_moved(record)
        else:
            self._add_next(record)

    def finish(self) -> None:
        """Report what can be said only now that all lines are known."""
        report = self._report
        report.number, report.hash = self._latest, self._previous
        self._take_broken(len(self._broken))
        for gap in self._gaps:
            if gap.first == 1 and self._begin in self._removed:
                continue
            report.add(MISSING, f"before {gap.where}", f"{_records(gap.first, gap.last)} missing")
        for anchor in self._anchors:
            self._check_anchor(anchor)
        if self._unfinished:
            message = f"the last write did not finish: {self._unfinished} bytes follow record {self._latest}"
            report.add(UNFINISHED, self._place(), message)

    def _add_next(self, record: AuditRecord) -> None:
        self._take_broken(record.number - self._latest - 1)
        if record.number > self._latest + 1:
            self._gaps.append(_Gap(self._latest + 1, record.number - 1, self._place()))
        elif self._previous and record.previous != self._previous:
            message = (
                f"record {record.number} does not follow record {self._latest}: one of them was replaced"
            )
            self._report.add(CHANGED, self._place(), message)
        self._latest, self._previous = record.number, record.hash

    def _take_broken(self, missing: int) -> None:
        """Report the broken lines. The first `missing` ones stand for records."""
        for problem in self._broken:
            if missing > 0:
                missing -= 1
                self._latest += 1
                self._previous = ""
                self._report.add(problem.kind, problem.where, f"record {self._latest} {problem.message}")
            else:
                self._report.add(problem.kind, problem.where, f"{problem.where} is no record")
        self._broken.clear()

    def _add_moved(self, record: AuditRecord) -> None:
        """Report a record with a lower number than one before it."""
        number = record.number
        gap = next((gap for gap in self._gaps if gap.first <= number <= gap.last), None)
        if gap is None:
            self._report.add(MOVED, self._place(), f"record {number} is there a second time")
            return
        self._report.add(MOVED, self._place(), f"record {number} stands after record {self._latest}")
        self._gaps.remove(gap)
        for first, last in ((gap.first, number - 1), (number + 1, gap.last)):
            if first <= last:
                self._gaps.append(_Gap(first, last, gap.where))

    def _check_anchor(self, anchor: Anchor) -> None:
        number, source = anchor.number, anchor.source
        if number > self._latest:
            message = (
                f"{_records(self._latest + 1, number)} missing at the end: {source} names record {number}"
            )
            self._report.add(TRUNCATED, source, message)
        elif number in self._hashes and not self._hashes[number].startswith(anchor.hash):
            self._report.add(CHANGED, source, f"record {number} is not the one that {source} names")

    def _place(self) -> str:
        return f"{self._segment} line {self._line}"


def _records(first: int, last: int) -> str:
    return f"record {first} is" if first == last else f"records {first} to {last} are"


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Turn errors of the disk into a PolydomoError."""
    try:
        if not folder.is_dir():
            raise PolydomoError(
                f"there is no audit log in {folder}", hint="name the broker's folder with --data"
            )
        yield
    except OSError as error:
        raise PolydomoError(
            f"cannot read the audit log in {folder}: {error.strerror}",
            hint="run this as the user that runs the broker",
        ) from error
