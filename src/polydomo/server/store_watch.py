"""Health check of the store, for as long as the broker runs.

Trouble begins when a transaction fails, or when the disk is found full or read-only. From then on durable jobs are
refused with the reason and the broker is not ready. About once a second the store is tried, and trouble ends after a
write of `disk.RESERVE` bytes is on disk. Trouble with a damaged file lasts until a restart.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from polydomo.deferred import confirmed
from polydomo.server.clock import wall_time
from polydomo.server.log import Log
from polydomo.store import Store
from polydomo.store.disk import RESERVE
from polydomo.store.errors import StoreCorrupt, StoreError, StoreIO, StoreTrouble

log = Log()

# Seconds between two checks of the disk, and between two retries in trouble.
CHECK: Final = 2.0
RETRY: Final = 1.0

# Key-value space of the test write.
SPACE: Final = "probe"


class StoreWatch:
    """Watch on one store.

    `recover` restores the store's unfinished jobs as soon as it can be opened. `changed` is called with the error that
    durable jobs are refused with, or None when they are accepted again. The file is checked for damage for `check`
    seconds.
    """

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
        """Recover the store's jobs, or begin in trouble if that is not possible yet."""
        self.store.on_trouble = self.begin
        try:
            if self.store.unopened is not None:
                raise self.store.unopened
            await self._recover_once()
            await asyncio.to_thread(self.store.inspect)
        except StoreCorrupt:
            raise  # a retry would not help
        except StoreTrouble as trouble:
            self.begin(trouble)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Stop the checks of the store."""
        self._closed = True
        self.store.on_trouble = None
        for task in (self._task, self._search):
            if task is not None:
                task.cancel()

    def show(self) -> dict[str, Any]:
        """Describe trouble and damage for `show_broker`."""
        return {"trouble": "" if self.trouble is None else str(self.trouble), "damage": self.store.damage}

    def begin(self, trouble: StoreTrouble) -> None:
        """Refuse durable jobs with this error; log it if its kind is new."""
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
            await asyncio.sleep(CHECK if self.trouble is None else RETRY)
            try:
                await self._check()
            except StoreTrouble as trouble:
                self.begin(trouble)
            except StoreError as error:  # the file was replaced by something else
                self.begin(StoreIO(error.message, hint=error.advice))

    async def _check(self) -> None:
        """Check the store and end the trouble if it has passed; raise StoreTrouble if it has not."""
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
                hint="look for disk errors; a recent backup may have the jobs",
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
            log.info("check of the store not completed in time", seconds=seconds, store=self._place)

    async def _write(self) -> None:
        """Write test data: only a write shows that trouble is over, and there may be no jobs to write."""
        await confirmed(lambda done: self.store.put(SPACE, b"", bytes(RESERVE), wall_time(), done=done))
        self.store.drop(SPACE, None)  # in a later batch: in the same one nothing would be written

    def _end(self) -> None:
        if self.trouble is not None and not isinstance(self.trouble, StoreCorrupt):
            self.trouble = None
            self._changed(None)
            seconds = round(time.monotonic() - self._began, 1)
            log.info("store recovered: durable jobs are accepted again", seconds=seconds, store=self._place)
