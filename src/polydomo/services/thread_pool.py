"""Work that may wait for a disk, done in a few threads beside the event loop.

A thread gets its next work when the loop has taken the result of its last: a loop that is busy is not given results
faster than it can pass them on, which may be megabytes each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

THREADS = 4

# More than this in line: the disk cannot keep up, and whoever asks next is told so.
QUEUE = 1000


class ThreadPool:
    """`post` runs a function on the event loop, from any thread, with the core's time set."""

    def __init__(self, post: Callable[[Callable[[], None]], object], threads: int = THREADS) -> None:
        self._post = post
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: deque[Callable[[], None]] = deque()  # work that no thread has yet
        self._running = 0  # work that a thread has, and results that the loop has not taken
        self._closed = False

    def run(
        self, work: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None:
        """`work` in a thread, then one of the other two on the loop. Never calls either before it returns."""
        if self._closed:
            return
        if len(self._waiting) + self._running >= QUEUE:
            error = ValueError(f"the broker has {QUEUE} reads of its disk in line; try again later")
            self._post(lambda: failed(error))
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "polydomo-files")

        def end(tell: Callable[[], None]) -> None:
            self._running -= 1
            if not self._closed:
                self._start()
                tell()

        def attempt() -> None:
            try:
                value = work()
            except Exception as caught:
                error = caught
                self._tell(lambda: end(lambda: failed(error)))
            else:
                self._tell(lambda: end(lambda: done(value)))

        self._waiting.append(attempt)
        self._start()

    def close(self) -> None:
        """What is not finished is not told any more."""
        self._closed = True
        self._waiting.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        if self._pool is not None and self._waiting and self._running < self._threads:
            self._running += 1
            self._pool.submit(self._waiting.popleft())

    def _tell(self, tell: Callable[[], None]) -> None:
        try:
            self._post(tell)
        except RuntimeError:
            pass  # the loop is closed: nobody is there to be told
