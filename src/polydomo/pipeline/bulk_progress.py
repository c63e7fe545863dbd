"""Progress of a bulk call, shown on the driver.

    with watch("2026-11-16", url, total=orders.count()):
        call(orders, "score", url=url, run="2026-11-16").write.parquet("scored")

Tasks run as many processes on many machines, and Spark learns about their rows only when they end. The broker knows at
any time: each task is a client named after the run, the partition and the attempt. So the broker is polled, at
negligible cost. Only durable jobs can be watched: clients of other dialects have no names.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from polydomo.errors import PolydomoError
from polydomo.sdk.sync import SyncClient


class Progress(NamedTuple):
    """Progress of a run so far."""

    run: str
    rows: int  # with a reply
    under_way: int
    tasks: int  # started, not counting retries
    seconds: float
    total: int | None = None

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total:,} ({self.rows / max(self.total, 1):.0%})"
        rate = self.rows / self.seconds if self.seconds else 0.0
        return f"{self.run}: {self.rows:,}{of} rows, {rate:,.0f}/s, {self.under_way:,} under way, {self.tasks} tasks"


class Tally:
    """Counters of a run's clients. Clients that have left count as they were seen last."""

    def __init__(self, run: str, total: int | None = None) -> None:
        self.run = run
        self.total = total
        self._began = time.monotonic()
        self._answered: dict[str, dict[str, int]] = {}  # by partition and attempt

    def add(self, clients: list[dict[str, object]]) -> Progress:
        """Update the counters from the broker's list of clients (`show_clients`) and return the progress."""
        under_way = 0
        for client in clients:
            name = str(client["name"])
            run, _, rest = name.removeprefix(self.run).partition(".")
            if not name.startswith(self.run) or run or rest.count(".") != 1:
                continue
            partition, attempt = rest.split(".")
            unanswered = int(str(client["unanswered"]))
            under_way += unanswered
            seen = self._answered.setdefault(partition, {})
            seen[attempt] = max(seen.get(attempt, 0), int(str(client["submitted"])) - unanswered)
        # A retried task reattaches to its predecessor's jobs: the larger count is the partition's progress.
        rows = sum(max(attempts.values()) for attempts in self._answered.values())
        seconds = time.monotonic() - self._began
        return Progress(self.run, rows, under_way, len(self._answered), seconds, self.total)


@contextmanager
def watch(
    run: str,
    url: str | None = None,
    *,
    total: int | None = None,
    every: float = 1.0,
    show: Callable[[Progress], None] | None = None,
) -> Iterator[None]:
    """Show progress while an action on the result of `call(…, run=run)` runs in the `with` block: a line on standard
    error every `every` seconds, or whatever `show` does. `total`: the number of rows, if known."""
    end = threading.Event()
    tell = show or _line
    watching = threading.Thread(
        target=_watch, args=(Tally(run, total), url, every, tell, end), name="polydomo-progress", daemon=True
    )
    watching.start()
    try:
        yield
    finally:
        end.set()
        watching.join()
        if show is None:
            print(file=sys.stderr)


def _watch(
    tally: Tally, url: str | None, every: float, show: Callable[[Progress], None], end: threading.Event
) -> None:
    with SyncClient(url, timeout=5.0, connect_timeout=2.0) as client:
        while not end.wait(every):
            try:
                clients = client.call("mmi.service.broker", {"task": "show_clients"}, codec="json")
            except PolydomoError:
                continue  # the broker returns, or the rows report the error
            show(tally.add(clients))


def _line(progress: Progress) -> None:
    print(f"\r{progress}", end="", file=sys.stderr, flush=True)
