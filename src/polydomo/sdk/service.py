"""A function that is offered as a service, and the four ways of running one.

    async def f(body)           awaited on the event loop
    async def f(body): yield    each value is a partial answer, the last one the final answer
    def f(body)                 in a thread, so that heartbeats go on while it computes
    def f(body): yield          in a thread; `return value` is the final answer, else the last value yielded

Because the last value is the final answer, a yielded value goes out when the next one is there or the
generator has ended; `ctx.progress(value)` goes out at once. All take a context as second parameter if they
have one.
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


class Service:
    """A name and a function."""

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
        """The final body; partial ones go through the context. Raises whatever the function raises."""
        value = codecs.decode(body, self.codec)
        arguments = (value, context) if self._takes_context else (value,)
        if self._awaits:
            answer = await self.function(*arguments)
        elif self._streams:
            answer = await _drain(self.function(*arguments), context)
        else:
            answer = await self._in_thread(executor, arguments, context)
        return b"" if context.forwarded is not None else codecs.encode(answer, self.codec)

    async def _in_thread(self, executor: Executor, arguments: tuple[Any, ...], context: BaseContext) -> Any:
        loop = asyncio.get_running_loop()
        scope = contextvars.copy_context()
        answer, error = await loop.run_in_executor(executor, scope.run, self._outcome, arguments, context)
        if error is not None:
            raise error
        if inspect.isawaitable(answer):  # a plain function that made a coroutine
            answer = await answer
        return answer

    def _outcome(self, arguments: tuple[Any, ...], context: BaseContext) -> tuple[Any, Exception | None]:
        """In the thread. Exceptions are handed over as values: futures cannot carry all of them."""
        try:
            answer = self.function(*arguments)
            if inspect.isgenerator(answer):
                answer = _exhaust(answer, context)
        except StopIteration as error:
            return None, RuntimeError(f"the function raised StopIteration({error.value!r})")
        except Exception as error:
            return None, error
        except BaseException as error:  # SystemExit and the like end the job, not the worker
            return None, RuntimeError(f"the function raised {type(error).__name__}({error})")
        return answer, None


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
    """Has it a second parameter? Said early what a service's function must look like."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-ins do not tell
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    needed = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    several = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if (not positional and not several) or len(required) > 2 or needed:
        raise TypeError(f"the function of service {name!r} must take (body) or (body, ctx)")
    # A second parameter with a default is the function's own affair, unless it is called what we call it.
    return len(required) == 2 or any(p.name == "ctx" for p in positional[1:2])
