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

from polydomo.sdk import codecs
from polydomo.sdk.client import USUAL, Client, TimeLimit
from polydomo.sdk.codecs import Codec


class Forward(NamedTuple):
    """Where a job goes instead of being answered."""

    service: str
    body: bytes  # canonical (wire.frames)


class BaseContext:
    """What both kinds have in common."""

    def __init__(
        self, service: str, job: str, codec: Codec, client: Client, emit: Callable[[bytes], None]
    ) -> None:
        self.service = service  # under which name it was asked for
        self.job = job  # the broker's name for this attempt; a job that is run again gets another
        self.deadline: float | None = None  # until when an answer is of use; no dialect here tells it yet
        self.forwarded: Forward | None = None
        self._codec = codec
        self._client = client
        self._emit = emit
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def progress(self, value: Any) -> None:
        """Send a partial answer at once. From any thread. (DCP has none: nothing is sent there.)"""
        body = codecs.encode(value, self._codec)
        if threading.get_ident() == self._thread:
            self._emit(body)
        else:
            self._loop.call_soon_threadsafe(self._emit, body)

    def forward(self, service: str, body: Any) -> None:
        """Pass the job on: when the function ends, `service` gets it, and its answer is the client's answer;
        what the function returns is not sent. DCP hands the job over; on MDP, which cannot, this worker asks
        the other service itself and returns the answer, so it is busy until then."""
        self.forwarded = Forward(service, codecs.encode(body, self._codec))


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
