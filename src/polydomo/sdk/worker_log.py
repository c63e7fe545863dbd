"""What a worker tells people about its brokers, through Python's logging.

All its stations share one of these, so that what they all notice is told once: a broker that is lost, one that
cannot be reached (again only when the reason changes, or after a while), and where everything is offered. Bad
news is a warning, which Python shows even where nobody set up logging; good news is one, too, when it follows
bad news.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from polydomo.sdk.clock import Clock
from polydomo.sdk.url import Address

log = logging.getLogger("polydomo.sdk")

# Seconds before the same trouble is told again.
AGAIN: Final = 30.0


class WorkerLog:
    """Of one worker. `offering` is called with the broker (or brokers) instead of a line in the log."""

    def __init__(
        self, clock: Clock, services: list[str], stations: int, offering: Callable[[str], None] | None = None
    ) -> None:
        self._clock = clock
        self._services = services
        self._stations = stations
        self._offering = offering or self._log_offering
        self._homes: dict[object, Address] = {}  # where each station is registered
        self._offered_at = ""
        self._told: dict[str, float] = {}  # bad news since all was well, and when they were told

    def unreachable(self, trouble: str) -> None:
        """One attempt to connect failed."""
        self._warn(f"no broker at {trouble}; still looking")

    def lost(self, station: object, place: Address, reason: str) -> None:
        """A station's conversation ended, not by our own will."""
        self._homes.pop(station, None)
        self._offered_at = ""
        self._warn(f"{place}: {reason}; connecting again")

    def moving(self, station: object) -> None:
        """A station goes where all should meet."""
        self._homes.pop(station, None)
        self._offered_at = ""
        self._warn("an earlier broker is back; moving there")

    def registered(self, station: object, place: Address) -> None:
        """A station is offered to a broker; when the last one is, so is everything."""
        self._homes[station] = place
        if len(self._homes) < self._stations:
            return
        at = ", ".join(sorted({str(home) for home in self._homes.values()}))
        if at != self._offered_at:
            self._offered_at = at
            self._offering(at)
        self._told.clear()

    def _log_offering(self, at: str) -> None:
        level = logging.WARNING if self._told else logging.INFO
        log.log(level, "offering %s at %s", ", ".join(self._services), at)

    def _warn(self, news: str) -> None:
        now = self._clock.time()
        if news not in self._told or now >= self._told[news] + AGAIN:
            self._told[news] = now
            log.warning("%s", news)
