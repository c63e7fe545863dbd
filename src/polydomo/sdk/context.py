"""The context of a running job: what a service's function can ask and do besides returning a result.

Functions with a second parameter get a context: `Context` in async functions, `SyncContext` in plain ones, which run
in threads. Both have the same methods; those that wait are awaited in the first and block in the second.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from polydomo.errors import Timeout
from polydomo.sdk import codecs
from polydomo.sdk.client import DEFAULT, Client, TimeLimit
from polydomo.sdk.codecs import Codec
from polydomo.sdk.worker_connection import RunningJob


class Forward(NamedTuple):
    """The service and body to which a job is forwarded."""

    service: str
    body: bytes  # canonical (wire.frames)


class BaseContext:
    """The part that `Context` and `SyncContext` share."""

    def __init__(
        self,
        service: str,
        job: str,
        codec: Codec,
        client: Client,
        emit: Callable[[bytes], None],
        running: RunningJob | None = None,
    ) -> None:
        self.service = service  # the requested name
        self.job = job  # the broker's id of this attempt; each attempt has another
        self.id = (
            "" if running is None else running.id
        )  # the client's UUID (NFP only), the same for every attempt
        self.forwarded: Forward | None = None
        self._running = running
        self._codec = codec
        self._client = client
        self._emit = emit
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def resources(self) -> list[str]:
        """The worker's resources: its own (`Worker(resources=…)`) and those that the broker has assigned to it."""
        return [] if self._running is None else self._running.resources

    @property
    def cancelled(self) -> bool:
        """True after the client has cancelled the job (NFP only). An async function is interrupted; a plain one goes on
        in its thread, so a long-running one should check this now and then."""
        return self._running is not None and self._running.cancelled

    def progress(self, value: Any) -> None:
        """Send a partial result at once. Thread-safe. (Ignored on DCP, which has no partial results.)"""
        self._send(self._emit, codecs.encode(value, self._codec))

    def event(self, kind: str, body: Any = None) -> None:
        """Send a progress event at once to the client and all subscribers. Thread-safe. `bytes` are sent unchanged, any
        other value as JSON. (NFP only; ignored in other dialects.)"""
        if self._running is not None:
            data = b"" if body is None else body if isinstance(body, bytes) else codecs.JSON.encode(body)
            self._send(self._running.event, kind, data)

    def forward(self, service: str, body: Any) -> None:
        """Forward the job to `service` when the function ends; that service's result is the client's result, and the
        function's own is not sent. DCP hands the job over. MDP cannot: there the worker calls the other service itself
        and is busy until it has the result."""
        self.forwarded = Forward(service, codecs.encode(body, self._codec))

    def _send(self, send: Callable[..., None], *args: Any) -> None:
        if threading.get_ident() == self._thread:
            send(*args)
        else:
            self._loop.call_soon_threadsafe(send, *args)

    async def _input(self, timeout: float | None) -> Any:
        if self._running is None:
            raise RuntimeError("only NFP has a way to add to a running job")
        try:
            async with self._client.clock.timeout(timeout):
                body = await self._running.input()
        except TimeoutError:
            raise Timeout(f"{self.service}: no input within {timeout:g} s", hint="") from None
        return codecs.decode(body, self._codec)


class Context(BaseContext):
    """The context of async functions."""

    async def call(
        self,
        service: str,
        body: Any = None,
        *,
        timeout: TimeLimit = DEFAULT,
        codec: str | Codec | None = None,
    ) -> Any:
        """Call another service through the same broker and return its result."""
        return await self._client.call(service, body, timeout=timeout, codec=codec)

    async def input(self, timeout: float | None = None) -> Any:
        """Wait for the client's next input (`Handle.put`) and return it. Raises Timeout after `timeout` seconds. NFP
        only."""
        return await self._input(timeout)


class SyncContext(BaseContext):
    """The context of plain functions."""

    def call(
        self,
        service: str,
        body: Any = None,
        *,
        timeout: TimeLimit = DEFAULT,
        codec: str | Codec | None = None,
    ) -> Any:
        """Call another service through the same broker and return its result."""
        call = self._client.call(service, body, timeout=timeout, codec=codec)
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def input(self, timeout: float | None = None) -> Any:
        """Wait for the client's next input and return it. NFP only."""
        return asyncio.run_coroutine_threadsafe(self._input(timeout), self._loop).result()
