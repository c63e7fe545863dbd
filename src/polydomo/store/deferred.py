"""The future result of a read, delivered on the event loop's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from polydomo.store.errors import StoreError

T = TypeVar("T")


class Deferred(Generic[T]):
    """A result that can be awaited, or passed to a callback with `then`: the core and the dialects do not await.

    All methods are for the loop's thread. The read starts at once, whether its result is used or not.
    """

    __slots__ = ("_callbacks", "_error", "_resolved", "_value")

    def __init__(self) -> None:
        self._resolved = False
        self._value: T
        self._error: StoreError | None = None
        self._callbacks: tuple[Callable[[T], object], Callable[[StoreError], object]] | None = None

    def then(self, found: Callable[[T], object], failed: Callable[[StoreError], object]) -> None:
        """Call `found` or `failed` as soon as there is a result, which may be at once. May be called once only."""
        self._callbacks = (found, failed)
        if self._resolved:
            self._notify()

    def resolve(self, value: T) -> None:
        """Set the result and call the callback."""
        self._value = value
        self._resolved = True
        self._notify()

    def fail(self, error: StoreError) -> None:
        """Set an error and call the callback."""
        self._error = error
        self._resolved = True
        self._notify()

    def __await__(self) -> Generator[Any, None, T]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(_: object) -> None:
            if not future.done():  # the waiting task may have been cancelled
                future.set_result(None)

        self.then(wake, wake)
        yield from future
        if self._error is not None:
            raise self._error
        return self._value

    def _notify(self) -> None:
        if self._callbacks is None:
            return
        found, failed = self._callbacks
        if self._error is not None:
            failed(self._error)
        else:
            found(self._value)
