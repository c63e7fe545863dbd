"""The shelf's part of a batch of writes on a database.

What is put and dropped is collected and written with one statement per kind. Trimming depends on what is there by
then, so for a space that is trimmed what follows belongs to its next round: the rounds are written one after the
other.

`spaces` has the sum of what is in each space. It answers `room`, and tells a trim in one look that there is nothing
to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from polydomo.store import queries
from polydomo.store.database import Database, Row
from polydomo.store.records import KvItem
from polydomo.store.repository import KvRepository

# How many of the oldest items are looked at together.
LOOK: Final = 500

NEVER: Final = -(1 << 63)  # before all times


class KvBatch(KvRepository):
    """What is to be done, round by round."""

    def __init__(self) -> None:
        self._rounds: list[_Round] = []
        self._round_of: dict[str, int] = {}  # the one that a space is in

    def put(self, item: KvItem) -> None:
        self._current(item.space).items[item.space, item.name] = item

    def drop(self, space: str, name: bytes | None) -> None:
        current = self._current(space)
        if name is not None:
            current.items[space, name] = None
            return
        for key in [key for key in current.items if key[0] == space]:
            del current.items[key]
        current.cleared.add(space)

    def trim(self, space: str, now: int, size: int | None) -> None:
        self._current(space).trims[space] = (now, size)
        self._round_of[space] = self._round_of.get(space, 0) + 1

    def write(self, database: Database) -> None:
        """Do it."""
        for step in self._rounds:
            step.write(database)

    def _current(self, space: str) -> _Round:
        number = self._round_of.get(space, 0)
        while len(self._rounds) <= number:
            self._rounds.append(_Round())
        return self._rounds[number]


class _Round:
    """First whole spaces go, then single items go and come, then it is trimmed."""

    def __init__(self) -> None:
        self.cleared: set[str] = set()
        self.items: dict[tuple[str, bytes], KvItem | None] = {}  # None: dropped
        self.trims: dict[str, tuple[int, int | None]] = {}

    def write(self, database: Database) -> None:
        if self.cleared:
            for bulk in queries.CLEAR:
                database.change(bulk, [(encode(space),) for space in self.cleared])
        if self.items:
            self._write_items(database)
        for space, (now, size) in self.trims.items():
            _trim(database, encode(space), now, size)

    def _write_items(self, database: Database) -> None:
        names = [(encode(space), name) for space, name in self.items]
        old = database.ask(queries.SHELVED, names)
        if old:
            database.change(queries.UNSHELVE, [(space, name) for space, name, _ in old])
        new = [_row(item) for item in self.items.values() if item is not None]
        if new:
            # Removed and appended, not updated: a large value need not fit into a text of JSON.
            database.append(queries.SHELF, new)
        _count(database, _sums(((row[0], 1, row[4]) for row in new), ((row[0], -1, -row[2]) for row in old)))
        if len(new) < len(self.items):
            database.execute(queries.REMOVE_SPACES)


def encode(space: str) -> bytes:
    """Spaces are bytes in the databases: a text there takes no NUL, and services' names may have one."""
    return space.encode(errors="surrogatepass")


def _trim(database: Database, space: bytes, now: int, size: int | None) -> None:
    room = database.fetch(queries.ROOM, space=space)
    if not room:
        return
    items, total = room[0]
    gone, freed = database.fetch(queries.OVER, space=space, now=now)[0]
    if gone:
        database.execute(queries.REMOVE_OVER, space=space, now=now)
    at, name = NEVER, b""
    while size is not None and total - freed > size:
        rows = database.fetch(queries.OLDEST, space=space, at=at, name=name, limit=LOOK)
        for row in rows:
            at, name = row[:2]
            gone += 1
            freed += row[2]
            if total - freed <= size:
                break
    if at != NEVER:
        database.execute(queries.REMOVE_OLDEST, space=space, at=at, name=name)
    if gone:
        _count(database, [(space, -gone, -freed)])
    if gone == items:
        database.execute(queries.REMOVE_SPACES)


def _row(item: KvItem) -> Row:
    return (encode(item.space), item.name, item.at, item.until, len(item.value), item.value)


def _sums(*changes: Iterable[tuple[bytes, int, int]]) -> list[Row]:
    """By space."""
    sums: dict[bytes, tuple[int, int]] = {}
    for rows in changes:
        for space, items, size in rows:
            before = sums.get(space, (0, 0))
            sums[space] = (before[0] + items, before[1] + size)
    return [(space, items, size) for space, (items, size) in sums.items()]


def _count(database: Database, rows: list[Row]) -> None:
    rows = [row for row in rows if row[1] or row[2]]
    if rows:
        database.change(queries.FILL, rows)
