"""The key-value store's items in memory.

An item belongs to a space and has a name there. It may have an expiry time, which readers check; the store removes
expired items only when a space is trimmed.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, nsmallest
from typing import Final

from polydomo.store.records import KvItem
from polydomo.store.repository import KvRepository

# A heap is rebuilt when it has more outdated entries than this, and more than current ones.
OUTDATED: Final = 64


class MemoryKv(KvRepository):
    """Spaces by name. Empty spaces are removed."""

    def __init__(self) -> None:
        self._spaces: dict[str, _Space] = {}

    def put(self, item: KvItem) -> None:
        self._spaces.setdefault(item.space, _Space()).put(item)

    def drop(self, space: str, name: bytes | None) -> None:
        if name is None:
            self._spaces.pop(space, None)
        elif space in self._spaces:
            self._spaces[space].drop(name)
            self._drop_if_empty(space)

    def trim(self, space: str, now: int, size: int | None) -> None:
        if space in self._spaces:
            self._spaces[space].trim(now, size)
            self._drop_if_empty(space)

    def item(self, space: str, name: bytes) -> KvItem | None:
        """Return one item, also if it has expired."""
        found = self._spaces.get(space)
        return None if found is None else found.items.get(name)

    def items(self, space: str, after: bytes, limit: int) -> list[KvItem]:
        """Return the items after the name `after`, by name, without their values."""
        found = self._spaces.get(space)
        if found is None:
            return []
        names = nsmallest(limit, (name for name in found.items if not after or name > after))
        items = [found.items[name] for name in names]
        return [KvItem(space, item.name, b"", item.at, item.until) for item in items]

    def totals(self, space: str) -> tuple[int, int]:
        """Return the number of items and the size of their values."""
        found = self._spaces.get(space)
        return (0, 0) if found is None else (len(found.items), found.size)

    def spaces(self, prefix: str) -> list[str]:
        """Return the names of all spaces with this prefix."""
        return sorted(name for name in self._spaces if name.startswith(prefix))

    def _drop_if_empty(self, space: str) -> None:
        if not self._spaces[space].items:
            del self._spaces[space]


class _Space:
    """The items of one space, with heaps by age and by expiry. Entries of replaced or dropped items are outdated."""

    def __init__(self) -> None:
        self.items: dict[bytes, KvItem] = {}
        self.size = 0
        self._by_age: list[tuple[int, bytes]] = []
        self._by_expiry: list[tuple[int, bytes]] = []

    def put(self, item: KvItem) -> None:
        self.drop(item.name)
        self.items[item.name] = item
        self.size += len(item.value)
        heappush(self._by_age, (item.at, item.name))
        if item.until is not None:
            heappush(self._by_expiry, (item.until, item.name))
        if len(self._by_age) > 2 * len(self.items) + OUTDATED:
            self._by_age = [(one.at, one.name) for one in self.items.values()]
            heapify(self._by_age)
        if len(self._by_expiry) > 2 * len(self.items) + OUTDATED:
            self._by_expiry = [(one.until, one.name) for one in self.items.values() if one.until is not None]
            heapify(self._by_expiry)

    def drop(self, name: bytes) -> None:
        item = self.items.pop(name, None)
        if item is not None:
            self.size -= len(item.value)

    def trim(self, now: int, size: int | None) -> None:
        while self._by_expiry and self._by_expiry[0][0] <= now:
            until, name = heappop(self._by_expiry)
            item = self.items.get(name)
            if item is not None and item.until == until:
                self.drop(name)
        while size is not None and self.size > size:
            at, name = heappop(self._by_age)
            item = self.items.get(name)
            if item is not None and item.at == at:
                self.drop(name)
