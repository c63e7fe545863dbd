"""Ended jobs as rows of numbers."""

from __future__ import annotations

from polydomo.core.columns import FIELDS, ROW, ROW_SIZE, RowJournal, Rows
from polydomo.core.worker import Worker
from tests.support.core import Bench


class Batches(RowJournal):
    def __init__(self, room: int) -> None:
        super().__init__(room)
        self.room = room
        self.batches: list[Rows] = []

    def event(self, kind: str, worker: Worker, reason: str) -> None:
        pass

    def collect(self) -> None:
        self.batches.append(self.rows)
        self.rows = Rows(self.room)


def numbers(rows: Rows) -> list[dict[str, float]]:
    names = [name for name, _ in FIELDS]
    return [
        dict(zip(names, ROW.unpack_from(rows.buffer, place * ROW_SIZE), strict=True))
        for place in range(rows.count)
    ]


def test_a_row_has_the_size_that_is_said() -> None:
    assert ROW.size == ROW_SIZE
    assert ROW_SIZE % 8 == 0


def test_rows_are_handed_on_as_soon_as_there_is_no_room_for_more() -> None:
    bench = Bench()
    bench.broker.journal = journal = Batches(2)
    worker = bench.worker(b"echo", name=b"w")
    for number in range(5):
        bench.client(b"c%d" % (number % 2)).ask(b"echo", b"12345")
        worker.answer(b"x" * number)
    assert [batch.count for batch in journal.batches] == [2, 2]
    assert journal.rows.count == 1
    assert [row["bytes_out"] for row in numbers(journal.batches[1])] == [2, 3]
    assert [client.name for client in journal.batches[1].clients] == [b"c0", b"c1"]
    assert [row["client"] for row in numbers(journal.batches[1])] == [0, 1]
    assert [row["worker"] for row in numbers(journal.batches[1])] == [0, 0]


def test_who_never_had_a_worker_has_none() -> None:
    bench = Bench()
    bench.broker.journal = journal = Batches(100)
    bench.client(b"c").ask(b"", b"nobody offers this")
    (row,) = numbers(journal.rows)
    assert row["worker"] == -1
    assert list(journal.rows.failed) == [0]
    assert journal.rows.ending == 0
