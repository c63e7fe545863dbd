"""Deferred values: awaited or passed to callbacks, settled once, also by coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from polydomo.deferred import Deferred, all_of, confirmed, deferring


def test_callbacks_are_called_when_the_value_is_settled() -> None:
    value: Deferred[int] = Deferred()
    found: list[object] = []
    value.then(found.append, found.append)
    assert found == []
    value.settle(7)
    assert found == [7]


def test_callbacks_are_called_at_once_if_the_value_is_settled() -> None:
    value: Deferred[int] = Deferred()
    error = ValueError("no value")
    value.fail(error)
    found: list[object] = []
    value.then(lambda _: pytest.fail("there is no value"), found.append)
    assert found == [error]


async def test_a_value_is_awaited_before_and_after_it_is_settled() -> None:
    value: Deferred[int] = Deferred()
    asyncio.get_running_loop().call_soon(value.settle, 7)
    assert await value == 7
    assert await value == 7


async def test_a_cancelled_task_does_not_disturb_the_value() -> None:
    value: Deferred[int] = Deferred()

    async def wait() -> int:
        return await value

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    value.settle(7)
    assert await value == 7


async def test_all_values_are_returned_in_order() -> None:
    values: list[Deferred[int]] = [Deferred() for _ in range(3)]
    for number in (2, 0, 1):
        asyncio.get_running_loop().call_soon(values[number].settle, number)
    assert await all_of(values) == [0, 1, 2]
    assert await all_of([]) == []


async def test_the_first_error_of_all_is_raised() -> None:
    values: list[Deferred[int]] = [Deferred() for _ in range(3)]
    values[0].settle(0)
    values[1].fail(ValueError("first"))
    values[2].fail(ValueError("second"))
    with pytest.raises(ValueError, match="first"):
        await all_of(values)


@pytest.mark.parametrize("error", [None, ValueError("not written")])
async def test_an_operation_is_confirmed_by_its_callback(error: Exception | None) -> None:
    def start(done: Callable[[Exception | None], None]) -> None:
        asyncio.get_running_loop().call_soon(done, error)

    if error is None:
        await confirmed(start)
    else:
        with pytest.raises(ValueError, match="not written"):
            await confirmed(start)


@deferring
async def half(number: int) -> float:
    """Return half of a number."""
    await asyncio.sleep(0)
    if number == 0:
        raise ValueError("nothing to halve")
    return number / 2


async def test_a_coroutine_function_returns_a_deferred_result() -> None:
    assert half.__doc__ == "Return half of a number."
    assert await half(7) == 3.5
    with pytest.raises(ValueError, match="nothing to halve"):
        await half(0)


async def test_wrong_arguments_fail_at_the_call() -> None:
    with pytest.raises(TypeError):
        half(1, 2)  # type: ignore[call-arg]
