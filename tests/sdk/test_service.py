"""Functions as services: the four ways to run one."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from polydomo.sdk import codecs
from polydomo.sdk.codecs import BodyError
from polydomo.sdk.context import BaseContext, Context, SyncContext
from polydomo.sdk.service import ServiceFunction
from polydomo.wire.frames import join

color = contextvars.ContextVar("color", default="none")


async def run(function: Callable[..., Any], value: Any, codec: str = "json") -> tuple[list[Any], Any]:
    """Its partial answers and its final one."""
    used = codecs.find(codec)
    service = ServiceFunction("test", function, used)
    partials: list[bytes] = []
    context = service.context("test", "job-1", used, None, partials.append)  # type: ignore[arg-type]
    with ThreadPoolExecutor(1) as executor:
        body = await service.run(codecs.encode(value, used), context, executor)
    await asyncio.sleep(0)  # partial answers of threads arrive in a later turn
    return [codecs.decode(part, used) for part in partials], codecs.decode(body, used)


async def test_a_plain_function_runs_in_a_thread():
    def function(value: int) -> list[Any]:
        return [value + 1, threading.current_thread() is threading.main_thread()]

    assert await run(function, 1) == ([], [2, False])


async def test_an_async_function_runs_on_the_loop():
    async def function(value: int) -> list[Any]:
        await asyncio.sleep(0)
        return [value + 1, threading.current_thread() is threading.main_thread()]

    assert await run(function, 1) == ([], [2, True])


async def test_a_generators_last_value_is_the_answer():
    def function(value: int) -> Iterator[int]:
        yield from range(value)

    assert await run(function, 3) == ([0, 1], 2)
    assert await run(function, 1) == ([], 0)
    assert await run(function, 0) == ([], None)


async def test_a_generators_return_value_is_the_answer():
    def function(value: int) -> Any:
        yield from range(value)
        return "end"

    assert await run(function, 2) == ([0, 1], "end")
    assert await run(function, 0) == ([], "end")


async def test_an_async_generators_last_value_is_the_answer():
    async def function(value: int) -> AsyncIterator[int]:
        for number in range(value):
            yield number

    assert await run(function, 3) == ([0, 1], 2)
    assert await run(function, 0) == ([], None)


async def test_progress_goes_out_from_threads_and_from_the_loop():
    def in_thread(value: int, ctx: SyncContext) -> str:
        ctx.progress(value)
        return "done"

    async def on_loop(value: int, ctx: Context) -> str:
        ctx.progress(value)
        await asyncio.to_thread(ctx.progress, value + 1)
        return "done"

    assert await run(in_thread, 1) == ([1], "done")
    assert await run(on_loop, 1) == ([1, 2], "done")


class Counter:
    def __call__(self, value: int) -> int:
        return value + 1

    async def method(self, value: int, ctx: Context) -> str:
        return ctx.job


class AsyncCounter:
    async def __call__(self, value: int) -> int:
        return value + 1


async def test_objects_methods_partials_and_builtins():
    def add(more: int, value: int) -> int:
        return more + value

    assert await run(Counter(), 1) == ([], 2)
    assert await run(AsyncCounter(), 1) == ([], 2)
    assert await run(Counter().method, 1) == ([], "job-1")
    assert await run(functools.partial(add, 5), 1) == ([], 6)
    assert await run(len, [1, 2]) == ([], 2)
    assert await run(lambda value: AsyncCounter()(value), 1) == ([], 2)


async def test_a_second_parameter_with_a_default_is_the_functions_own_affair():
    def function(value: int, factor: int = 10) -> int:
        return value * factor

    def named(value: int, ctx: SyncContext | None = None) -> bool:
        return isinstance(ctx, BaseContext)

    assert await run(function, 2) == ([], 20)
    assert await run(named, 2) == ([], True)


@pytest.mark.parametrize("function", [lambda: 1, lambda a, b, c: 1, lambda a, *, must: 1])
def test_other_signatures_are_refused_early(function: Callable[..., Any]):
    with pytest.raises(TypeError, match=r"must take \(body\) or \(body, ctx\)"):
        ServiceFunction("test", function, codecs.JSON)


@pytest.mark.parametrize(
    ("error", "seen"),
    [(KeyError("x"), KeyError), (StopIteration(3), RuntimeError), (SystemExit(2), RuntimeError)],
)
async def test_whatever_a_thread_raises_arrives(error: BaseException, seen: type[BaseException]):
    def function(value: int) -> int:
        raise error

    with pytest.raises(seen):
        await run(function, 1)


async def test_context_variables_go_along():
    color.set("red")
    assert await run(lambda value: color.get(), 1) == ([], "red")


async def test_a_body_that_cannot_be_read_never_reaches_the_function():
    service = ServiceFunction("test", lambda value: pytest.fail("called"), codecs.JSON)
    context = service.context("test", "job-1", codecs.JSON, None, print)  # type: ignore[arg-type]
    with ThreadPoolExecutor(1) as executor, pytest.raises(BodyError):
        await service.run(join([b"not json"]), context, executor)


async def test_raw_services_see_frames():
    assert await run(lambda frames: frames[::-1], [b"one", b"two"], "raw") == ([], [b"two", b"one"])
    assert await run(lambda frame: frame.upper(), b"one", "raw") == ([], b"ONE")
