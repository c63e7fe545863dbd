"""The mechanism of the sync twins: blocking methods made from async ones, with the same parameters.

    class SyncHandle(SyncTwin[Handle]):
        result = awaited(Handle.result)         # handle.result() blocks and returns the result

A twin holds its async counterpart and runs its methods on the shared loop (`polydomo.sdk.background_loop`). Type
checkers see each method's own signature; `help` and `inspect` show it, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial, wraps
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from polydomo.sdk.background_loop import shared_loop

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")
Twin = TypeVar("Twin")

_END: Final = object()


class SyncTwin(Generic[A]):
    """An async object, used from threads without an event loop."""

    def __init__(self, target: A) -> None:
        self._target = target

    def _method(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return the target's method of the same name, which a subclass may have overridden."""
        found: Callable[..., Any] = getattr(self._target, method.__name__)
        return found


def direct(method: Callable[Concatenate[A, P], T]) -> Callable[Concatenate[SyncTwin[A], P], T]:
    """Return the twin of a method that any thread may call."""

    @wraps(method)
    def call(self: SyncTwin[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = self._method(method)(*args, **kwargs)
        return result

    return call


def awaited(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncTwin[A], P], T]:
    """Return the twin of an async method: it waits for the result."""

    @wraps(method)
    def call(self: SyncTwin[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        work: Coroutine[Any, Any, T] = self._method(method)(*args, **kwargs)
        return shared_loop().run(work)

    return call


def called(method: Callable[Concatenate[A, P], T]) -> Callable[Concatenate[SyncTwin[A], P], T]:
    """Return the twin of a plain method that needs a running event loop: it waits for the method's return."""

    @wraps(method)
    def call(self: SyncTwin[A], /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = shared_loop().call(self._method(method), *args, **kwargs)
        return result

    return call


def posted(method: Callable[Concatenate[A, P], None]) -> Callable[Concatenate[SyncTwin[A], P], None]:
    """Return the twin of a plain method that is called on the event loop, without waiting."""

    @wraps(method)
    def call(self: SyncTwin[A], /, *args: P.args, **kwargs: P.kwargs) -> None:
        shared_loop().loop.call_soon_threadsafe(partial(self._method(method), *args, **kwargs))

    return call


def iterated(
    method: Callable[Concatenate[A, P], AsyncIterator[T]],
) -> Callable[Concatenate[SyncTwin[A], P], Iterator[T]]:
    """Return the twin of a method with an async iterator: an iterator that waits for each value."""

    @wraps(method)
    def call(self: SyncTwin[A], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return each(self._method(method)(*args, **kwargs))

    return call


def converted(method: Callable[P, T], twin: Callable[[T], Twin]) -> Callable[P, Twin]:
    """Return a method whose result is the twin of the method's own."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> Twin:
        return twin(method(*args, **kwargs))

    return call


def each(values: AsyncIterator[T]) -> Iterator[T]:
    """Yield an async iterator's values, blocking. An iterator that is left early is closed by the event loop when it
    is dropped, as in `async for`."""

    async def next_value() -> Any:
        return await anext(values, _END)

    while (value := shared_loop().run(next_value())) is not _END:
        yield value
