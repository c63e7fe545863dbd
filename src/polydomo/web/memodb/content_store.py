"""What MemoDB's users keep here: values by their CIDs, heads, and the results of calls.

All of it is on the server's shelf. A value whose content is inside its CID takes no place. Together it is bounded by
`memodb.bytes`; what does not fit is refused, as nothing here may be dropped on its own: whoever was given a CID may
have it in another value.

A call's name on the shelf is its function, a zero byte, and the CIDs of its arguments, so that a function's calls are
beside each other. One that is too long for a name has a hash in their place, and the CIDs behind its result.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from polydomo.store import Store
from polydomo.store.errors import StoreError
from polydomo.store.operations import DoneCallback
from polydomo.store.store import NAME_BYTES
from polydomo.web.api.json_responses import store_problem
from polydomo.web.api.problems import problem
from polydomo.web.memodb.cid import Cid
from polydomo.web.memodb.values import Value

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer
    from polydomo.store.records import KvItem

VALUES: Final = "cid"
HEADS: Final = "head"
CALLS: Final = "call"

# What an item costs beside its value: its name, and its place in indexes.
COST: Final = 128

# Names that are read at once, and that one answer lists.
PAGE: Final = 1000
MOST: Final = 100_000

# A function's name is a service's.
FUNC_BYTES: Final = 255

_HASHED: Final = b"\xff"  # no CID begins so
# Before a function's name: when its results were forgotten last. No function's name begins so.
_EPOCH: Final = b"\0"
_BEHIND_EPOCHS: Final = b"\0\xff"  # UTF-8 has no such byte


class Call(NamedTuple):
    """A function and its arguments: the same call has the same name, however its CIDs were written."""

    func: str
    args: tuple[Cid, ...]

    @property
    def joined(self) -> bytes:
        return b"".join(cid.bytes for cid in self.args)

    @property
    def name(self) -> bytes:
        """On the shelf."""
        args = self.joined
        if len(self.func.encode()) + 1 + len(args) > NAME_BYTES:
            args = _HASHED + blake2b(args, digest_size=32).digest()
        return self.func.encode() + b"\0" + args

    def __str__(self) -> str:
        return f"{self.func}/{','.join(map(str, self.args))}"


class ContentStore:
    """See the module's text."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self._used: int | None = None  # bytes; None: not measured
        self._keeping: dict[bytes, asyncio.Task[None]] = {}  # values that are being written, by their CIDs

    # Values

    async def value(self, cid: Cid) -> Value | None:
        """What the CID names, if it is known."""
        found = Value.inside(cid)
        if found is not None:
            return found
        item = await self._item(VALUES, cid.bytes)
        return None if item is None else Value(cid, item.value)

    async def knows(self, cid: Cid) -> bool:
        """Without reading it."""
        if cid.content is not None:
            return True
        # Nothing is between a CID and the same without its last byte: that would be a hash that is all but equal.
        found = await self._items(VALUES, cid.bytes[:-1], 1)
        return bool(found) and found[0].name == cid.bytes

    async def keep(self, value: Value) -> None:
        """Have it from now on; when this returns, it is on disk."""
        name = value.cid.bytes
        if value.cid.content is not None:
            return
        task = self._keeping.get(name)
        if task is None:
            task = self._keeping[name] = asyncio.get_running_loop().create_task(self._keep(value))
            task.add_done_callback(lambda task: self._kept(name, task))
        await asyncio.shield(task)  # others may wait for it, too

    async def _keep(self, value: Value) -> None:
        if not await self.knows(value.cid):
            await self._put(VALUES, value.cid.bytes, value.block)

    def _kept(self, name: bytes, task: asyncio.Task[None]) -> None:
        del self._keeping[name]
        if not task.cancelled():
            task.exception()  # if nobody waits any more, it is nobody's

    async def drop(self, cid: Cid) -> bool:
        """Forget what it names. False: it is not kept here."""
        if cid.content is not None or not await self.knows(cid):
            return False
        await self._drop(VALUES, [cid.bytes])
        return True

    # Heads

    async def head(self, name: str) -> Cid | None:
        """Where it points."""
        item = await self._item(HEADS, name.encode())
        return None if item is None else Cid.load(item.value)

    async def set_head(self, name: str, cid: Cid) -> None:
        """Let it point there."""
        await self._put(HEADS, name.encode(), cid.bytes)

    async def drop_head(self, name: str) -> bool:
        """False: there was none."""
        if await self._item(HEADS, name.encode()) is None:
            return False
        await self._drop(HEADS, [name.encode()])
        return True

    async def heads(self, after: str = "") -> tuple[list[str], bool]:
        """Their names in order, and if there are more."""
        found: list[str] = []
        last = after.encode()
        while len(found) < MOST:
            items = await self._items(HEADS, last, PAGE)
            found += [item.name.decode() for item in items]
            if len(items) < PAGE:
                return found, False
            last = items[-1].name
        return found, True

    # Calls

    async def result(self, call: Call) -> Cid | None:
        """The call's result, if it is known."""
        item = await self._item(CALLS, call.name)
        return None if item is None else Cid.load_from(item.value, 0)[0]

    async def record(self, call: Call, result: Cid) -> None:
        """This is its result from now on."""
        name = call.name
        hashed = name[len(call.func.encode()) + 1 :].startswith(_HASHED)
        await self._put(CALLS, name, result.bytes + (call.joined if hashed else b""))

    async def forget(self, call: Call) -> bool:
        """The result, so that the call is evaluated again. False: there was none."""
        if await self._item(CALLS, call.name) is None:
            return False
        await self._begin_epoch(call.func)
        await self._drop(CALLS, [call.name])
        return True

    async def forget_all(self, func: str) -> None:
        """All results of a function."""
        await self._begin_epoch(func)
        prefix = func.encode() + b"\0"
        while names := [item.name for item in await self._calls(prefix, prefix)]:
            await self._drop(CALLS, names)

    async def epoch(self, func: str) -> bytes:
        """Changes when results of the function are forgotten: what was asked before is not what is asked now."""
        item = await self._item(CALLS, _EPOCH + func.encode())
        return b"" if item is None else item.value

    async def funcs(self, after: str = "") -> tuple[list[str], bool]:
        """Functions with a known result, in order, and if there are more."""
        found: list[str] = []
        last = after.encode() + b"\x01" if after else _BEHIND_EPOCHS
        while len(found) < MOST:
            items = await self._items(CALLS, last, 1)
            if not items:
                return found, False
            func = items[0].name.partition(b"\0")[0]
            found.append(func.decode())
            last = func + b"\x01"  # behind all of its calls, and before whatever else begins like it
        return found, True

    async def calls(self, func: str, after: Call | None = None) -> tuple[list[Call], bool]:
        """Its calls with a known result, and if there are more."""
        found: list[Call] = []
        prefix = func.encode() + b"\0"
        last = prefix if after is None else after.name
        while len(found) < MOST:
            items = await self._calls(prefix, last)
            for item in items:
                args = item.name[len(prefix) :]
                if args.startswith(_HASHED):
                    full = await self._item(CALLS, item.name)
                    if full is None:
                        continue
                    args = full.value[Cid.load_from(full.value, 0)[1] :]
                found.append(Call(func, _cids(args)))
            if len(items) < PAGE:
                return found, False
            last = items[-1].name
        return found, True

    async def _calls(self, prefix: bytes, after: bytes) -> list[KvItem]:
        return [item for item in await self._items(CALLS, after, PAGE) if item.name.startswith(prefix)]

    async def _begin_epoch(self, func: str) -> None:
        await self._put(CALLS, _EPOCH + func.encode(), os.urandom(8), anyway=True)

    # The shelf

    @property
    def _shelf(self) -> Store:
        return self.server.shelf

    async def _item(self, space: str, name: bytes) -> KvItem | None:
        try:
            return await self._shelf.item(space, name)
        except StoreError as error:
            raise store_problem(error) from error

    async def _items(self, space: str, after: bytes, limit: int) -> list[KvItem]:
        try:
            return await self._shelf.items(space, after, limit)
        except StoreError as error:
            raise store_problem(error) from error

    async def _put(self, space: str, name: bytes, value: bytes, anyway: bool = False) -> None:
        """Write it, if there is room."""
        cost = COST + len(value)
        if space != VALUES:
            old = await self._item(space, name)
            cost -= 0 if old is None else COST + len(old.value)
        used = await self._measured()
        limit = self.server.settings.memodb.bytes
        if cost > 0 and used + cost > limit and not anyway:
            raise problem(
                "memodb-full",
                f"{used} of {limit} bytes are taken, and this needs {cost}; memodb.bytes is the limit",
            )
        self._used = used + cost
        now = int(time.time() * 1e6)
        try:
            await _written(lambda done: self._shelf.put(space, name, value, now, None, done))
        except BaseException:
            self._used = None  # it may be there or not
            raise

    async def _drop(self, space: str, names: list[bytes]) -> None:
        for name in names[:-1]:
            self._shelf.drop(space, name)
        await _written(lambda done: self._shelf.drop(space, names[-1], done))
        self._used = None

    async def _measured(self) -> int:
        if self._used is None:
            total = 0
            for space in (VALUES, HEADS, CALLS):
                try:
                    count, size = await self._shelf.space_totals(space)
                except StoreError as error:
                    raise store_problem(error) from error
                total += count * COST + size
            if self._used is None:  # somebody else may have been faster
                self._used = total
        return self._used


def _cids(data: bytes) -> tuple[Cid, ...]:
    found = []
    pos = 0
    while pos < len(data):
        cid, pos = Cid.load_from(data, pos)
        found.append(cid)
    return tuple(found)


async def _written(write: Callable[[DoneCallback], None]) -> None:
    """Until it is on disk."""
    future: asyncio.Future[StoreError | None] = asyncio.get_running_loop().create_future()

    def done(error: StoreError | None) -> None:
        if not future.done():  # whoever waits may be gone
            future.set_result(error)

    try:
        write(done)
    except StoreError as error:
        raise store_problem(error) from error
    failed = await future
    if failed is not None:
        raise store_problem(failed) from failed
