"""Work that may wait for a disk, done in a few threads beside the event loop."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

THREADS = 4

# More than this in line: the disk cannot keep up, and whoever asks next is told so.
QUEUE = 1000


class Background:
    """`post` runs a function on the event loop, from any thread, with the core's time set."""

    def __init__(self, post: Callable[[Callable[[], None]], object], threads: int = THREADS) -> None:
        self._post = post
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._waiting = 0
        self._closed = False

    def run(
        self, work: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None:
        """`work` in a thread, then one of the other two on the loop. Never calls either before it returns."""
        if self._closed:
            return
        if self._waiting >= QUEUE:
            error = ValueError(f"the broker has {QUEUE} reads of its disk in line; try again later")
            self._post(lambda: failed(error))
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "polydomo-files")
        self._waiting += 1

        def end(tell: Callable[[], None]) -> None:
            self._waiting -= 1
            if not self._closed:
                tell()

        def attempt() -> None:
            try:
                value = work()
            except Exception as caught:
                error = caught
                self._tell(lambda: end(lambda: failed(error)))
            else:
                self._tell(lambda: end(lambda: done(value)))

        self._pool.submit(attempt)

    def close(self) -> None:
        """What is not finished is not told any more."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _tell(self, tell: Callable[[], None]) -> None:
        try:
            self._post(tell)
        except RuntimeError:
            pass  # the loop is closed: nobody is there to be told
