"""Rows as calls of the SDK's client, over any dialect. A call that is lost may be run twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import time
from typing import Any

from polydomo.errors import PolydomoError, Timeout, Unreachable
from polydomo.pipeline.bulk_carrier import (
    DONE,
    LATER,
    LOOK,
    TIMEOUT,
    UNREACHABLE,
    Carrier,
    End,
    Errand,
    failure_of,
)
from polydomo.sdk.client import Client
from polydomo.sdk.failover import Backoff


class ClientCarrier(Carrier):
    """A carrier on the SDK's client, in the dialect of the URL."""

    def __init__(self, errand: Errand, ended: Callable[[Any, End], None], client: Client) -> None:
        super().__init__(errand, ended)
        self._client = client
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_ready = False

    async def ready(self) -> None:
        errand = self.errand
        end = self._client.clock.time() + errand.patience
        while not self._is_ready and self.over is None:
            try:
                self._is_ready = await self._client.offered(errand.service)
                found = self._nobody()
            except PolydomoError as error:
                found = End(UNREACHABLE, UNREACHABLE, f"no broker for {errand.patience:g} s: {error.message}")
            if not self._is_ready:
                if self._client.clock.time() >= end:
                    self._give_up(found)
                else:
                    await self._client.clock.sleep(LOOK)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._client.close()

    def _send(self, row: Any, uid: str, body: bytes, service: bytes | None) -> None:
        task = asyncio.create_task(self._perform(row, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _perform(self, row: Any, body: bytes) -> None:
        errand = self.errand
        clock = self._client.clock
        due = float("inf") if errand.timeout is None else clock.time() + errand.timeout
        backoff = Backoff()
        sent = time()
        while True:
            try:
                answer = await self._client.exchange(errand.service, body, timeout=errand.timeout)
                end = End(DONE, body=answer)
            except Timeout as error:
                end = End(TIMEOUT, TIMEOUT, error.message)
            except Unreachable as error:
                end = End(UNREACHABLE, UNREACHABLE, error.message)
                self._give_up(end)
            except asyncio.CancelledError:
                if self.over is None:
                    raise
                end = self.over
            except PolydomoError as error:
                end = failure_of(error)
                if end.error in LATER and clock.time() < due:
                    await clock.sleep(backoff.pause())
                    continue
            self._end(row, end._replace(sent=sent, ended=time()))
            return

    def _give_up(self, end: End) -> None:
        if self.over is None:
            self.over = end
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()
            self._make_room()
