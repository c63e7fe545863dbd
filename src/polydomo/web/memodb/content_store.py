"""Storage of MemoDB's values by CID, heads, and results of calls.

Everything is in the server's key-value store. A value that its CID contains is not stored. The total size is limited by
`memodb.bytes`; what does not fit is refused, as nothing may be evicted: other values may link to it.

A call's key is its function, a zero byte, and the CIDs of its arguments, so that a function's calls are adjacent. If
that is too long for a key, a hash replaces the CIDs, which are stored after the result.
"""

from __future__ import annotations

import asyncio
import os
import time
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from polydomo.deferred import confirmed
from polydomo.store import Store
from polydomo.store.store import NAME_BYTES
from polydomo.web.api.json_responses import store_errors
from polydomo.web.api.problems import problem
from polydomo.web.memodb.cid import Cid
from polydomo.web.memodb.values import Value

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer
    from polydomo.store.records import KvItem

VALUES: Final = "cid"
HEADS: Final = "head"
CALLS: Final = "call"

# Bytes of an item beside its value: its name and index entries.
COST: Final = 128

# Names that are read at once, and that one response lists.
PAGE: Final = 1000
LIST_MAX: Final = 100_000

# Limit of a function's name, which is a service's.
FUNC_BYTES: Final = 255

_HASHED: Final = b"\xff"  # no CID begins with it
# Prefix of a function's name for its epoch, which changes when results are deleted. No function's name begins with it.
_EPOCH: Final = b"\0"
_AFTER_EPOCHS: Final = b"\0\xff"  # this byte does not occur in UTF-8


class FunctionCall(NamedTuple):
    """A function and its arguments. Equal calls have equal keys, regardless of the base of their CIDs."""

    func: str
    args: tuple[Cid, ...]

    @property
    def joined(self) -> bytes:
        return b"".join(cid.bytes for cid in self.args)

    @property
    def name(self) -> bytes:
        """Return the call's key in the store."""
        args = self.joined
        if len(self.func.encode()) + 1 + len(args) > NAME_BYTES:
            args = _HASHED + blake2b(args, digest_size=32).digest()
        return self.func.encode() + b"\0" + args

    def __str__(self) -> str:
        return f"{self.func}/{','.join(map(str, self.args))}"


class ContentStore:
    """MemoDB's data of one server."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self._used: int | None = None  # bytes; None: not measured
        self._writing: dict[bytes, asyncio.Task[None]] = {}  # values that are being written, by CID

    # Values

    async def value(self, cid: Cid) -> Value | None:
        """Return the value of a CID; None if it is unknown."""
        found = Value.inside(cid)
        if found is not None:
            return found
        item = await self._item(VALUES, cid.bytes)
        return None if item is None else Value(cid, item.value)

    async def knows(self, cid: Cid) -> bool:
        """Return whether the value of a CID is known, without reading it."""
        if cid.content is not None:
            return True
        # The list starts after the CID without its last byte; no other key can come first, short of a hash collision.
        found = await self._items(VALUES, cid.bytes[:-1], 1)
        return bool(found) and found[0].name == cid.bytes

    async def keep(self, value: Value) -> None:
        """Store a value; it is on disk when this returns."""
        name = value.cid.bytes
        if value.cid.content is not None:
            return
        task = self._writing.get(name)
        if task is None:
            task = self._writing[name] = asyncio.get_running_loop().create_task(self._write(value))
            task.add_done_callback(lambda task: self._written(name, task))
        await asyncio.shield(task)  # other requests may wait for it, too

    async def _write(self, value: Value) -> None:
        if not await self.knows(value.cid):
            await self._put(VALUES, value.cid.bytes, value.block)

    def _written(self, name: bytes, task: asyncio.Task[None]) -> None:
        del self._writing[name]
        if not task.cancelled():
            task.exception()  # mark it as retrieved: all waiters may have been cancelled

    async def drop(self, cid: Cid) -> bool:
        """Delete the value of a CID; return False if it is not stored."""
        if cid.content is not None or not await self.knows(cid):
            return False
        await self._drop(VALUES, [cid.bytes])
        return True

    # Heads

    async def head(self, name: str) -> Cid | None:
        """Return the CID that a head points to; None if there is no such head."""
        item = await self._item(HEADS, name.encode())
        return None if item is None else Cid.load(item.value)

    async def set_head(self, name: str, cid: Cid) -> None:
        """Let a head point to a CID."""
        await self._put(HEADS, name.encode(), cid.bytes)

    async def drop_head(self, name: str) -> bool:
        """Delete a head; return False if there was none."""
        if await self._item(HEADS, name.encode()) is None:
            return False
        await self._drop(HEADS, [name.encode()])
        return True

    async def heads(self, after: str = "") -> tuple[list[str], bool]:
        """Return the names of heads in order, and whether there are more."""
        names, more = await self._names(HEADS, after.encode(), b"", LIST_MAX)
        return [name.decode() for name in names], more

    # Calls

    async def result(self, call: FunctionCall) -> Cid | None:
        """Return a call's result; None if it is unknown."""
        item = await self._item(CALLS, call.name)
        return None if item is None else Cid.load_from(item.value, 0)[0]

    async def record(self, call: FunctionCall, result: Cid) -> None:
        """Store a call's result."""
        name = call.name
        hashed = name[len(call.func.encode()) + 1 :].startswith(_HASHED)
        await self._put(CALLS, name, result.bytes + (call.joined if hashed else b""))

    async def forget(self, call: FunctionCall) -> bool:
        """Delete a call's result, so that it is evaluated again; return False if there was none."""
        if await self._item(CALLS, call.name) is None:
            return False
        await self._begin_epoch(call.func)
        await self._drop(CALLS, [call.name])
        return True

    async def forget_all(self, func: str) -> None:
        """Delete all results of a function."""
        await self._begin_epoch(func)
        prefix = func.encode() + b"\0"
        while names := (await self._names(CALLS, prefix, prefix, PAGE))[0]:
            await self._drop(CALLS, names)

    async def epoch(self, func: str) -> bytes:
        """Return an identifier that changes when results of the function are deleted.

        It is part of a job's idempotency key, so that a job from before the deletion is not joined.
        """
        item = await self._item(CALLS, _EPOCH + func.encode())
        return b"" if item is None else item.value

    async def funcs(self, after: str = "") -> tuple[list[str], bool]:
        """Return the functions with a known result, in order, and whether there are more."""
        found: list[str] = []
        last = after.encode() + b"\x01" if after else _AFTER_EPOCHS
        while len(found) < LIST_MAX:
            items = await self._items(CALLS, last, 1)
            if not items:
                return found, False
            func = items[0].name.partition(b"\0")[0]
            found.append(func.decode())
            last = func + b"\x01"  # after all of its calls, and before other functions with this prefix
        return found, True

    async def calls(self, func: str, after: FunctionCall | None = None) -> tuple[list[FunctionCall], bool]:
        """Return a function's calls with a known result, and whether there are more."""
        found: list[FunctionCall] = []
        prefix = func.encode() + b"\0"
        last = prefix if after is None else after.name
        names, more = await self._names(CALLS, last, prefix, LIST_MAX)
        for name in names:
            args = name[len(prefix) :]
            if args.startswith(_HASHED):
                full = await self._item(CALLS, name)
                if full is None:
                    continue
                args = full.value[Cid.load_from(full.value, 0)[1] :]
            found.append(FunctionCall(func, _cids(args)))
        return found, more

    async def _begin_epoch(self, func: str) -> None:
        await self._put(CALLS, _EPOCH + func.encode(), os.urandom(8), anyway=True)

    # The key-value store

    @property
    def _kv(self) -> Store:
        return self.server.value_store

    async def _item(self, space: str, name: bytes) -> KvItem | None:
        with store_errors():
            return await self._kv.item(space, name)

    async def _items(self, space: str, after: bytes, limit: int) -> list[KvItem]:
        with store_errors():
            return await self._kv.items(space, after, limit)

    async def _names(self, space: str, after: bytes, prefix: bytes, most: int) -> tuple[list[bytes], bool]:
        """Return names after `after` that begin with `prefix`, and whether there are more."""
        found: list[bytes] = []
        while len(found) < most:
            items = await self._items(space, after, PAGE)
            names = [item.name for item in items if item.name.startswith(prefix)]
            found += names
            if len(names) < PAGE:
                return found, False
            after = names[-1]
        return found, True

    async def _put(self, space: str, name: bytes, value: bytes, anyway: bool = False) -> None:
        """Store an item; raise HttpProblem if the limit is reached, unless `anyway`."""
        cost = COST + len(value)
        if space != VALUES:
            old = await self._item(space, name)
            cost -= 0 if old is None else COST + len(old.value)
        used = await self._measured()
        limit = self.server.settings.memodb.bytes
        if cost > 0 and used + cost > limit and not anyway:
            raise problem(
                "memodb-full",
                f"{used} of {limit} bytes are used, and this needs {cost}; increase memodb.bytes",
            )
        self._used = used + cost
        now = int(time.time() * 1e6)
        try:
            with store_errors():
                await confirmed(lambda done: self._kv.put(space, name, value, now, None, done))
        except BaseException:
            self._used = None  # it is not known whether the item was stored
            raise

    async def _drop(self, space: str, names: list[bytes]) -> None:
        for name in names[:-1]:
            self._kv.drop(space, name)
        with store_errors():
            await confirmed(lambda done: self._kv.drop(space, names[-1], done))
        self._used = None

    async def _measured(self) -> int:
        if self._used is None:
            total = 0
            for space in (VALUES, HEADS, CALLS):
                with store_errors():
                    count, size = await self._kv.space_totals(space)
                total += count * COST + size
            if self._used is None:  # another task may have measured it
                self._used = total
        return self._used


def _cids(data: bytes) -> tuple[Cid, ...]:
    found = []
    pos = 0
    while pos < len(data):
        cid, pos = Cid.load_from(data, pos)
        found.append(cid)
    return tuple(found)
