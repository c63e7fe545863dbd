"""What is kept, on a shelf in memory: bounds, long names, lists in pages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from polydomo.store import open_store
from polydomo.web.api.problems import HttpProblem
from polydomo.web.memodb import content_store as module
from polydomo.web.memodb.cid import DAG_CBOR, RAW, Cid
from polydomo.web.memodb.content_store import COST, ContentStore, FunctionCall
from polydomo.web.memodb.values import Value

TWO = Cid.of(DAG_CBOR, b"\x02")


def run(test: Callable[[ContentStore], Awaitable[None]], size: int = 1 << 20) -> None:
    """With a content of its own."""

    async def go() -> None:
        store = open_store("memory:", asyncio.get_running_loop().call_soon_threadsafe)
        settings = SimpleNamespace(memodb=SimpleNamespace(bytes=size))
        server: Any = SimpleNamespace(settings=settings, value_store=store)
        await test(ContentStore(server))

    asyncio.run(go())


def raw(size: int, letter: bytes = b"x") -> Value:
    return Value.of(RAW, letter * size)


def test_values_are_kept_once_and_counted_once() -> None:
    async def test(content: ContentStore) -> None:
        value = raw(1000)
        await asyncio.gather(*[content.keep(value) for _ in range(50)])
        found = await content.value(value.cid)
        assert found is not None
        assert found.block == value.block
        await content.keep(raw(1000, b"y"))
        with pytest.raises(HttpProblem) as caught:
            await content.keep(raw(1000, b"z"))
        assert caught.value.status == 507
        assert await content.value(raw(1000, b"z").cid) is None
        await content.keep(value)
        await content.keep(raw(34))  # inside its CID: takes nothing
        assert await content.drop(value.cid)
        assert not await content.drop(value.cid)
        assert not await content.drop(raw(34).cid)
        await content.keep(raw(1000, b"z"))

    run(test, 2 * (COST + 1000) + 900)


def test_a_full_store_can_still_be_emptied() -> None:
    async def test(content: ContentStore) -> None:
        call = FunctionCall("f", (TWO,))
        await content.record(call, TWO)
        await content.keep(raw(1000))
        with pytest.raises(HttpProblem):
            await content.set_head("h", TWO)
        await content.record(call, Cid.of(DAG_CBOR, b"\x03"))  # in the place of what is there
        assert await content.forget(call)
        assert not await content.forget(call)
        await content.forget_all("f")
        with pytest.raises(HttpProblem):
            await content.keep(raw(1000, b"y"))

    run(test, 2 * COST + 1010)


def test_a_function_starts_anew_when_its_results_are_forgotten() -> None:
    async def test(content: ContentStore) -> None:
        assert await content.epoch("f") == b""
        await content.forget_all("f")
        first = await content.epoch("f")
        assert first
        await content.record(FunctionCall("f", (TWO,)), TWO)
        await content.forget(FunctionCall("f", (TWO,)))
        assert await content.epoch("f") not in (b"", first)
        assert await content.epoch("g") == b""
        assert await content.funcs() == ([], False)

    run(test)


def test_calls_of_all_lengths_are_listed_by_function() -> None:
    async def test(content: ContentStore) -> None:
        long = tuple(raw(100, bytes((65 + n,))).cid for n in range(40))
        calls = [
            FunctionCall("f", (TWO,)),
            FunctionCall("f", (TWO, TWO)),
            FunctionCall("f", long),
            FunctionCall("f", (*long, TWO)),
        ]
        for call in [
            *calls,
            FunctionCall("f\x01", (TWO,)),
            FunctionCall("fa", (TWO,)),
            FunctionCall("a", (TWO,)),
            FunctionCall("é", long),
        ]:
            await content.record(call, TWO)
            assert await content.result(call) == TWO
        assert await content.funcs() == (["a", "f", "f\x01", "fa", "é"], False)
        assert await content.funcs("f") == (["f\x01", "fa", "é"], False)
        found, more = await content.calls("f")
        assert (sorted(found, key=str), more) == (sorted(calls, key=str), False)
        assert await content.calls("é") == ([FunctionCall("é", long)], False)
        await content.forget_all("f")
        assert await content.calls("f") == ([], False)
        assert await content.funcs() == (["a", "f\x01", "fa", "é"], False)
        assert await content.result(calls[2]) is None

    run(test)


def test_long_lists_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 2)
    monkeypatch.setattr(module, "LIST_MAX", 4)

    async def test(content: ContentStore) -> None:
        for number in range(7):
            await content.set_head(f"h{number}", TWO)
            await content.record(FunctionCall("f", (Cid.of(DAG_CBOR, bytes((number,))),)), TWO)
            await content.record(FunctionCall(f"g{number}", (TWO,)), TWO)
        assert await content.heads() == (["h0", "h1", "h2", "h3"], True)
        assert await content.heads("h3") == (["h4", "h5", "h6"], False)
        assert await content.funcs() == (["f", "g0", "g1", "g2"], True)
        assert await content.funcs("g2") == (["g3", "g4", "g5", "g6"], True)
        first, more = await content.calls("f")
        assert (len(first), more) == (4, True)
        rest, more = await content.calls("f", first[-1])
        assert (len(rest), more) == (3, False)
        assert len({*first, *rest}) == 7
        await content.forget_all("f")
        assert await content.calls("f") == ([], False)

    run(test)


def test_heads_come_and_go() -> None:
    async def test(content: ContentStore) -> None:
        assert await content.head("a") is None
        assert not await content.drop_head("a")
        await content.set_head("a", TWO)
        assert await content.head("a") == TWO
        assert await content.drop_head("a")
        assert await content.heads() == ([], False)

    run(test)
