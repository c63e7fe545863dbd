"""Small things kept by name, for whoever needs them: what the writes mean, and memory's shelf.

An item belongs to a space and has a name there. It may have a time until which it is good; the shelf leaves that
to its readers and looks at it only when it is told to trim.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, nsmallest
from typing import Final

from polydomo.store.errors import StoreRefusal
from polydomo.store.operations import DoneCallback, Operation
from polydomo.store.records import KvItem
from polydomo.store.repository import KvRepository, Repository

# A heap with more outdated entries than this, and than current ones, is made anew.
OUTDATED: Final = 64


class PutItem(Operation):
    """An item, in the place of what has its name."""

    __slots__ = ("item",)

    def __init__(self, item: KvItem, done: DoneCallback | None) -> None:
        super().__init__("", done, len(item.value) + len(item.name))
        self.item = item

    def ids(self) -> tuple[str, ...]:
        return ()

    def apply(self, books: Repository) -> StoreRefusal | None:
        books.shelf.put(self.item)
        return None


class DropItem(Operation):
    """An item, or a whole space, is not wanted any more."""

    __slots__ = ("name", "space")

    def __init__(self, space: str, name: bytes | None, done: DoneCallback | None) -> None:
        super().__init__("", done)
        self.space = space
        self.name = name

    def ids(self) -> tuple[str, ...]:
        return ()

    def apply(self, books: Repository) -> StoreRefusal | None:
        books.shelf.drop(self.space, self.name)
        return None


class TrimSpace(Operation):
    """What has expired goes, and the oldest of what is too much."""

    __slots__ = ("limit", "now", "space")

    def __init__(self, space: str, now: int, limit: int | None, done: DoneCallback | None) -> None:
        super().__init__("", done)
        self.space = space
        self.now = now
        self.limit = None if limit is None else max(limit, 0)

    def ids(self) -> tuple[str, ...]:
        return ()

    def apply(self, books: Repository) -> StoreRefusal | None:
        books.shelf.trim(self.space, self.now, self.limit)
        return None


class MemoryKv(KvRepository):
    """Spaces by name; one without items is not kept."""

    def __init__(self) -> None:
        self._spaces: dict[str, _Space] = {}

    def put(self, item: KvItem) -> None:
        self._spaces.setdefault(item.space, _Space()).put(item)

    def drop(self, space: str, name: bytes | None) -> None:
        if name is None:
            self._spaces.pop(space, None)
        elif space in self._spaces:
            self._spaces[space].drop(name)
            self._tidy(space)

    def trim(self, space: str, now: int, size: int | None) -> None:
        if space in self._spaces:
            self._spaces[space].trim(now, size)
            self._tidy(space)

    def item(self, space: str, name: bytes) -> KvItem | None:
        """The one of that name."""
        found = self._spaces.get(space)
        return None if found is None else found.items.get(name)

    def items(self, space: str, after: bytes, limit: int) -> list[KvItem]:
        """By name, from behind `after`, without their values."""
        found = self._spaces.get(space)
        if found is None:
            return []
        names = nsmallest(limit, (name for name in found.items if not after or name > after))
        items = [found.items[name] for name in names]
        return [KvItem(space, item.name, b"", item.at, item.until) for item in items]

    def room(self, space: str) -> tuple[int, int]:
        """How many items and bytes."""
        found = self._spaces.get(space)
        return (0, 0) if found is None else (len(found.items), found.size)

    def spaces(self, prefix: str) -> list[str]:
        """Those that have something in them."""
        return sorted(name for name, space in self._spaces.items() if space.items and name.startswith(prefix))

    def _tidy(self, space: str) -> None:
        if not self._spaces[space].items:
            del self._spaces[space]


class _Space:
    """Its items, and two heaps to find the next to go. An entry whose item was replaced or dropped is outdated."""

    def __init__(self) -> None:
        self.items: dict[bytes, KvItem] = {}
        self.size = 0
        self._by_age: list[tuple[int, bytes]] = []
        self._by_end: list[tuple[int, bytes]] = []

    def put(self, item: KvItem) -> None:
        self.drop(item.name)
        self.items[item.name] = item
        self.size += len(item.value)
        heappush(self._by_age, (item.at, item.name))
        if item.until is not None:
            heappush(self._by_end, (item.until, item.name))
        if len(self._by_age) > 2 * len(self.items) + OUTDATED:
            self._by_age = [(one.at, one.name) for one in self.items.values()]
            heapify(self._by_age)
        if len(self._by_end) > 2 * len(self.items) + OUTDATED:
            self._by_end = [(one.until, one.name) for one in self.items.values() if one.until is not None]
            heapify(self._by_end)

    def drop(self, name: bytes) -> None:
        item = self.items.pop(name, None)
        if item is not None:
            self.size -= len(item.value)

    def trim(self, now: int, size: int | None) -> None:
        while self._by_end and self._by_end[0][0] <= now:
            until, name = heappop(self._by_end)
            item = self.items.get(name)
            if item is not None and item.until == until:
                self.drop(name)
        while size is not None and self.size > size:
            at, name = heappop(self._by_age)
            item = self.items.get(name)
            if item is not None and item.at == at:
                self.drop(name)
