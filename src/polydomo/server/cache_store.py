"""Memoised answers on disk: each service has a key-value space of its own in the store."""

from __future__ import annotations

from collections.abc import Callable

from polydomo.core.broker import Broker
from polydomo.core.policy import FOREVER
from polydomo.server.clock import wall_time
from polydomo.server.record_codec import as_bytes, as_text
from polydomo.store import Store
from polydomo.store.errors import StoreError
from polydomo.store.records import KvItem

PREFIX = "memo:"


class CacheStore:
    """Memoised answers of one broker in its store. `advance` sets the core's time.

    A failed read counts as a miss, and an answer that cannot be written stays in memory only: it can be computed again.
    """

    def __init__(self, broker: Broker, store: Store, advance: Callable[[], None]) -> None:
        self.broker = broker
        self.store = store
        self.advance = advance
        self._counted: set[bytes] = set()  # services whose answers on disk were counted

    def read(self, service: bytes, digest: bytes, then: Callable[[bytes | None, float], None]) -> None:
        """Call `then` with the answer to a request (None: a miss) and its expiry in the core's time."""

        def found(item: KvItem | None) -> None:
            self.advance()
            if item is None:
                then(None, 0.0)
            elif item.until is None:
                then(item.value, FOREVER)
            else:
                then(item.value, item.until / 1_000_000 - self.broker.clock.epoch)

        if service not in self._counted:
            self._counted.add(service)
            self.store.space_totals(space_of(service)).then(
                lambda room: self._count(service, room[0]), _ignore
            )
        self.store.item(space_of(service), digest).then(found, lambda error: found(None))

    def keep(self, service: bytes, digest: bytes, value: bytes, until: float) -> None:
        """Write an answer that is valid until a time of the core."""
        wall = None if until == FOREVER else self.broker.clock.wall(until)
        try:
            self.store.put(space_of(service), digest, value, wall_time(), wall)
        except StoreError:
            pass  # the store's backlog is full

    def forget(self, service: bytes, digest: bytes) -> None:
        """Remove one answer, or all of them if the digest is empty."""
        self.store.drop(space_of(service), digest or None)

    def trim(self) -> None:
        """Remove expired answers, and the oldest ones beyond `memo_bytes`."""

        def found(spaces: list[str]) -> None:
            for space in spaces:
                policy = self.broker.services.policy_of(service_of(space))
                self.store.trim(space, wall_time(), policy.memo_bytes)

        self.store.spaces(PREFIX).then(found, _ignore)

    def _count(self, service: bytes, count: int) -> None:
        """Mark the cache in memory as complete if the disk has no more answers: a miss then needs no read."""
        cache = self.broker.control.cache_of(service)
        if count <= len(cache.memos):
            cache.complete = True


def _ignore(error: Exception) -> None:
    """Ignore the error; the disk is read for each miss."""


def space_of(service: bytes) -> str:
    """Return the space of a service."""
    return PREFIX + as_text(service)


def service_of(space: str) -> bytes:
    """Return the service of a space."""
    return as_bytes(space.removeprefix(PREFIX))
