"""One job for several workers, and the result of each of them.

    results = await client.broadcast("facts", {"what": "uptime"})      # {"w1": …, "w2": …}

    async for worker, result in client.broadcast("facts", {"what": "uptime"}):
        print(worker, result)                                          # as they arrive

A worker that failed has its error in place of a result. Such errors are not raised; `failures` has all of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from typing import Any

from polydomo.errors import JobFailed, PolydomoError
from polydomo.sdk import codecs, gather_codec
from polydomo.sdk.handle import Event, Handle


class Gather:
    """A job for several workers, returned by `Client.broadcast` and `Client.gather`. `await gather` is
    `await gather.result()`: a dict of workers and their results. An error of the whole job (a time-out, no broker) is
    raised; one worker's error takes the place of its result."""

    def __init__(self, handle: Handle, only: str = "") -> None:
        self.service = handle.service
        self.id = handle.id
        self._handle = handle
        self._only = only  # the single target, whose own result comes, not a gathered one
        self._results: dict[str, Any] = {}

    def done(self) -> bool:
        """Return whether the job has ended, with or without a result."""
        return self._handle.done()

    @property
    def failures(self) -> dict[str, PolydomoError]:
        """The errors of the workers known to have failed so far."""
        return {name: error for name, error in self._results.items() if isinstance(error, PolydomoError)}

    async def accepted(self) -> None:
        """Wait until the broker has accepted the job."""
        await self._handle.accepted()

    async def result(self) -> dict[str, Any]:
        """Wait for all results. May be called more than once."""
        if self._only:
            await self._only_result()
        else:
            handle = self._handle
            for name, result in gather_codec.decode(await handle.body(), handle.codec, self.service).items():
                self._results.setdefault(name, result)
        return dict(self._results)

    async def events(self) -> AsyncIterator[Event]:
        """Yield the workers' events as they arrive, until the job ends."""
        async for event in self._handle.events():
            yield event

    async def put(self, value: Any) -> None:
        """Send input to all workers that run the job."""
        await self._handle.put(value)

    def cancel(self) -> None:
        """Stop waiting and cancel the job."""
        self._handle.cancel()

    def __await__(self) -> Generator[Any, None, dict[str, Any]]:
        return self.result().__await__()

    async def __aiter__(self) -> AsyncIterator[tuple[str, Any]]:
        yielded: set[str] = set()
        async for piece in self._handle.pieces():
            name = gather_codec.name_of(piece)
            if name not in yielded:
                yielded.add(name)
                result = gather_codec.value(piece, self._handle.codec, self.service)
                yield name, self._results.setdefault(name, result)
        for name, result in (await self.result()).items():
            if name not in yielded:
                yield name, result

    async def _only_result(self) -> None:
        if not self._results:
            try:
                result = codecs.decode(await self._handle.body(), self._handle.codec)
            except JobFailed as error:
                result = error
            workers = self._handle.workers
            self._results[workers[0] if len(workers) == 1 else self._only] = result
