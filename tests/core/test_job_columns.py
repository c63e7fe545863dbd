"""Ended jobs as columns of numbers."""

from __future__ import annotations

import struct

from polydomo.core.job_columns import FIELDS, ColumnBuffer, ColumnJournal, ColumnSink
from polydomo.core.model import Client, Job, Worker
from tests.support.core import Bench


class Batches(ColumnSink):
    def __init__(self, room: int) -> None:
        self.journal = ColumnJournal(room, self)
        self.batches: list[ColumnBuffer] = []
        self.heard: list[str] = []

    def full(self) -> None:
        self.batches.append(self.journal.take())

    def event(self, kind: str, worker: Worker, reason: str) -> None:
        self.heard.append(f"{kind} {worker.name.decode()}")

    def attempt(self, job: Job, reason: str) -> None:
        self.heard.append(reason)

    def client(self, kind: str, client: Client, reason: str) -> None:
        self.heard.append(f"{kind} {client.name.decode()}")


def numbers(rows: ColumnBuffer, name: str) -> list[float]:
    codes = {"i4": "i", "i8": "q", "f8": "d"}
    return list(struct.unpack(f"<{rows.count}{codes[FIELDS[name][1:]]}", rows.fields()[name]))


def test_every_field_has_a_number_for_every_job() -> None:
    bench = Bench()
    batches = Batches(100)
    bench.broker.accounting.journal = batches.journal
    worker = bench.worker(b"echo", name=b"w")
    for number in range(3):
        bench.broker.advance(number + 1.0)
        bench.client(b"c").ask(b"echo", b"12345", b"env")
        bench.broker.advance(number + 1.25)
        worker.answer(b"x" * number)
    rows = batches.journal.rows
    assert list(rows.fields()) == list(FIELDS)
    found = {name: numbers(rows, name) for name in FIELDS}
    assert {name: values[1] for name, values in found.items()} == {
        "id": 2,
        "bytes_in": 8,
        "bytes_out": 1,
        "submitted": 2.0,
        "queued": 2.0,
        "started": 2.0,
        "dispatched": 2.0,
        "finished": 2.25,
        "attempts": 1,
        "partials": 0,
        "service": 0,
        "client": 1,
        "worker": 0,
    }


def test_rows_are_handed_on_as_soon_as_there_is_no_room_for_more() -> None:
    bench = Bench()
    batches = Batches(2)
    bench.broker.accounting.journal = batches.journal
    worker = bench.worker(b"echo", name=b"w")
    clients = [bench.client(b"c0"), bench.client(b"c1")]
    for number in range(5):
        clients[number % 2].ask(b"echo", b"12345")
        worker.answer(b"x" * number)
    assert [batch.count for batch in batches.batches] == [2, 2]
    assert batches.journal.rows.count == 1
    second = batches.batches[1]
    assert numbers(second, "bytes_out") == [2, 3]
    assert [client.name for client in second.clients] == [b"c0", b"c1"]
    assert numbers(second, "client") == [0, 1]
    assert numbers(second, "worker") == [0, 0]


def test_who_took_part_is_listed_anew_in_each_batch() -> None:
    bench = Bench()
    batches = Batches(2)
    bench.broker.accounting.journal = batches.journal
    worker = bench.worker(b"echo", name=b"w")
    clients = [bench.client(b"c%d" % number) for number in range(3)]
    for number in (0, 1, 2, 0, 2, 2):
        clients[number].ask(b"echo")
        worker.answer()
    named = [[client.name for client in batch.clients] for batch in batches.batches]
    assert named == [[b"c0", b"c1"], [b"c2", b"c0"], [b"c2"]]
    assert [numbers(batch, "client") for batch in batches.batches] == [[0, 1], [0, 1], [0, 0]]


def test_who_never_had_a_worker_has_none() -> None:
    bench = Bench()
    batches = Batches(100)
    bench.broker.accounting.journal = batches.journal
    bench.client(b"c").ask(b"", b"nobody offers this")
    rows = batches.journal.rows
    assert numbers(rows, "worker") == [-1]
    assert list(rows.failed) == [0]
    assert rows.ending == 0


def test_all_else_is_told_at_once() -> None:
    bench = Bench()
    batches = Batches(100)
    bench.broker.accounting.journal = batches.journal
    client = bench.client(b"c")
    worker = bench.worker(b"echo", name=b"w")
    client.ask(b"echo")
    worker.leave()
    assert batches.heard == ["joined c", "joined w", "left w", "worker-lost"]
