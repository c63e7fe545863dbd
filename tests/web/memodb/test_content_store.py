"""What is kept, on a shelf in memory: bounds, long names, lists in pages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from polydomo.store import open_store
from polydomo.web.api.problems import Problem
from polydomo.web.memodb import content_store as module
from polydomo.web.memodb.cid import DAG_CBOR, RAW, Cid
from polydomo.web.memodb.content_store import COST, Call, ContentStore
from polydomo.web.memodb.values import Value

TWO = Cid.of(DAG_CBOR, b"\x02")


def run(test: Callable[[ContentStore], Awaitable[None]], size: int = 1 << 20) -> None:
    """With a library of its own."""

    async def go() -> None:
        store = open_store("memory:", asyncio.get_running_loop().call_soon_threadsafe)
        settings = SimpleNamespace(memodb=SimpleNamespace(bytes=size))
        server: Any = SimpleNamespace(settings=settings, value_store=store)
        await test(ContentStore(server))

    asyncio.run(go())


def raw(size: int, letter: bytes = b"x") -> Value:
    return Value.of(RAW, letter * size)


def test_values_are_kept_once_and_counted_once() -> None:
    async def test(library: ContentStore) -> None:
        value = raw(1000)
        await asyncio.gather(*[library.keep(value) for _ in range(50)])
        found = await library.value(value.cid)
        assert found is not None
        assert found.block == value.block
        await library.keep(raw(1000, b"y"))
        with pytest.raises(Problem) as caught:
            await library.keep(raw(1000, b"z"))
        assert caught.value.status == 507
        assert await library.value(raw(1000, b"z").cid) is None
        await library.keep(value)
        await library.keep(raw(34))  # inside its CID: takes nothing
        assert await library.drop(value.cid)
        assert not await library.drop(value.cid)
        assert not await library.drop(raw(34).cid)
        await library.keep(raw(1000, b"z"))

    run(test, 2 * (COST + 1000) + 900)


def test_a_full_store_can_still_be_emptied() -> None:
    async def test(library: ContentStore) -> None:
        call = Call("f", (TWO,))
        await library.record(call, TWO)
        await library.keep(raw(1000))
        with pytest.raises(Problem):
            await library.set_head("h", TWO)
        await library.record(call, Cid.of(DAG_CBOR, b"\x03"))  # in the place of what is there
        assert await library.forget(call)
        assert not await library.forget(call)
        await library.forget_all("f")
        with pytest.raises(Problem):
            await library.keep(raw(1000, b"y"))

    run(test, 2 * COST + 1010)


def test_a_function_starts_anew_when_its_results_are_forgotten() -> None:
    async def test(library: ContentStore) -> None:
        assert await library.epoch("f") == b""
        await library.forget_all("f")
        first = await library.epoch("f")
        assert first
        await library.record(Call("f", (TWO,)), TWO)
        await library.forget(Call("f", (TWO,)))
        assert await library.epoch("f") not in (b"", first)
        assert await library.epoch("g") == b""
        assert await library.funcs() == ([], False)

    run(test)


def test_calls_of_all_lengths_are_listed_by_function() -> None:
    async def test(library: ContentStore) -> None:
        long = tuple(raw(100, bytes((65 + n,))).cid for n in range(40))
        calls = [Call("f", (TWO,)), Call("f", (TWO, TWO)), Call("f", long), Call("f", (*long, TWO))]
        for call in [*calls, Call("f\x01", (TWO,)), Call("fa", (TWO,)), Call("a", (TWO,)), Call("é", long)]:
            await library.record(call, TWO)
            assert await library.result(call) == TWO
        assert await library.funcs() == (["a", "f", "f\x01", "fa", "é"], False)
        assert await library.funcs("f") == (["f\x01", "fa", "é"], False)
        found, more = await library.calls("f")
        assert (sorted(found), more) == (sorted(calls), False)
        assert await library.calls("é") == ([Call("é", long)], False)
        await library.forget_all("f")
        assert await library.calls("f") == ([], False)
        assert await library.funcs() == (["a", "f\x01", "fa", "é"], False)
        assert await library.result(calls[2]) is None

    run(test)


def test_long_lists_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE", 2)
    monkeypatch.setattr(module, "MOST", 4)

    async def test(library: ContentStore) -> None:
        for number in range(7):
            await library.set_head(f"h{number}", TWO)
            await library.record(Call("f", (Cid.of(DAG_CBOR, bytes((number,))),)), TWO)
            await library.record(Call(f"g{number}", (TWO,)), TWO)
        assert await library.heads() == (["h0", "h1", "h2", "h3"], True)
        assert await library.heads("h3") == (["h4", "h5", "h6"], False)
        assert await library.funcs() == (["f", "g0", "g1", "g2"], True)
        assert await library.funcs("g2") == (["g3", "g4", "g5", "g6"], True)
        first, more = await library.calls("f")
        assert (len(first), more) == (4, True)
        rest, more = await library.calls("f", first[-1])
        assert (len(rest), more) == (3, False)
        assert len({*first, *rest}) == 7
        await library.forget_all("f")
        assert await library.calls("f") == ([], False)

    run(test)


def test_heads_come_and_go() -> None:
    async def test(library: ContentStore) -> None:
        assert await library.head("a") is None
        assert not await library.drop_head("a")
        await library.set_head("a", TWO)
        assert await library.head("a") == TWO
        assert await library.drop_head("a")
        assert await library.heads() == ([], False)

    run(test)
