"""The store's two threads: one writes, in batches; one reads. The event loop never waits for either.

Group commit: the writer takes everything that is queued, executes it in one transaction and tells everybody
together. While it waits for the disk, the next batch collects by itself; so batches grow with the load, and
nobody has to guess how long to wait for company.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, TypeVar

from polydomo.store.deferred import Deferred
from polydomo.store.errors import StoreClosed, StoreError, StoreInvalid
from polydomo.store.operations import Operation
from polydomo.store.store import CallSoon

T = TypeVar("T")

# A transaction ends when it has so many bytes or writes; see also base.BATCH.
BATCH_BYTES: Final = 16 * 1024 * 1024
BATCH_WRITES: Final = 16384

Outcomes = list[StoreError | None]


class WriterThread:
    """`execute` runs a batch as one transaction. It raises StoreError if nothing of it was written because of
    the disk or the server, and anything else if one of the writes cannot be written at all."""

    def __init__(
        self,
        execute: Callable[[Sequence[Operation]], Outcomes],
        report: Callable[[Sequence[Operation], Outcomes], None],
        call: CallSoon,
        batch: int,
    ) -> None:
        self._limit = batch
        self._execute = execute
        self._report = report
        self._call = call
        self._queue: SimpleQueue[Operation | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="polydomo-store-writer", daemon=True)
        self._thread.start()

    def put(self, op: Operation) -> None:
        """In its turn."""
        self._queue.put(op)

    def close(self) -> None:
        """Write what is queued, then end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            batch, last = self._collect()
            if batch:
                outcomes = self._commit(batch)
                _tell(self._call, partial(self._report, batch, outcomes))
            if last:
                return

    def _collect(self) -> tuple[list[Operation], bool]:
        """Wait for something to do; take all there is. True: it is the last batch."""
        batch: list[Operation] = []
        size = 0
        awaited = 0  # writes that somebody waits for; the others go along with the next of these
        op = self._queue.get()
        while op is not None:
            batch.append(op)
            size += op.size
            awaited += op.done is not None
            if awaited >= self._limit or len(batch) >= BATCH_WRITES or size >= BATCH_BYTES:
                return batch, False
            try:
                op = self._queue.get_nowait()
            except Empty:
                return batch, False
        return batch, True

    def _commit(self, batch: Sequence[Operation]) -> Outcomes:
        """One write that cannot be written must not take the others with it: it is found by halving the
        batch."""
        try:
            return self._execute(batch)
        except StoreError as trouble:
            return [trouble] * len(batch)
        except Exception as error:
            if len(batch) == 1:
                return [StoreInvalid(f"{type(batch[0]).__name__.lower()} cannot be written: {error!r}")]
            middle = len(batch) // 2
            return self._commit(batch[:middle]) + self._commit(batch[middle:])


class ReaderThread:
    """Answers questions one after the other. `explain` says what a driver's error means."""

    def __init__(self, call: CallSoon, explain: Callable[[Exception], StoreError | None]) -> None:
        self._call = call
        self._explain = explain
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._closed = False
        self._thread = Thread(target=self._run, name="polydomo-store-reader", daemon=True)
        self._thread.start()

    def ask(self, look: Callable[[], T]) -> Deferred[T]:
        """Run `look` in the reader's thread; its value is the answer."""
        reply: Deferred[T] = Deferred()

        def task() -> None:
            try:
                value = look()
            except Exception as error:
                failure = error if isinstance(error, StoreError) else self._explain(error)
                failure = failure or StoreInvalid(f"cannot be answered: {error!r}")
                _tell(self._call, lambda: reply.fail(failure))
            else:
                _tell(self._call, lambda: reply.settle(value))

        if self._closed:
            reply.fail(StoreClosed("the store is closed"))
        else:
            self._queue.put(task)
        return reply

    def close(self) -> None:
        """Answer what was asked, then end."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (task := self._queue.get()) is not None:
            task()


def _tell(call: CallSoon, what: Callable[[], None]) -> None:
    try:
        call(what)
    except RuntimeError:
        pass  # the loop was closed before the store: nobody is left to hear it
