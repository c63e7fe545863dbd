"""The key-value store's part of a batch of writes on a database.

Puts and drops are collected and written with one statement each. The effect of trimming a space depends on its items
at that point, so operations on the space after a trim belong to its next round. The rounds are written in order.

Table `spaces` has the totals of each space. They answer `space_totals`, and a trim sees at once whether there is
anything to do.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from polydomo.store import queries
from polydomo.store.database import Database, Row
from polydomo.store.records import KvItem

# How many of the oldest items are read at once.
PAGE: Final = 500

BEFORE_ALL: Final = -(1 << 63)  # earlier than any time


class KvBatch:
    """The operations of a batch on items of the key-value store, by rounds."""

    def __init__(self) -> None:
        self._rounds: list[_Round] = []
        self._round_of: dict[str, int] = {}  # the current round of a space

    def put(self, item: KvItem) -> None:
        """Add the item, or replace the one with its name."""
        self._current(item.space).items[item.space, item.name] = item

    def drop(self, space: str, name: bytes | None) -> None:
        """Remove the item with that name, or all items of the space."""
        current = self._current(space)
        if name is not None:
            current.items[space, name] = None
            return
        for key in [key for key in current.items if key[0] == space]:
            del current.items[key]
        current.cleared.add(space)

    def trim(self, space: str, now: int, size: int | None) -> None:
        """Remove expired items, then the oldest (by time, then name) until `size` bytes of values are left."""
        self._current(space).trims[space] = (now, size)
        self._round_of[space] = self._round_of.get(space, 0) + 1

    def write(self, database: Database) -> None:
        """Write the rounds in the open transaction."""
        for one in self._rounds:
            one.write(database)

    def _current(self, space: str) -> _Round:
        number = self._round_of.get(space, 0)
        while len(self._rounds) <= number:
            self._rounds.append(_Round())
        return self._rounds[number]


class _Round:
    """Operations between two trims, in the order: clear spaces, drop and put items, trim."""

    def __init__(self) -> None:
        self.cleared: set[str] = set()
        self.items: dict[tuple[str, bytes], KvItem | None] = {}  # None: dropped
        self.trims: dict[str, tuple[int, int | None]] = {}

    def write(self, database: Database) -> None:
        if self.cleared:
            for statement in queries.CLEAR_SPACES:
                database.execute_bulk(statement, [(encode_space(space),) for space in self.cleared])
        if self.items:
            self._write_items(database)
        for space, (now, size) in self.trims.items():
            _trim(database, encode_space(space), now, size)

    def _write_items(self, database: Database) -> None:
        names = [(encode_space(space), name) for space, name in self.items]
        old = database.fetch_bulk(queries.LOAD_ITEM_SIZES, names)
        if old:
            database.execute_bulk(queries.DELETE_ITEMS, [(space, name) for space, name, _ in old])
        new = [_row(item) for item in self.items.values() if item is not None]
        if new:
            # Deleted and inserted, not updated: PostgreSQL's bulk update would put a large value into JSON.
            database.insert(queries.ITEMS, new)
        items: Counter[bytes] = Counter()  # changes of the spaces' totals
        sizes: Counter[bytes] = Counter()
        for space, _, _, _, size, _ in new:
            items[space] += 1
            sizes[space] += size
        for space, _, size in old:
            items[space] -= 1
            sizes[space] -= size
        _add_totals(database, [(space, items[space], sizes[space]) for space in items])
        if len(new) < len(self.items):
            database.execute(queries.DELETE_EMPTY_SPACES)


def encode_space(space: str) -> bytes:
    """Encode a space's name for the databases: their text has no NUL, but a service's name may have one."""
    return space.encode(errors="surrogatepass")


def decode_space(name: bytes) -> str:
    """Return the name of a space from its encoded form."""
    return name.decode(errors="surrogatepass")


def _trim(database: Database, space: bytes, now: int, size: int | None) -> None:
    totals = database.fetch(queries.SPACE_TOTALS, space=space)
    if not totals:
        return
    items, total = totals[0]
    removed, freed = database.fetch(queries.MEASURE_EXPIRED_ITEMS, space=space, now=now)[0]
    if removed:
        database.execute(queries.DELETE_EXPIRED_ITEMS, space=space, now=now)
    at, name = BEFORE_ALL, b""
    while size is not None and total - freed > size:
        rows = database.fetch(queries.LIST_OLDEST_ITEMS, space=space, at=at, name=name, limit=PAGE)
        if not rows:
            break  # the totals were wrong: never loop in the writer's thread
        for row in rows:
            at, name = row[:2]
            removed += 1
            freed += row[2]
            if total - freed <= size:
                break
    if at != BEFORE_ALL:
        database.execute(queries.DELETE_OLDEST_ITEMS, space=space, at=at, name=name)
    if removed:
        _add_totals(database, [(space, -removed, -freed)])
    if removed == items:
        database.execute(queries.DELETE_EMPTY_SPACES)


def _row(item: KvItem) -> Row:
    return (encode_space(item.space), item.name, item.at, item.until, len(item.value), item.value)


def _add_totals(database: Database, rows: list[Row]) -> None:
    rows = [row for row in rows if row[1] or row[2]]
    if rows:
        database.execute_bulk(queries.ADD_SPACE_TOTALS, rows)
