"""Bytes on disk of each principal, and the room that is made when there are too many.

The store has the sums of what is written. What is being written is added here at once, so a burst of durable jobs
cannot pass a quota before its first commit.

When a principal has taken most of its quota, its oldest results are removed before their retention is over, then its
oldest dead letters; when all jobs together take more than `store.bytes`, those of the principal that has most. What is
removed is in the log. Unfinished jobs are never removed: a durable job beyond the quota is refused.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from polydomo.core.broker import Broker
from polydomo.core.principals import UNLIMITED, Principal
from polydomo.server.log import Log
from polydomo.store import Store
from polydomo.store.eviction import evict

log = Log()

# Room is made when more than 7/8 of a quota is taken, until 3/4 of it is left taken.
HIGH: Final = 7 / 8
LOW: Final = 3 / 4


class Holdings:
    """The sums of one broker's store. `limit`: bytes of all jobs together."""

    def __init__(self, broker: Broker, store: Store, limit: int) -> None:
        self.limit = limit
        self.total = 0  # bytes of all principals
        self.crowded = asyncio.Event()  # a principal has reached `HIGH`
        self.evicted = 0  # jobs that were removed to make room
        self._principals = broker.principals
        self._store = store
        self._unwritten: dict[Principal, int] = {}

    def writing(self, principal: Principal, size: int) -> None:
        """Count bytes that are about to be written; `written` follows."""
        self._unwritten[principal] = self._unwritten.get(principal, 0) + size
        self.add(principal, size)

    def written(self, principal: Principal, size: int, *, kept: bool) -> None:
        """Note that bytes are in the store, or that they could not be written (not `kept`)."""
        left = self._unwritten.get(principal, 0) - size
        if left > 0:
            self._unwritten[principal] = left
        else:
            self._unwritten.pop(principal, None)
        if not kept:
            self.add(principal, -size)

    async def refresh(self) -> None:
        """Read the sums from the store: jobs may have been removed."""
        rows = {row.principal: row.size for row in await self._store.holdings()}
        for name in rows:
            self._principals.get(name)
        self.total = 0
        for principal in self._principals.known.values():
            principal.stored = rows.get(principal.name, 0) + self._unwritten.get(principal, 0)
            self.total += principal.stored

    async def make_room(self) -> None:
        """Remove what is too much."""
        self.crowded.clear()
        await self.refresh()
        for principal in list(self._principals.known.values()):
            quota = principal.quota
            if quota is not None and quota.stored < UNLIMITED and principal.stored > quota.stored * HIGH:
                excess = principal.stored - int(quota.stored * LOW)
                await self._evict(principal, excess, f"its quota of {quota.stored} bytes")
        holders = sorted(self._principals.known.values(), key=lambda one: one.stored, reverse=True)
        for principal in holders:
            if self.total <= self.limit:
                break
            await self._evict(principal, self.total - self.limit, f"store.bytes ({self.limit} bytes)")

    def show(self) -> dict[str, Any]:
        """Describe the sums for `show_broker`."""
        return {"bytes": self.total, "bytes_limit": self.limit, "evicted": self.evicted}

    def add(self, principal: Principal, size: int) -> None:
        """Count bytes until the next `refresh`."""
        principal.stored += size
        self.total += size
        quota = principal.quota
        if self.total > self.limit or (quota is not None and principal.stored > quota.stored * HIGH):
            self.crowded.set()

    async def _evict(self, principal: Principal, size: int, why: str) -> None:
        removed = await evict(self._store, principal.name, size)
        count = removed.results + removed.dead
        if not count:
            return
        self.evicted += count
        await self.refresh()
        log.warning(
            "results removed to make room on disk",
            principal=principal.name,
            results=removed.results,
            dead_letters=removed.dead,
            bytes=removed.size,
            reason=f"{principal.name} has reached {why}",
            **({"first_dead_letters": ", ".join(removed.letters)} if removed.letters else {}),
        )
