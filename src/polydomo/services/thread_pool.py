"""A small thread pool for work that may wait for a disk.

A thread gets its next task after the event loop has taken the result of the previous one: results may be megabytes
each, and a busy loop must not get them faster than it passes them on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

THREADS = 4

# Tasks that may be queued and running; beyond that the disk cannot keep up and new ones fail.
QUEUE = 1000


class ThreadPool:
    """Pool of `threads`. `post` runs a function on the event loop, from any thread, after advancing the clock."""

    def __init__(self, post: Callable[[Callable[[], None]], object], threads: int = THREADS) -> None:
        self._post = post
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: deque[Callable[[], None]] = deque()
        self._running = 0  # tasks in a thread, and results that the loop has not taken
        self._closed = False

    def run(
        self, work: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None:
        """Run `work` in a thread, then `done` or `failed` on the event loop, never before this call returns."""
        if self._closed:
            return
        if len(self._waiting) + self._running >= QUEUE:
            error = ValueError(f"the broker has {QUEUE} disk reads in its queue; try again later")
            self._post(lambda: failed(error))
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "polydomo-files")

        def finish(report: Callable[[], None]) -> None:
            self._running -= 1
            if not self._closed:
                self._start()
                report()

        def attempt() -> None:
            try:
                report = partial(done, work())
            except Exception as caught:
                report = partial(failed, caught)
            with suppress(RuntimeError):  # the event loop is closed
                self._post(partial(finish, report))

        self._waiting.append(attempt)
        self._start()

    def close(self) -> None:
        """Stop the threads and discard unfinished work."""
        self._closed = True
        self._waiting.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        if self._pool is not None and self._waiting and self._running < self._threads:
            self._running += 1
            self._pool.submit(self._waiting.popleft())
