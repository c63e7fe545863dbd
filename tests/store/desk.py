"""A store and somebody who owns it: the test's own thread plays the event loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any, TypeVar
from uuid import UUID

from polydomo.store import Store, open_store
from polydomo.store.deferred import Deferred
from polydomo.store.errors import StoreError, StoreRefusal
from polydomo.store.memory import MemoryStore
from polydomo.store.operations import Operation
from polydomo.store.records import JobProgress, JobRecord
from polydomo.store.repository import Repository

T = TypeVar("T")

NOW = 1_700_000_000_000_000  # wall time in µs
SECOND = 1_000_000
PATIENCE = 30.0  # seconds before a test gives up waiting


class Gate(Operation):
    """Holds up the writer, so that all that is written meanwhile is one batch."""

    def __init__(self) -> None:
        super().__init__("", None)
        self.reached = Event()
        self.opened = Event()

    def ids(self) -> Sequence[str]:
        return ()

    def apply(self, books: Repository) -> StoreRefusal | None:
        self.reached.set()
        assert self.opened.wait(PATIENCE)
        return None

    def change(self, books: Repository, job: JobProgress) -> StoreRefusal | None:
        raise AssertionError


class Desk:
    """`do` writes and waits for the outcome; `ask` waits for an answer; `burst` writes several things at once."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url = url
        self.options = options
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.turns = 0  # how often the store called
        self.store: Store = open_store(url, self.calls.put, **options)

    def do(self, write: Callable[..., None], *args: Any, **options: Any) -> StoreError | None:
        outcomes: list[StoreError | None] = []
        write(*args, done=outcomes.append, **options)
        self.until(lambda: bool(outcomes))
        return outcomes[0]

    def ask(self, reply: Deferred[T]) -> T:
        found: list[T] = []
        failed: list[StoreError] = []
        reply.then(found.append, failed.append)
        self.until(lambda: bool(found or failed))
        if failed:
            raise failed[0]
        return found[0]

    def burst(self, *writes: Callable[..., None]) -> list[str]:
        """The codes of what became of them; "ok" where there was nothing to complain about."""
        outcomes: list[tuple[int, str]] = []
        gate = self.hold()
        for index, write in enumerate(writes):
            write(done=lambda error, index=index: outcomes.append((index, code(error))))
        gate.opened.set()
        self.until(lambda: len(outcomes) == len(writes))
        assert [index for index, _ in outcomes] == list(range(len(writes)))  # in order
        return [what for _, what in outcomes]

    def hold(self) -> Gate:
        """Hold up the writer until `opened` is set."""
        gate = Gate()
        if isinstance(self.store, MemoryStore):
            return gate  # it executes at once; there is nothing to hold up
        self.store._write(gate)
        assert gate.reached.wait(PATIENCE)
        return gate

    def until(self, condition: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Be the event loop until then."""
        deadline = time.monotonic() + patience
        while not condition():
            try:
                task = self.calls.get(timeout=max(deadline - time.monotonic(), 0.001))
            except Empty:
                raise TimeoutError("the store does not answer") from None
            self.turns += 1
            task()

    def reopen(self) -> None:
        """The broker ends in order, and starts again."""
        self.close()
        self.store = open_store(self.url, self.calls.put, **self.options)

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
    """A job as the core hands it over. The number is in its id and its times."""
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
