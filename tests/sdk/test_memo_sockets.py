"""The SDK's MemoDB peers with a foreign broker: NNG's own REP socket, through pynng."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cbor2
import pynng
import pytest

from polydomo.dialects.memo import worker as worker_side
from polydomo.errors import Timeout
from polydomo.sdk import Client, SyncClient, Worker
from polydomo.wire.frames import join
from tests.sdk.support import until

READY, JOB, RESULT, HEARTBEAT, DISCONNECT = range(1, 6)


class Question:
    """A request at the REP socket."""

    def __init__(self, context: Any, data: bytes) -> None:
        self._context = context
        self.data = data
        self.header = cbor2.loads(data)
        self.payload = data[len(cbor2.dumps(self.header)) :]  # ours are in the shortest encoding

    @property
    def kind(self) -> int:
        return self.header[1]

    async def answer(self, *header: Any, payload: bytes = b"") -> None:
        await self._context.asend(cbor2.dumps(["memo01", *header]) + payload)

    async def result(self, payload: bytes) -> None:
        await self.answer(RESULT, b"", payload=payload)

    async def job(self, payload: bytes = b"", id: bytes = b"\1\2\3\4", service: str = "echo") -> None:
        await self.answer(JOB, id, service, 10_000, payload=payload)


class Rep:
    """A REP socket that is asked by hand."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.contexts: list[pynng.Context] = []
        self.listen(url)

    def listen(self, url: str) -> None:
        self.socket = pynng.Rep0(listen=url)

    def close(self) -> None:
        for context in self.contexts:  # pynng wants them closed before their socket
            context.close()
        self.contexts.clear()
        self.socket.close()

    async def next(self) -> Question:
        context = self.context()
        return Question(context, await asyncio.wait_for(context.arecv(), 10))

    async def quiet(self, seconds: float = 0.1) -> None:
        """Nothing comes."""
        context = self.context()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(context.arecv(), seconds)
        self.contexts.remove(context)
        context.close()

    def context(self) -> pynng.Context:
        self.contexts.append(self.socket.new_context())
        return self.contexts[-1]


def address(rep: pynng.Rep0) -> str:
    found = rep.listeners[0].local_address
    return f"127.0.0.1:{int.from_bytes(int(found.port).to_bytes(2, 'little'), 'big')}"


@pytest.fixture(params=["tcp", "ipc"])
def rep(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rep]:
    if request.param == "ipc":
        rep = Rep(f"ipc://{tmp_path}/rep")
        rep.url = f"memo+ipc://{tmp_path}/rep"
    else:
        rep = Rep("tcp://127.0.0.1:0")
        rep.url = f"memo://{address(rep.socket)}"
    yield rep
    rep.close()


def offer(rep: Rep, function: Callable[..., Any], **options: Any) -> Worker:
    worker = Worker(rep.url, **options)
    worker.add("echo", function)
    return worker


@pytest.mark.clause("MEMO-C-04")
@pytest.mark.clause("MEMO-F-02")
@pytest.mark.clause("MEMO-F-05")
async def test_a_client_asks_and_is_answered(rep: Rep):
    async with Client(rep.url) as client:
        call = client.submit("echo", {"x": 1}, timeout=2.5)
        asked = await rep.next()
        assert asked.header == ["memo01", JOB, b"", "echo", 2500]
        assert asked.payload == b'{"x":1}'
        await asked.result(b'{"y":2}')
        assert await call.result() == {"y": 2}


async def test_how_long_a_worker_may_take_can_be_said(rep: Rep):
    async with Client(rep.url) as client:
        call = client.submit("echo", run_timeout=3600)
        asked = await rep.next()
        assert asked.header[4] == 3_600_000
        await asked.result(b"1")
        assert await call.result() == 1
        with pytest.raises(ValueError, match=r"key=, priority=: not supported by memo"):
            await client.call("echo", key="k", priority=3)


async def test_many_requests_on_one_connection_get_their_own_answers(rep: Rep):
    async with Client(rep.url, window=10) as client:
        calls = [client.submit("echo", number) for number in range(30)]
        first = [await rep.next() for _ in range(10)]
        await rep.quiet()
        assert len(rep.socket.pipes) == 1
        for asked in reversed(first):
            await asked.result(asked.payload)
        for _ in range(20):
            asked = await rep.next()
            await asked.result(asked.payload)
        assert [await call.result() for call in calls] == list(range(30))


async def test_bodies_of_several_frames_cross_a_protocol_that_has_one(rep: Rep):
    async with Client(rep.url) as client:
        call = asyncio.create_task(client.request("echo", [b"one", b"", b"two"]))
        asked = await rep.next()
        assert asked.payload == b"\0polydomo:frames\0" + join([b"one", b"", b"two"])
        await asked.result(asked.payload)
        assert await call == [b"one", b"", b"two"]


@pytest.mark.clause("MEMO-C-03")
async def test_a_request_without_an_answer_is_sent_again_as_it_was(rep: Rep):
    async with Client(rep.url, resend=0.1) as client:
        call = client.submit("echo", b"again")
        first, second = await rep.next(), await rep.next()
        assert first.data == second.data
        await first.result(b"one")
        assert await call.result() == b"one"
        await second.result(b"two")  # nobody waits for it any more
        last = client.submit("echo", b"last")
        await (await rep.next()).result(b"three")
        assert await last.result() == b"three"


async def test_without_retries_it_is_not(rep: Rep):
    async with Client(rep.url, resend=0.05, retries=0, timeout=0.4) as client:
        call = client.submit("echo", b"once")
        await rep.next()
        await rep.quiet(0.3)
        with pytest.raises(Timeout):
            await call.result()


async def test_nonsense_for_an_answer_is_dropped(rep: Rep):
    async with Client(rep.url, resend=0.2) as client:
        call = client.submit("echo", b"x")
        await (await rep.next()).answer(HEARTBEAT, b"")
        await (await rep.next()).result(b"y")
        assert await call.result() == b"y"


@pytest.mark.clause("MEMO-W-02")
@pytest.mark.clause("MEMO-F-02")
async def test_a_worker_takes_jobs_one_after_the_other(rep: Rep):
    async with offer(rep, lambda body: {"got": body}) as worker:
        assert worker.services == ["echo"]
        asked = await rep.next()
        assert asked.header == ["memo01", READY, b"", ["echo"]]
        for number in range(3):
            await asked.job(b"%d" % number)
            asked = await rep.next()
            assert asked.header == ["memo01", RESULT, b"\1\2\3\4"]
            assert json.loads(asked.payload) == {"got": number}


@pytest.mark.clause("MEMO-W-03")
@pytest.mark.clause("MEMO-W-07")
async def test_services_are_said_in_order_and_heartbeats_answered(rep: Rep):
    worker = Worker(rep.url)
    for name in ("ccc", "b", "aa"):
        worker.add(name, lambda body: body)
    async with worker:
        asked = await rep.next()
        assert asked.header[3] == ["b", "aa", "ccc"]
        for _ in range(3):
            await asked.answer(HEARTBEAT, b"id of any length")
            asked = await rep.next()
            assert asked.header == ["memo01", HEARTBEAT, b"id of any length"]


@pytest.mark.clause("MEMO-B-02")
async def test_as_many_workers_as_jobs_at_once_on_one_connection(rep: Rep):
    gate = asyncio.Event()

    async def echo(body: Any) -> Any:
        await gate.wait()
        return body

    async with offer(rep, echo, concurrency=20):
        asked = [await rep.next() for _ in range(20)]
        assert len(rep.socket.pipes) == 1
        for number, question in enumerate(asked):
            await question.job(b"%d" % number, id=bytes([number]))
        gate.set()
        results = [await rep.next() for _ in range(20)]
        assert {result.header[2]: result.payload for result in results} == {
            bytes([number]): b"%d" % number for number in range(20)
        }


@pytest.mark.clause("MEMO-W-05")
async def test_a_worker_that_is_not_known_begins_anew(rep: Rep, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker_side, "CHECK_INTERVAL", 0.05)
    async with offer(rep, lambda body: body):
        asked = await rep.next()
        await asked.job(b"1")
        await (await rep.next()).answer(DISCONNECT, b"\1\2\3\4")
        asked = await rep.next()
        assert asked.kind == READY
        await asked.answer(DISCONNECT, b"")  # a READY that is refused is repeated after a while
        asked = await rep.next()
        assert asked.kind == READY
        assert len(rep.socket.pipes) == 1


@pytest.mark.clause("MEMO-F-06")
async def test_the_last_result_of_a_worker_says_so(rep: Rep):
    gate = asyncio.Event()

    async def echo(body: Any) -> Any:
        await gate.wait()
        return body

    async with offer(rep, echo) as worker:
        await (await rep.next()).job(b"1")
        await until(lambda: worker._sessions[0]._jobs)
        worker.stop()
        gate.set()
        last = await rep.next()
        assert last.header == ["memo01", RESULT, b"\1\2\3\4", True]
        assert last.payload == b"1"
    await rep.quiet()
    await until(lambda: not rep.socket.pipes)


async def test_a_failure_is_told_in_words_that_anybody_understands(rep: Rep):
    def fails(body: Any) -> None:
        raise ValueError("no such thing")

    async with offer(rep, fails):
        await (await rep.next()).job(b"1")
        result = await rep.next()
        assert result.header == ["memo01", RESULT, b"\1\2\3\4"]
        assert json.loads(result.payload) == {"error": "no such thing"}


async def test_a_broker_that_is_started_again_hears_everything_again(rep: Rep):
    """The connection is cut while a client waits, a worker is parked and another has a job."""
    gate = asyncio.Event()

    async def echo(body: Any) -> Any:
        await gate.wait()
        return body

    async with offer(rep, echo, concurrency=2), Client(rep.url, timeout=20) as client:
        ready = [await rep.next(), await rep.next()]
        await ready[0].job(b"1", id=b"busy")
        call = client.submit("echo", b"call")
        asked = await rep.next()
        where = rep.socket.listeners[0].url if rep.url.startswith("memo+ipc") else f"tcp://{rep.url[7:]}"
        rep.close()
        rep.listen(where)
        again = {question.kind: question for question in [await rep.next(), await rep.next()]}
        assert again[READY].data == ready[1].data
        assert again[JOB].data == asked.data
        gate.set()
        result = await rep.next()
        assert (result.header, result.payload) == (["memo01", RESULT, b"busy"], b"1")
        await again[JOB].result(b"answer")
        assert await call.result() == b"answer"


def test_the_sync_twin(rep: Rep):
    with SyncClient(rep.url) as client:
        handle = client.submit("echo", [1])
        context = rep.context()
        asked = context.recv()
        context.send(cbor2.dumps(["memo01", RESULT, b""]) + asked[-3:])
        assert handle.result() == [1]
