"""A store with the test's own thread as its event loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from polydomo.deferred import Deferred
from polydomo.store import Store, open_store
from polydomo.store.batch import WriteBatch
from polydomo.store.errors import StoreError, StoreRefusal
from polydomo.store.memory import MemoryStore
from polydomo.store.operations import Operation
from polydomo.store.records import JobRecord
from tests.store.model import ModelStore

T = TypeVar("T")

NOW = 1_700_000_000_000_000  # wall time in µs
SECOND = 1_000_000
PATIENCE = 30.0  # seconds before a test gives up waiting


class Gate(Operation):
    """An operation that blocks the writer until `opened` is set, so that all later writes are one batch."""

    reached: Event = msgspec.field(default_factory=Event)
    opened: Event = msgspec.field(default_factory=Event)

    def apply(self, batch: WriteBatch) -> StoreRefusal | None:
        self.reached.set()
        assert self.opened.wait(PATIENCE)
        return None


class Desk:
    """A store and its owner. `do` writes and waits, `ask` reads and waits, `burst` writes one batch."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url = url
        self.options = options
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.turns = 0  # how often the store called
        self.store = self._open()

    def do(self, write: Callable[..., None], *args: Any, **options: Any) -> StoreError | None:
        outcomes: list[StoreError | None] = []
        write(*args, done=outcomes.append, **options)
        self.until(lambda: bool(outcomes))
        return outcomes[0]

    def ask(self, reply: Deferred[T]) -> T:
        found: list[T] = []
        failed: list[Exception] = []
        reply.then(found.append, failed.append)
        self.until(lambda: bool(found or failed))
        if failed:
            raise failed[0]
        return found[0]

    def burst(self, *writes: Callable[..., None]) -> list[str]:
        """Return the error code of each write, or "ok"."""
        outcomes: list[tuple[int, str]] = []
        gate = self.hold()
        for index, write in enumerate(writes):
            write(done=lambda error, index=index: outcomes.append((index, code(error))))
        gate.opened.set()
        self.until(lambda: len(outcomes) == len(writes))
        assert [index for index, _ in outcomes] == list(range(len(writes)))  # in order
        return [what for _, what in outcomes]

    def hold(self) -> Gate:
        """Block the writer until `opened` is set."""
        gate = Gate(None)
        if isinstance(self.store, MemoryStore | ModelStore):
            return gate  # all writes until the next turn of the loop are one batch
        self.store._write(gate)
        assert gate.reached.wait(PATIENCE)
        return gate

    def until(self, condition: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Run scheduled calls until the condition holds."""
        deadline = time.monotonic() + patience
        while not condition():
            try:
                task = self.calls.get(timeout=max(deadline - time.monotonic(), 0.001))
            except Empty:
                raise TimeoutError("the store does not answer") from None
            self.turns += 1
            task()

    def reopen(self) -> None:
        """Close the store and open it again, as after a restart of the broker."""
        self.close()
        self.store = self._open()

    def _open(self) -> Store:
        if self.url == "model:":
            return ModelStore(self.calls.put, **self.options)
        return open_store(self.url, self.calls.put, **self.options)

    def close(self) -> None:
        self.store.close()
        while True:
            try:
                self.calls.get_nowait()()
            except Empty:
                return


def code(error: StoreError | None) -> str:
    return "ok" if error is None else error.code


def job(number: int = 1, **fields: Any) -> JobRecord:
    """Return a new job with the number in its id and its times."""
    values: dict[str, Any] = {
        "service": b"echo",
        "client": b"client",
        "dialect": "nfp",
        "queued": NOW + number,
        "submitted": NOW + number,
        "max_attempts": 3,
        "timeout": 60 * SECOND,
        "body": b"body %d" % number,
        "envelope": b"envelope",
        "options": b'{"memo": true}',
    }
    return JobRecord(**{"id": name(number), **values, **fields})


def name(number: int) -> str:
    return str(UUID(int=number))
