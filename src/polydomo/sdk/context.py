"""What a service's function is told about its job, and what it can do besides returning an answer.

Functions that take a second parameter get one: `Context` in async functions, `SyncContext` in plain ones,
which run in threads. Both have the same methods; those that wait are awaited in the one and block in the
other.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from polydomo.errors import Timeout
from polydomo.sdk import codecs
from polydomo.sdk.client import USUAL, Client, TimeLimit
from polydomo.sdk.codecs import Codec
from polydomo.sdk.worker_connection import JobPort


class Forward(NamedTuple):
    """Where a job goes instead of being answered."""

    service: str
    body: bytes  # canonical (wire.frames)


class BaseContext:
    """What both kinds have in common."""

    def __init__(
        self,
        service: str,
        job: str,
        codec: Codec,
        client: Client,
        emit: Callable[[bytes], None],
        line: JobPort | None = None,
    ) -> None:
        self.service = service  # under which name it was asked for
        self.job = job  # the broker's name for this attempt; a job that is run again gets another
        self.deadline: float | None = None  # until when an answer is of use; no dialect here tells it yet
        # The client's UUID for the job (NFP only), however often it is run.
        self.id = "" if line is None else line.id
        self.forwarded: Forward | None = None
        self._line = line
        self._codec = codec
        self._client = client
        self._emit = emit
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def resources(self) -> list[str]:
        """What this worker looks after: by its own word (`Worker(resources=…)`), and by the broker's, where that shares
        them out."""
        return [] if self._line is None else self._line.resources

    @property
    def cancelled(self) -> bool:
        """The client does not want the job any more (NFP only). An async function is interrupted then; a plain one
        goes on in its thread, so one that takes long should look now and then."""
        return self._line is not None and self._line.cancelled

    def progress(self, value: Any) -> None:
        """Send a partial answer at once. From any thread. (DCP has none: nothing is sent there.)"""
        body = codecs.encode(value, self._codec)
        if threading.get_ident() == self._thread:
            self._emit(body)
        else:
            self._loop.call_soon_threadsafe(self._emit, body)

    def event(self, kind: str, body: Any = None) -> None:
        """Say how it goes on, at once, to the client and to all who subscribed. From any thread. `bytes` as they are,
        anything else as JSON. (NFP only: nothing is sent elsewhere.)"""
        if self._line is None:
            return
        data = b"" if body is None else body if isinstance(body, bytes) else codecs.JSON.encode(body)
        if threading.get_ident() == self._thread:
            self._line.event(kind, data)
        else:
            self._loop.call_soon_threadsafe(self._line.event, kind, data)

    def forward(self, service: str, body: Any) -> None:
        """Pass the job on: when the function ends, `service` gets it, and its answer is the client's answer;
        what the function returns is not sent. DCP hands the job over; on MDP, which cannot, this worker asks
        the other service itself and returns the answer, so it is busy until then."""
        self.forwarded = Forward(service, codecs.encode(body, self._codec))

    async def _input(self, timeout: float | None) -> Any:
        if self._line is None:
            raise RuntimeError("only NFP has a way to add to a running job")
        try:
            async with self._client.clock.timeout(timeout):
                body = await self._line.input()
        except TimeoutError:
            raise Timeout(f"{self.service}: no input within {timeout:g} s", hint="") from None
        return codecs.decode(body, self._codec)


class Context(BaseContext):
    """For async functions."""

    async def call(
        self,
        service: str,
        body: Any = None,
        *,
        timeout: TimeLimit = USUAL,
        codec: str | Codec | None = None,
    ) -> Any:
        """Ask another service through the same broker, and wait for its answer."""
        return await self._client.call(service, body, timeout=timeout, codec=codec)

    async def input(self, timeout: float | None = None) -> Any:
        """What the client adds to the running job next (`Handle.put`); waits for it, `timeout` seconds at most, then
        it is a Timeout. NFP only."""
        return await self._input(timeout)


class SyncContext(BaseContext):
    """For plain functions."""

    def call(
        self,
        service: str,
        body: Any = None,
        *,
        timeout: TimeLimit = USUAL,
        codec: str | Codec | None = None,
    ) -> Any:
        """Ask another service through the same broker, and wait for its answer."""
        asked = self._client.call(service, body, timeout=timeout, codec=codec)
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result()

    def input(self, timeout: float | None = None) -> Any:
        """What the client adds to the running job next; waits for it. NFP only."""
        return asyncio.run_coroutine_threadsafe(self._input(timeout), self._loop).result()
