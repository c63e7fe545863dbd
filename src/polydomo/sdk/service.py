"""A function offered as a service, and the four ways to run it.

    async def f(body)           awaited on the event loop
    async def f(body): yield    each value is a partial result, the last one the final result
    def f(body)                 in a thread, so that heartbeats continue while it computes
    def f(body): yield          in a thread; `return value` is the final result, else the last value yielded

Because the last value is the final result, a yielded value is sent when the next one is there or the generator has
ended; `ctx.progress(value)` sends at once. Each kind may have a second parameter, which gets the context.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import AsyncIterable, Callable, Generator
from concurrent.futures import Executor
from typing import Any, Final

from polydomo.sdk import codecs
from polydomo.sdk.codecs import Codec
from polydomo.sdk.context import BaseContext, Context, SyncContext

_NOTHING: Final = object()


class ServiceFunction:
    """A service's name, function and codec."""

    def __init__(self, name: str, function: Callable[..., Any], codec: Codec) -> None:
        self.name = name
        self.function = function
        self.codec = codec
        called = function if inspect.isroutine(function) else type(function).__call__
        self._streams = inspect.isasyncgenfunction(called)
        self._awaits = inspect.iscoroutinefunction(called)
        self._takes_context = _takes_context(name, function)
        self.context: type[BaseContext] = Context if self._streams or self._awaits else SyncContext

    async def run(self, body: bytes, context: BaseContext, executor: Executor) -> bytes:
        """Run the function and return the final body; partial results go through the context. Propagates the function's
        exceptions."""
        value = codecs.decode(body, self.codec)
        arguments = (value, context) if self._takes_context else (value,)
        if self._awaits:
            result = await self.function(*arguments)
        elif self._streams:
            result = await _drain(self.function(*arguments), context)
        else:
            result = await self._run_in_thread(executor, arguments, context)
        return b"" if context.forwarded is not None else codecs.encode(result, self.codec)

    async def _run_in_thread(
        self, executor: Executor, arguments: tuple[Any, ...], context: BaseContext
    ) -> Any:
        loop = asyncio.get_running_loop()
        variables = contextvars.copy_context()
        result, error = await loop.run_in_executor(executor, variables.run, self._call, arguments, context)
        if error is not None:
            raise error
        if inspect.isawaitable(result):  # a plain function that returned a coroutine
            result = await result
        return result

    def _call(self, arguments: tuple[Any, ...], context: BaseContext) -> tuple[Any, Exception | None]:
        """Call the function in the thread. Exceptions are returned, because futures cannot carry all of them."""
        try:
            result = self.function(*arguments)
            if inspect.isgenerator(result):
                result = _exhaust(result, context)
        except StopIteration as error:
            return None, RuntimeError(f"the function raised StopIteration({error.value!r})")
        except Exception as error:
            return None, error
        except BaseException as error:  # SystemExit and the like end the job, not the worker
            return None, RuntimeError(f"the function raised {type(error).__name__}({error})")
        return result, None


async def _drain(values: AsyncIterable[Any], context: BaseContext) -> Any:
    last: Any = _NOTHING
    async for value in values:
        if last is not _NOTHING:
            context.progress(last)
        last = value
    return None if last is _NOTHING else last


def _exhaust(values: Generator[Any, Any, Any], context: BaseContext) -> Any:
    last: Any = _NOTHING
    while True:
        try:
            value = next(values)
        except StopIteration as end:
            if end.value is None:
                return None if last is _NOTHING else last
            if last is not _NOTHING:
                context.progress(last)
            return end.value
        if last is not _NOTHING:
            context.progress(last)
        last = value


def _takes_context(name: str, function: Callable[..., Any]) -> bool:
    """Return whether the function has a parameter for the context. Raises TypeError for an unsuitable signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-ins have no signature
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    needed = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    several = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if (not positional and not several) or len(required) > 2 or needed:
        raise TypeError(f"the function of service {name!r} must take (body) or (body, ctx)")
    # A second parameter with a default is not for the context, unless it is called `ctx`.
    return len(required) == 2 or any(p.name == "ctx" for p in positional[1:2])
