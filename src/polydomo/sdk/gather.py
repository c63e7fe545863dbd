"""One job for several workers, and what each of them answers.

    answers = await client.broadcast("facts", {"what": "uptime"})      # {"w1": …, "w2": …}

    async for worker, answer in client.broadcast("facts", {"what": "uptime"}):
        print(worker, answer)                                          # as they come

A worker that failed has its error in place of an answer: nothing is raised for it, and `failures` has all of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from typing import Any

from polydomo.errors import JobFailed, PolydomoError
from polydomo.sdk import codecs, gather_codec
from polydomo.sdk.handle import Event, Handle


class Gather:
    """Given by `Client.broadcast` and `Client.gather`. `await gather` is `await gather.result()`: a dict of workers and
    their answers. What is wrong with the whole (no time, no broker) is raised; what is wrong with one worker is in its
    place."""

    def __init__(self, handle: Handle, alone: str = "") -> None:
        self.service = handle.service
        self.id = handle.id
        self._handle = handle
        self._alone = alone  # who was asked, if it is only one: its own answer comes, not one of each
        self._answers: dict[str, Any] = {}

    def done(self) -> bool:
        """Has it ended, well or not?"""
        return self._handle.done()

    @property
    def failures(self) -> dict[str, PolydomoError]:
        """The workers that failed, as far as known, and why."""
        return {name: error for name, error in self._answers.items() if isinstance(error, PolydomoError)}

    async def accepted(self) -> None:
        """Until the broker has taken the job."""
        await self._handle.accepted()

    async def result(self) -> dict[str, Any]:
        """All answers. May be asked for more than once."""
        if self._alone:
            await self._only_answer()
        else:
            handle = self._handle
            for name, answer in gather_codec.decode(await handle.body(), handle.codec, self.service).items():
                self._answers.setdefault(name, answer)
        return dict(self._answers)

    async def events(self) -> AsyncIterator[Event]:
        """What the workers say meanwhile."""
        async for event in self._handle.events():
            yield event

    async def put(self, value: Any) -> None:
        """Give all workers that are at it something more."""
        await self._handle.put(value)

    def cancel(self) -> None:
        """Stop waiting, and end the job."""
        self._handle.cancel()

    def __await__(self) -> Generator[Any, None, dict[str, Any]]:
        return self.result().__await__()

    async def __aiter__(self) -> AsyncIterator[tuple[str, Any]]:
        told: set[str] = set()
        async for piece in self._handle.pieces():
            name = gather_codec.name_of(piece)
            if name not in told:
                told.add(name)
                answer = gather_codec.value(piece, self._handle.codec, self.service)
                yield name, self._answers.setdefault(name, answer)
        for name, answer in (await self.result()).items():
            if name not in told:
                yield name, answer

    async def _only_answer(self) -> None:
        if not self._answers:
            try:
                answer = codecs.decode(await self._handle.body(), self._handle.codec)
            except JobFailed as error:
                answer = error
            workers = self._handle.workers
            self._answers[workers[0] if len(workers) == 1 else self._alone] = answer
