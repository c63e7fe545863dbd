"""The store's two threads: one writes, in batches; one reads. The event loop never waits for either.

Group commit: the writer takes everything that is queued and executes it in one transaction. While it waits for the
disk, the next batch accumulates. So batches grow with the load, and no delay has to be configured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, TypeVar

from polydomo.deferred import Deferred
from polydomo.store.errors import StoreClosed, StoreError, StoreInvalid
from polydomo.store.operations import Operation, Outcomes

T = TypeVar("T")

# Limits of one transaction; see also store.BATCH.
BATCH_BYTES: Final = 16 * 1024 * 1024
BATCH_WRITES: Final = 16384

# Schedules a function on the event loop's thread.
CallSoon = Callable[[Callable[[], object]], object]


class WriterThread:
    """The thread that writes.

    `execute` runs a batch as one transaction. It raises StoreError if the disk or the server failed, and another
    exception if one of the operations cannot be written at all.
    """

    def __init__(
        self,
        execute: Callable[[Sequence[Operation]], Outcomes],
        report: Callable[[Sequence[Operation], Outcomes], None],
        call_soon: CallSoon,
        batch: int,
    ) -> None:
        self._limit = batch
        self._execute = execute
        self._report = report
        self._call_soon = call_soon
        self._queue: SimpleQueue[Operation | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="polydomo-store-writer", daemon=True)
        self._thread.start()

    def submit(self, operation: Operation) -> None:
        """Queue an operation for the next batch."""
        self._queue.put(operation)

    def close(self) -> None:
        """Write what is queued, then stop the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            batch, last = self._collect()
            if batch:
                outcomes = commit(self._execute, batch)
                schedule(self._call_soon, partial(self._report, batch, outcomes))
            if last:
                return

    def _collect(self) -> tuple[list[Operation], bool]:
        """Wait for operations and return all that are queued, and whether they are the last."""
        batch: list[Operation] = []
        size = 0
        awaited = 0  # operations with a `done`; the others do not count
        operation = self._queue.get()
        while operation is not None:
            batch.append(operation)
            size += operation.size
            awaited += operation.done is not None
            if awaited >= self._limit or len(batch) >= BATCH_WRITES or size >= BATCH_BYTES:
                return batch, False
            try:
                operation = self._queue.get_nowait()
            except Empty:
                return batch, False
        return batch, True


class ReaderThread:
    """The thread that reads, one query after the other."""

    def __init__(self, call_soon: CallSoon) -> None:
        self._call_soon = call_soon
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._closed = False
        self._thread = Thread(target=self._run, name="polydomo-store-reader", daemon=True)
        self._thread.start()

    def submit(self, query: Callable[[], T]) -> Deferred[T]:
        """Queue a query and return its future result."""
        reply: Deferred[T] = Deferred()
        if self._closed:
            reply.fail(StoreClosed("the store is closed"))
        else:
            self._queue.put(partial(answer, query, reply, self._call_soon))
        return reply

    def close(self) -> None:
        """Run what is queued, then stop the thread."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (task := self._queue.get()) is not None:
            task()


def commit(execute: Callable[[Sequence[Operation]], Outcomes], batch: Sequence[Operation]) -> Outcomes:
    """Execute a batch. An operation that cannot be written is found by bisection, so that only that one fails."""
    try:
        return execute(batch)
    except StoreError as trouble:
        return [trouble] * len(batch)
    except Exception as error:
        if len(batch) == 1:
            return [StoreInvalid(f"{type(batch[0]).__name__} cannot be written: {error!r}")]
        middle = len(batch) // 2
        return commit(execute, batch[:middle]) + commit(execute, batch[middle:])


def answer(query: Callable[[], T], reply: Deferred[T], call_soon: CallSoon) -> None:
    """Run a query and settle its reply on the event loop's thread."""
    try:
        value = query()
    except Exception as error:
        failure = error if isinstance(error, StoreError) else StoreInvalid(f"the query failed: {error!r}")
        schedule(call_soon, partial(reply.fail, failure))
    else:
        schedule(call_soon, partial(reply.settle, value))


def schedule(call_soon: CallSoon, function: Callable[[], object]) -> None:
    """Schedule a function, unless the event loop was closed before the store."""
    try:
        call_soon(function)
    except RuntimeError:
        pass
