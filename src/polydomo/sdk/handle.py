"""A call under way: wait for its result, watch its partial answers, or stop waiting."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from typing import Any

from polydomo.errors import JobFailed
from polydomo.sdk import codecs
from polydomo.sdk.codecs import Codec


class Handle:
    """Given by `Client.submit`. `await handle` is `await handle.result()`.

    Partial answers are kept until they are read. If the connection was lost and the call sent again, they begin
    anew: the job is run again.
    """

    def __init__(
        self,
        service: str,
        codec: Codec,
        perform: Callable[[Callable[[bytes], None]], Coroutine[Any, Any, bytes]],
    ) -> None:
        self.service = service
        self._codec = codec
        self._partials: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._task = asyncio.create_task(perform(self._partial))
        self._task.add_done_callback(self._ended)

    def done(self) -> bool:
        """Has it ended, well or not?"""
        return self._task.done()

    async def result(self) -> Any:
        """The final answer, decoded, or the error in its place. May be asked for more than once."""
        try:
            body = await asyncio.shield(self._task)
        except asyncio.CancelledError:
            if self._task.cancelled():
                raise JobFailed(f"{self.service}: given up with cancel()", reason="cancelled") from None
            raise
        return codecs.decode(body, self._codec)

    async def partials(self) -> AsyncIterator[Any]:
        """Partial answers as they come, decoded; ends when the job does. Each is given once."""
        while True:
            while self._partials:
                yield codecs.decode(self._partials.popleft(), self._codec)
            if self._task.done():
                return
            self._news.clear()
            await self._news.wait()

    def cancel(self) -> None:
        """Stop waiting. The job itself is not stopped: MDP and DCP have no word for that."""
        self._task.cancel()

    def __await__(self) -> Generator[Any, None, Any]:
        return self.result().__await__()

    def _partial(self, body: bytes) -> None:
        self._partials.append(body)
        self._news.set()

    def _ended(self, task: asyncio.Task[bytes]) -> None:
        self._news.set()
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not complain if nobody asks for the result
