"""A worker's messages about its brokers, through Python's logging.

All sessions of a worker share one log, so each fact is logged once: a broker that is lost, one that is unreachable
(again only when the reason changes, or after a while), and where the services are registered. Problems are warnings,
which Python shows even without logging being set up; so is the registration that ends a problem.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from polydomo.sdk.clock import AsyncClock
from polydomo.sdk.url import Address

log = logging.getLogger("polydomo.sdk")

# Seconds before the same problem is logged again.
REPEAT_AFTER: Final = 30.0


class WorkerLog:
    """The log of one worker. `on_offering`, if given, is called with the brokers instead of logging them."""

    def __init__(
        self,
        clock: AsyncClock,
        services: list[str],
        sessions: int,
        on_offering: Callable[[str], None] | None = None,
    ) -> None:
        self._clock = clock
        self._services = services
        self._sessions = sessions
        self._on_offering = on_offering or self._log_offering
        self._registered: dict[object, Address] = {}  # by session
        self._offered_at = ""
        self._warned: dict[
            str, float
        ] = {}  # problems since the last full registration, and when they were logged

    def unreachable(self, last_error: str) -> None:
        """Log a failed attempt to connect."""
        self._warn(f"no broker at {last_error}; still looking")

    def lost(self, session: object, address: Address, reason: str) -> None:
        """Log the end of a session's connection, unless the worker ended it."""
        self._unregister(session)
        self._warn(f"{address}: {reason}; connecting again")

    def moving(self, session: object) -> None:
        """Log that a session moves to an earlier broker."""
        self._unregister(session)
        self._warn("an earlier broker is back; moving there")

    def registered(self, session: object, address: Address) -> None:
        """Record a session's registration; log when all sessions are registered."""
        self._registered[session] = address
        if len(self._registered) < self._sessions:
            return
        at = ", ".join(sorted({str(address) for address in self._registered.values()}))
        if at != self._offered_at:
            self._offered_at = at
            self._on_offering(at)
        self._warned.clear()

    def _unregister(self, session: object) -> None:
        self._registered.pop(session, None)
        self._offered_at = ""

    def _log_offering(self, at: str) -> None:
        level = logging.WARNING if self._warned else logging.INFO
        log.log(level, "offering %s at %s", ", ".join(self._services), at)

    def _warn(self, problem: str) -> None:
        now = self._clock.time()
        if problem not in self._warned or now >= self._warned[problem] + REPEAT_AFTER:
            self._warned[problem] = now
            log.warning("%s", problem)
