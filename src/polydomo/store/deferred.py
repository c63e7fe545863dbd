"""The answer to a question to the store: it comes later, on the loop's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from polydomo.store.errors import StoreError

T = TypeVar("T")


class Deferred(Generic[T]):
    """Wait for it with `await`, or have a function called with `then`: the core and the dialects do not
    await.

    All methods are for the loop's thread. The question is on its way as soon as there is a reply; nobody has
    to wait.
    """

    __slots__ = ("_error", "_listener", "_settled", "_value")

    def __init__(self) -> None:
        self._settled = False
        self._value: T
        self._error: StoreError | None = None
        self._listener: tuple[Callable[[T], object], Callable[[StoreError], object]] | None = None

    def then(self, found: Callable[[T], object], failed: Callable[[StoreError], object]) -> None:
        """Call one of the two when the answer is there, which may be at once. One listener only."""
        self._listener = (found, failed)
        if self._settled:
            self._tell()

    def settle(self, value: T) -> None:
        """Here is the answer."""
        self._value = value
        self._settled = True
        self._tell()

    def fail(self, error: StoreError) -> None:
        """There is no answer."""
        self._error = error
        self._settled = True
        self._tell()

    def __await__(self) -> Generator[Any, None, T]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(_: object) -> None:
            if not future.done():  # whoever waited may have been cancelled
                future.set_result(None)

        self.then(wake, wake)
        yield from future
        if self._error is not None:
            raise self._error
        return self._value

    def _tell(self) -> None:
        if self._listener is None:
            return
        found, failed = self._listener
        if self._error is not None:
            failed(self._error)
        else:
            found(self._value)
