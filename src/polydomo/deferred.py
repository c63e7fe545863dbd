"""Deferred values for code that does not await: the core's ports, the store and the broker's own services."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from functools import wraps
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_running: set[asyncio.Task[None]] = set()  # asyncio itself keeps weak references only


class Deferred(Generic[T]):
    """Value that arrives later, on the event loop's thread: `await` it, or pass callbacks to `then`.

    The work behind the value is already under way; a deferred value that is never awaited is computed as well.
    """

    __slots__ = ("_callbacks", "_error", "_settled", "_value")

    def __init__(self) -> None:
        self._settled = False
        self._value: T
        self._error: Exception | None = None
        self._callbacks: tuple[Callable[[T], object], Callable[[Exception], object]] | None = None

    def then(self, found: Callable[[T], object], failed: Callable[[Exception], object]) -> None:
        """Call `found` or `failed` once the value is settled, possibly at once. The last pair of callbacks counts."""
        self._callbacks = (found, failed)
        if self._settled:
            self._notify()

    def settle(self, value: T) -> None:
        """Set the value and notify the waiting code."""
        self._value = value
        self._settled = True
        self._notify()

    def fail(self, error: Exception) -> None:
        """Set the error that takes the place of the value."""
        self._error = error
        self._settled = True
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


def confirmed(start: Callable[[Callable[[Exception | None], None]], object]) -> Deferred[None]:
    """Start an operation that calls back with an error or None, and return its deferred confirmation."""
    result: Deferred[None] = Deferred()

    def done(error: Exception | None) -> None:
        if error is not None:
            result.fail(error)
        else:
            result.settle(None)

    start(done)
    return result


def deferring(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Deferred[T]]:
    """Turn a coroutine function into one that starts a task and returns its deferred result."""

    @wraps(work)
    def start(*args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        result: Deferred[T] = Deferred()

        async def run(coroutine: Coroutine[Any, Any, T]) -> None:
            try:
                value = await coroutine
            except Exception as error:
                result.fail(error)
            else:
                result.settle(value)

        task = asyncio.get_running_loop().create_task(run(work(*args, **kwargs)))
        _running.add(task)
        task.add_done_callback(_running.discard)
        return result

    return start


async def all_of(deferred: Sequence[Deferred[T]]) -> list[T]:
    """Return all values, or raise the first error in the order of the arguments.

    The last one is awaited first. The store answers in the order it is asked, so the others are settled by then and
    cost no further turn of the event loop.
    """
    if not deferred:
        return []
    last = asyncio.Event()
    deferred[-1].then(lambda _: last.set(), lambda _: last.set())
    await last.wait()
    return [await one for one in deferred]
