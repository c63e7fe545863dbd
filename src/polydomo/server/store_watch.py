"""Whether the store can take durable jobs, watched for as long as the broker runs.

Trouble begins when a transaction fails, or when the disk is seen to be full or read-only. From then on durable jobs are
refused with the reason and the broker is not ready. It ends by itself: about once a second the store is tried, and
only a write of `disk.RESERVE` bytes that is on disk counts as recovered. A damaged file is trouble that does not end
before a restart.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from polydomo.server.log import Log
from polydomo.store import Store
from polydomo.store.disk import RESERVE
from polydomo.store.errors import StoreCorrupt, StoreError, StoreIO, StoreTrouble

log = Log()

# Seconds between two looks at the disk while all is well, and between two tries while it is not.
LOOK: Final = 2.0
RETRY: Final = 1.0

# Where a write is tried.
SPACE: Final = "probe"


class StoreWatch:
    """Belongs to one store. `recover` takes up the store's unfinished jobs, as soon as it can be opened; `changed` is
    told what durable jobs are to be refused with, None: they are taken. The file is searched for damage for `check`
    seconds."""

    def __init__(
        self,
        store: Store,
        place: str,
        recover: Callable[[], Awaitable[None]],
        changed: Callable[[StoreTrouble | None], None],
        check: float = 0.0,
    ) -> None:
        self.store = store
        self.trouble: StoreTrouble | None = None
        self._place = place
        self._recover = recover
        self._recovered = False
        self._changed = changed
        self._check_seconds = check
        self._began = 0.0
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._search: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Recover the store's jobs, or begin in trouble if that cannot be done yet."""
        self.store.on_trouble = self.begin
        try:
            if self.store.unopened is not None:
                raise self.store.unopened
            await self._recover_once()
            await asyncio.to_thread(self.store.inspect)
        except StoreCorrupt:
            raise  # nothing that a retry would mend
        except StoreTrouble as trouble:
            self.begin(trouble)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Stop watching."""
        self._closed = True
        self.store.on_trouble = None
        for task in (self._task, self._search):
            if task is not None:
                task.cancel()

    def show(self) -> dict[str, Any]:
        """Trouble and damage, for people."""
        return {"trouble": "" if self.trouble is None else str(self.trouble), "damage": self.store.damage}

    def begin(self, trouble: StoreTrouble) -> None:
        """Refuse durable jobs because of this. Logged once, and again when the reason is another."""
        known = self.trouble
        if isinstance(known, StoreCorrupt):
            return
        if known is None:
            self._began = time.monotonic()
        self.trouble = trouble
        self._changed(trouble)
        if type(known) is not type(trouble):
            log.error(
                "store in trouble: durable jobs are refused",
                reason=trouble.message,
                hint=trouble.advice,
                store=self._place,
            )

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK if self.trouble is None else RETRY)
            try:
                await self._check()
            except StoreTrouble as trouble:
                self.begin(trouble)
            except StoreError as error:  # there is something in its place that is no store
                self.begin(StoreIO(error.message, hint=error.advice))

    async def _check(self) -> None:
        """Raise StoreTrouble if there is some."""
        await asyncio.to_thread(self.store.inspect)
        if self.trouble is None or isinstance(self.trouble, StoreCorrupt):
            return
        await self.store.reopen()
        await self._recover_once()
        await self._write()
        self._end()

    async def _recover_once(self) -> None:
        if self._recovered:
            return
        if self.store.damage:
            log.error(
                "the store has lost jobs",
                reason=self.store.damage,
                hint="look for disk errors; a backup that is newer than that has them",
                store=self._place,
            )
        await self._recover()
        self._recovered = True
        if self._check_seconds:
            self._search = asyncio.get_running_loop().create_task(self._look_for_damage(self._check_seconds))

    async def _look_for_damage(self, seconds: float) -> None:
        found = await asyncio.to_thread(self.store.check_damage, seconds, lambda: self._closed)
        if found.problems:
            more = f" (and {len(found.problems) - 1} more)" if len(found.problems) > 1 else ""
            self.begin(StoreCorrupt(f"the store's file is damaged: {found.problems[0]}{more}"))
        elif not found.finished and not self._closed:
            log.info("the store was not searched for damage to its end", seconds=seconds, store=self._place)

    async def _write(self) -> None:
        """Only a write shows that trouble is over; without jobs there would be none."""
        done: asyncio.Future[StoreError | None] = asyncio.get_running_loop().create_future()

        def written(error: StoreError | None) -> None:
            if not done.done():
                done.set_result(error)

        self.store.put(SPACE, b"", bytes(RESERVE), time.time_ns() // 1000, done=written)
        error = await done
        if error is not None:
            raise error
        self.store.drop(SPACE, None)  # not in the same batch: nothing would be written then

    def _end(self) -> None:
        if self.trouble is not None and not isinstance(self.trouble, StoreCorrupt):
            self.trouble = None
            self._changed(None)
            seconds = round(time.monotonic() - self._began, 1)
            log.info("store recovered: durable jobs are taken again", seconds=seconds, store=self._place)
