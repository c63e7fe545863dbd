"""Memoised services' answers on disk: each service has a space of its own on the store's shelf."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from polydomo.core.policy import FOREVER
from polydomo.store.errors import StoreError
from polydomo.store.records import KvItem

if TYPE_CHECKING:
    from polydomo.server.store_adapter import StoreAdapter

PREFIX = "memo:"


class CacheStore:
    """Reads that fail count as "nothing there", writes that fail as not kept: an answer can be had again."""

    def __init__(self, keeper: StoreAdapter) -> None:
        self.keeper = keeper
        self.store = keeper.store
        self._looked: set[bytes] = set()  # services whose space was asked whether it is empty

    def read(self, service: bytes, digest: bytes, then: Callable[[bytes | None, float], None]) -> None:
        """The answer to one request, and until when it is good in the core's time."""

        def found(item: KvItem | None) -> None:
            self.keeper.touch()
            if item is None:
                then(None, 0.0)
            else:
                then(item.value, FOREVER if item.until is None else self.keeper.core_time(item.until))

        def missed(_: StoreError) -> None:
            found(None)

        if service not in self._looked:
            self._looked.add(service)
            self.store.space_totals(space_of(service)).then(
                lambda room: self._measured(service, room[0]), missed_room
            )
        self.store.item(space_of(service), digest).then(found, missed)

    def keep(self, service: bytes, digest: bytes, value: bytes, until: float) -> None:
        """One more answer."""
        wall = None if until == FOREVER else self.keeper.lifecycle.wall(until)
        try:
            self.store.put(space_of(service), digest, value, self.keeper.wall(), wall)
        except StoreError:
            pass  # too much waits to be written: it stays in memory only

    def forget(self, service: bytes, digest: bytes) -> None:
        """One answer, or, without a digest, all of them."""
        self.store.drop(space_of(service), digest or None)

    def trim(self) -> None:
        """Remove what is too old or too much."""

        def found(spaces: list[str]) -> None:
            for space in spaces:
                policy = self.keeper.broker.policy_of(service_of(space))
                self.store.trim(space, self.keeper.wall(), policy.memo_bytes)

        self.store.spaces(PREFIX).then(found, missed_room)

    def _measured(self, service: bytes, count: int) -> None:
        """With nothing on disk there is nothing to be looked for, as long as memory forgets nothing."""
        shelf = self.keeper.broker.memos.shelf(service)
        if count <= len(shelf.memos):
            shelf.complete = True


def missed_room(_: StoreError) -> None:
    """Then the disk is asked each time."""


def space_of(service: bytes) -> str:
    """Where its answers are. Names are bytes in the core and text in the store; this way none is lost or changed."""
    return PREFIX + service.decode("latin-1")


def service_of(space: str) -> bytes:
    """The opposite."""
    return space.removeprefix(PREFIX).encode("latin-1")
