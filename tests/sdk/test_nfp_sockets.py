"""The SDK's NFP peers with a foreign broker, a bare pyzmq ROUTER: every message they send and obey."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from polydomo.core.pieces import Piece, pack
from polydomo.errors import JobFailed, WorkerError
from polydomo.sdk import Client, Context, SyncContext, Worker
from polydomo.wire.frames import frame, split
from tests.sdk.support import until

OPEN, READY, KEEPALIVE, DISCONNECT, POST, RESPONSE, GET, DELETE, EVENT, STREAM = (
    bytes((code,)) for code in range(10)
)
PUT, MMI = b"\x10", b"\x11"
TOKEN = b"0123abcd"


class Router:
    """A bare ROUTER that plays an NFP broker, one message at a time."""

    def __init__(self) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.url = f"nfp://127.0.0.1:{self.port}"
        self.peers: list[bytes] = []  # in the order of their coming
        self.last = b""

    def close(self) -> None:
        """The broker is gone."""
        self.socket.close()

    async def reopen(self) -> None:
        """And back at the same place, as soon as the system lets it."""
        for _ in range(1000):
            self.socket = self.context.socket(zmq.ROUTER)
            self.socket.linger = 0
            try:
                self.socket.bind(f"tcp://127.0.0.1:{self.port}")
                return
            except zmq.ZMQError:
                self.socket.close()
                await asyncio.sleep(0.005)
        raise AssertionError("the port is not free")

    async def next(self, skip: bytes = KEEPALIVE) -> list[bytes]:
        """The next message's frames behind the empty one; keepalives are passed over."""
        for _ in range(2000):
            while self.socket.poll(0):
                frames = self.socket.recv_multipart(copy=False)
                assert frames[1].get("Socket-Type") == "DEALER"
                self.last = frames[0].bytes
                if self.last not in self.peers:
                    self.peers.append(self.last)
                found = [part.bytes for part in frames[1:]]
                assert found[0] == b""
                if found[2] != skip:
                    return found[1:]
            await asyncio.sleep(0.002)
        raise AssertionError("nothing came")

    def send(self, *frames: bytes, to: bytes = b"") -> None:
        self.socket.send_multipart([to or self.last, b"", b"NFPB01", *frames])

    async def greet(self, header: bytes, **said: Any) -> dict[str, Any]:
        """Take somebody's OPEN and answer it."""
        opened = await self.next()
        while opened[1] == DISCONNECT:  # somebody else's goodbye
            opened = await self.next()
        assert opened[:2] == [header, OPEN]
        self.send(OPEN, json.dumps(said).encode())
        return json.loads(opened[2])

    async def enrol(self) -> bytes:
        """A worker's OPEN and READY; who it is."""
        await self.greet(
            b"NFPW01", keepalive_ms=200, liveness=100
        )  # it never beats, so it may be silent for long
        assert (await self.next())[:2] == [b"NFPW01", READY]
        return self.last

    async def response(self) -> list[bytes]:
        """The next RESPONSE of a worker: address, empty, UUID, status, body."""
        found = await self.next()
        assert found[:2] == [b"NFPW01", RESPONSE], found
        return found[2:]


@pytest.fixture
def router() -> Iterator[Router]:
    router = Router()
    yield router
    router.socket.close()
    router.context.term()


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(worker.run())
    try:
        yield task
    finally:
        if not task.done():
            worker.stop()
            worker.stop()
            await task


# The client


@pytest.mark.clause("NFP-C-01")
async def test_a_clients_dialog(router: Router):
    """NFP §NFP/Client: OPEN, answered, then POST; a RESPONSE with the job's UUID ends it."""
    async with Client(router.url, name="me") as client:
        call = client.submit("svc", {"x": 1}, target=["w1", "w2"], id="u-1")
        said = await router.greet(b"NFPC01", broker="b")
        assert (said["name"], said["push"]) == ("me", True)
        assert await router.next() == [b"NFPC01", POST, b"svc", b"w1,w2", b"u-1", b'{"x":1}']
        assert call.id == "u-1"
        router.send(RESPONSE, b"svc", b"u-1", b"202", b'{"workers":["w1","w2"]}')
        await call.accepted()
        assert not call.done()
        router.send(
            RESPONSE,
            b"svc",
            b"u-1",
            b"200",
            *split(
                pack(
                    [
                        Piece(b"w1", frame(b"1"), "", "", b""),
                        Piece(b"w2", None, "worker-error", "no", b'{"message":"no","kind":"ValueError"}'),
                    ]
                )
            ),
        )
        answers = await call
        assert answers["w1"] == 1
        assert isinstance(answers["w2"], WorkerError)
        assert answers["w2"].kind == "ValueError"


@pytest.mark.parametrize(
    ("options", "target"),
    [
        ({}, b"any"),
        ({"target": "any"}, b"any"),
        ({"target": "all"}, b"all"),
        ({"target": "w1"}, b"w1"),
        ({"target": ["any"]}, b'["any"]'),
        ({"target": ["w1", "a,b"]}, b'["w1","a,b"]'),
        ({"resource": "core"}, b"resource:core"),
        ({"resource": ["core", "edge"]}, b"resource:core,resource:edge"),
    ],
)
async def test_targets_on_the_wire(router: Router, options: Any, target: bytes):
    async with Client(router.url) as client:
        call = client.submit("svc", b"x", **options)
        await router.greet(b"NFPC01")
        assert (await router.next())[3] == target
        call.cancel()


@pytest.mark.clause("NFP-C-07")
async def test_options_travel_in_the_body(router: Router):
    async with Client(router.url) as client:
        options: Any = {"priority": 3, "key": "k", "delay": 1, "deadline": 60, "durable": True}
        call = client.submit("svc", {"x": 1}, queue_timeout=5, run_timeout=7, **options)
        await router.greet(b"NFPC01")
        body = json.loads((await router.next())[5])
        assert body == {"x": 1, "options": {**options, "wait": 5, "timeout": 7}}
        call.cancel()


@pytest.mark.parametrize("body", [None, [1], "text", b"bytes"])
async def test_a_body_without_room_for_options_is_told_at_once(router: Router, body: Any):
    async with Client(router.url) as client:
        with pytest.raises(ValueError, match="JSON object"):
            client.submit("svc", body, priority=1)


@pytest.mark.clause("NFP-F-10")
async def test_events_and_pieces_come_by_themselves(router: Router):
    async with Client(router.url) as client:
        call = client.submit("svc", {}, id="u-1")
        await router.greet(b"NFPC01")
        await router.next()
        router.send(EVENT, b"svc", b"u-1", b"200", b"w1", b"step", b'{"n":1}')
        router.send(STREAM, b"svc", b"u-1", b"200", b"w1", b'"half"')
        router.send(EVENT, b"svc", b"another", b"200", b"w1", b"step", b"")
        router.send(RESPONSE, b"svc", b"u-1", b"200", b'"whole"')
        assert [tuple(event) async for event in call.events()] == [("svc", "w1", "step", {"n": 1})]
        assert [part async for part in call.partials()] == ["half"]
        assert await call == "whole"


@pytest.mark.clause("NFP-S-02")
@pytest.mark.parametrize(
    ("status", "body", "kind", "reason"),
    [
        (b"408", b'{"reason":"expired","error":"too late"}', JobFailed, "expired"),
        (b"408", b"", JobFailed, "expired"),
        (b"400", b"what?", JobFailed, "unknown"),
        (b"417 EXPECT FAILED", b"", JobFailed, "unexpected"),
        (b"500", b'{"error":"it broke"}', JobFailed, "failed"),
        (b"500", b'{"reason":"worker-error","message":"no","kind":"KeyError"}', WorkerError, "worker-error"),
    ],
)
async def test_every_status_that_is_no_answer(
    router: Router, status: bytes, body: bytes, kind: type[JobFailed], reason: str
):
    """NFP §Status Frames."""
    async with Client(router.url) as client:
        call = client.submit("svc", {}, id="u-1")
        await router.greet(b"NFPC01")
        await router.next()
        router.send(RESPONSE, b"svc", b"u-1", b"300 PENDING", b"")
        router.send(RESPONSE, b"svc", b"u-1", status, body)
        with pytest.raises(kind) as caught:
            await call
        assert caught.value.reason == reason


@pytest.mark.clause("NFP-F-08")
async def test_cancel_says_delete_behind_the_post(router: Router):
    async with Client(router.url) as client:
        call = client.submit("svc", {}, id="u-1")
        await router.greet(b"NFPC01")
        await router.next()
        call.cancel()
        assert await router.next() == [b"NFPC01", DELETE, b"svc", b"any", b"u-1", b""]
        router.send(RESPONSE, b"svc", b"u-1", b"200", b"{}")
        with pytest.raises(JobFailed, match="cancelled by the client"):
            await call
        again = client.submit("svc", {}, id="u-2")
        assert (await router.next())[1] == POST
        router.send(RESPONSE, b"svc", b"u-2", b"200", b"5")
        assert await again == 5


async def test_questions_have_a_line_of_their_own_without_push(router: Router):
    """NFP §NFP/Client: strictly one RESPONSE for each; 300 is asked again."""
    async with Client(router.url) as client:
        looking = asyncio.create_task(client.job("u-1", "svc"))
        assert "push" not in await router.greet(b"NFPC01")
        assert await router.next() == [b"NFPC01", GET, b"svc", b"any", b"u-1", b""]
        router.send(RESPONSE, b"svc", b"u-1", b"300", b"{}")
        job = await looking
        assert job.state == "pending"
        result = asyncio.create_task(job.result())
        for status, body in ((b"300", b""), (b"200", b"[1,2]")):
            assert (await router.next())[1] == GET
            router.send(RESPONSE, b"svc", b"u-1", status, body)
        assert await result == [1, 2]
        assert job.state == "done"


@pytest.mark.clause("NFP-C-03")
async def test_a_job_is_sent_again_under_its_uuid_on_a_new_socket(router: Router):
    """NFP §NFP/Client: close the socket, open a new one, resend."""
    async with Client(router.url, ping=0.05) as client:
        call = client.submit("svc", {"x": 1}, id="u-1")
        await router.greet(b"NFPC01")
        first = await router.next()
        router.close()
        await router.reopen()
        await router.greet(b"NFPC01")
        assert await router.next() == first
        router.send(RESPONSE, b"svc", b"u-1", b"200", b"5")
        assert await call == 5


# The worker


@pytest.mark.clause("NFP-O-01")
async def test_a_workers_dialog(router: Router):
    """NFP §NFP/Worker: OPEN, answered, READY, then POST and RESPONSE, and DISCONNECT at the end."""
    worker = Worker(router.url, name="w1", concurrency=3, resources=["a", "b"])
    worker.add("double", lambda body: 2 * body)
    async with running(worker) as task:
        said = await router.greet(b"NFPW01", keepalive_ms=100, liveness=20)
        assert (said["name"], said["credit"], said["resources"]) == ("w1", 3, ["a", "b"])
        assert await router.next() == [b"NFPW01", READY, b"double"]
        router.send(POST, TOKEN, b"", b"u-1", b"21")
        assert await router.response() == [TOKEN, b"", b"u-1", b"200", b"42"]
        assert await router.next(skip=b"") == [b"NFPW01", KEEPALIVE, b"double"]
        worker.stop()
        assert await router.next() == [b"NFPW01", DISCONNECT, b"double", b""]
        await task
    assert len(router.peers) == 1


@pytest.mark.clause("NFP-O-11")
async def test_a_worker_told_to_disconnect_comes_back_on_a_new_socket(router: Router):
    """NFP §Opening and Closing: MUST close its socket and reconnect on a new one."""
    worker = Worker(router.url, name="w1")
    worker.add("double", lambda body: 2 * body)
    async with running(worker):
        await router.enrol()
        router.send(DISCONNECT, b"double", b"")
        await router.enrol()
        router.send(POST, TOKEN, b"", b"u-1", b"4")
        assert (await router.response())[3:] == [b"200", b"8"]
    assert len(router.peers) == 2


@pytest.mark.clause("NFP-K-05", "NFP-K-06")
async def test_a_silent_broker_is_given_up(router: Router):
    """NFP §Keepaliving: it SHOULD restart a new conversation."""
    worker = Worker(router.url)
    worker.add("double", lambda body: 2 * body)
    async with running(worker):
        await router.greet(b"NFPW01", keepalive_ms=50, liveness=3)
        assert (await router.next())[1] == READY
        await router.enrol()
    assert len(router.peers) == 2


async def test_a_failure_has_its_status_and_an_account(router: Router):
    worker = Worker(router.url)

    @worker.service
    async def fails(body: Any) -> None:
        raise ValueError("not this one")

    async with running(worker):
        await router.enrol()
        router.send(POST, TOKEN, b"", b"u-1", b"1")
        address, _, uuid, status, account, plain = await router.response()
    assert (address, uuid, status) == (TOKEN, b"u-1", b"500")
    told = json.loads(account)
    assert (told["reason"], told["message"], told["kind"]) == ("worker-error", "not this one", "ValueError")
    assert "not this one" in told["traceback"]
    assert json.loads(plain) == {"error": "not this one"}


@pytest.mark.clause("NFP-F-10")
async def test_what_a_function_says_beside_its_answer(router: Router):
    worker = Worker(router.url, resources=["r1"])

    @worker.service
    async def talks(body: Any, ctx: Context) -> Any:
        assert ctx.id == "u-1"
        ctx.event("begun", {"with": ctx.resources})
        ctx.event("raw", b"\xff")
        ctx.progress("half")
        return await ctx.input(5)

    async with running(worker):
        await router.enrol()
        router.send(POST, TOKEN, b"", b"u-1", b'{"x":1,"options":{"priority":3}}')
        head = [TOKEN, b"", b"u-1", b"200"]
        assert await router.next() == [b"NFPW01", EVENT, *head, b"begun", b'{"with":["r1"]}']
        assert await router.next() == [b"NFPW01", EVENT, *head, b"raw", b"\xff"]
        assert await router.next() == [b"NFPW01", STREAM, *head, b'"half"']
        router.send(PUT, TOKEN, b"", b"u-1", b'"more"')
        assert await router.response() == [*head, b'"more"']


@pytest.mark.clause("NFP-F-08")
async def test_delete_interrupts_the_function_and_frees_its_slot(router: Router):
    worker = Worker(router.url)
    ended = asyncio.Event()

    @worker.service
    async def waits(body: Any) -> Any:
        if body == "quick":
            return body
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async with running(worker):
        await router.enrol()
        router.send(POST, TOKEN, b"", b"u-1", b"1")
        router.send(GET, b"g0000001", b"", b"u-1", b"")
        assert (await router.response())[3] == b"300"
        router.send(DELETE, TOKEN, b"", b"u-1", b"")
        found = await router.response()
        assert found[:4] == [TOKEN, b"", b"u-1", b"500"]
        assert json.loads(found[4])["reason"] == "cancelled"
        assert ended.is_set()
        router.send(POST, b"0123abce", b"", b"u-2", b'"quick"')
        assert (await router.response())[3:] == [b"200", b'"quick"']
        router.send(DELETE, b"0123abcf", b"", b"u-3", b"")
        assert (await router.response())[:4] == [b"0123abcf", b"", b"u-3", b"400"]


async def test_delete_tells_a_function_in_a_thread(router: Router):
    worker = Worker(router.url)
    loop = asyncio.get_running_loop()
    begun = asyncio.Event()

    @worker.service
    def waits(body: Any, ctx: SyncContext) -> str:
        loop.call_soon_threadsafe(begun.set)
        with pytest.raises(JobFailed, match="not wanted"):
            ctx.input(30)
        assert ctx.cancelled
        return "noticed"

    async with running(worker):
        await router.enrol()
        router.send(POST, TOKEN, b"", b"u-1", b"1")
        await begun.wait()
        router.send(DELETE, TOKEN, b"", b"u-1", b"")
        found = await router.response()
        assert (found[3], json.loads(found[4])["reason"]) == (b"500", "cancelled")


@pytest.mark.clause("NFP-F-07")
async def test_get_running_finished_unknown(router: Router):
    """NFP §GET, §Status Frames: 300, 200, 400."""
    worker = Worker(router.url)
    gate = asyncio.Event()

    @worker.service
    async def gated(body: Any) -> Any:
        await gate.wait()
        return body

    async with running(worker):
        await router.enrol()
        router.send(POST, TOKEN, b"", b"u-1", b"1")
        router.send(GET, b"g0000001", b"", b"u-1", b"")
        assert (await router.response())[:4] == [b"g0000001", b"", b"u-1", b"300"]
        gate.set()
        assert await router.response() == [TOKEN, b"", b"u-1", b"200", b"1"]
        router.send(GET, b"g0000002", b"", b"u-1", b"")
        assert await router.response() == [b"g0000002", b"", b"u-1", b"200", b"1"]
        router.send(GET, b"g0000003", b"", b"u-2", b"")
        assert (await router.response())[:4] == [b"g0000003", b"", b"u-2", b"400"]


async def test_a_job_given_again_while_it_runs_is_run_once_and_answered_twice(router: Router):
    worker = Worker(router.url, concurrency=2)
    gate = asyncio.Event()
    runs = []

    @worker.service
    async def gated(body: Any) -> Any:
        runs.append(body)
        await gate.wait()
        return body

    async with running(worker):
        await router.enrol()
        router.send(POST, TOKEN, b"", b"u-1", b"1")
        router.send(POST, b"0123abce", b"", b"u-1", b"1")
        router.send(GET, b"g0000001", b"", b"u-1", b"")
        await router.response()
        gate.set()
        assert {(await router.response())[0] for _ in range(2)} == {TOKEN, b"0123abce"}
    assert runs == [1]


async def test_answers_that_nobody_could_be_told_are_told_when_the_broker_is_back(
    router: Router, caplog: pytest.LogCaptureFixture
):
    """Under the token they were given with: the broker has kept it on disk."""
    worker = Worker(router.url, name="w1", concurrency=2)
    gate = asyncio.Event()

    @worker.service
    async def gated(body: Any) -> Any:
        await gate.wait()
        return body

    async with running(worker):
        await router.enrol()
        router.send(POST, TOKEN, b"", b"u-1", b"1")
        router.send(GET, b"g0000001", b"", b"u-1", b"")
        await router.response()
        router.close()
        await until(lambda: "closed the connection" in caplog.text)
        gate.set()
        await asyncio.sleep(0)
        await router.reopen()
        await router.enrol()
        assert await router.response() == [TOKEN, b"", b"u-1", b"200", b"1"]


async def test_a_running_job_is_claimed_by_a_broker_that_is_back(router: Router):
    """It asks with GET, gets 300, and the answer later under the token it asked with."""
    worker = Worker(router.url, name="w1")
    gate = asyncio.Event()

    @worker.service
    async def gated(body: Any) -> Any:
        await gate.wait()
        return body

    async with running(worker):
        await router.enrol()
        router.send(POST, TOKEN, b"", b"u-1", b"1")
        await asyncio.sleep(0.05)
        router.send(DISCONNECT, b"gated", b"")
        await router.enrol()  # at once, although its only slot is busy
        router.send(GET, b"0123ffff", b"", b"u-1", b"")
        assert (await router.response())[:4] == [b"0123ffff", b"", b"u-1", b"300"]
        gate.set()
        answers = {(await router.response())[0] for _ in range(2)}
        assert answers == {TOKEN, b"0123ffff"}


@pytest.mark.clause("NFP-J-01")
@pytest.mark.parametrize("keep", [60.0, 0.0])
async def test_a_worker_answers_from_its_store_after_its_own_restart(
    router: Router, tmp_path: Path, keep: float
):
    """NFP §Job Persistence: requests and results SHOULD be stored for a configurable time."""
    runs = []

    def make() -> Worker:
        worker = Worker(router.url, name="w1", store=tmp_path / "worker.db", keep=keep)

        @worker.service
        async def count(body: Any) -> Any:
            runs.append(body)
            if body == "hang" and runs.count("hang") == 1:
                await asyncio.sleep(60)
            if body == "fail" and runs.count("fail") == 1:
                raise ValueError("the first time")
            return len(runs)

        return worker

    async with running(make()):
        await router.enrol()
        router.send(POST, TOKEN, b"", b"u-1", b'"once"')
        assert (await router.response())[3:] == [b"200", b"1"]
        router.send(POST, TOKEN, b"", b"u-2", b'"fail"')
        assert (await router.response())[3] == b"500"
        router.send(POST, TOKEN, b"", b"u-3", b'"hang"')
        router.send(GET, b"g0000001", b"", b"u-3", b"")
        assert (await router.response())[3] == b"300"
        await until(lambda: "hang" in runs)  # it may not have begun yet
    runs_before = len(runs)
    async with running(make()):
        await router.enrol()
        router.send(GET, b"g0000001", b"", b"u-1", b"")
        assert (await router.response())[3:] == ([b"200", b"1"] if keep else _unknown())
        router.send(GET, b"g0000002", b"", b"u-3", b"")
        assert (await router.response())[3:] == _unknown(), "what was begun and not finished is not known"
        router.send(POST, b"0123abce", b"", b"u-1", b'"once"')
        answer = await router.response()
        assert answer[0] == b"0123abce"
        assert len(runs) == runs_before + (not keep), "what was done is not run again, while it is kept"
        router.send(POST, b"0123abcf", b"", b"u-2", b'"fail"')
        assert (await router.response())[3] == b"200", "what failed is"
        router.send(POST, b"0123abd0", b"", b"u-3", b'"hang"')
        assert (await router.response())[3] == b"200", "and so is what was not finished"
        router.send(POST, b"0123abd1", b"", b"u-1", b'"another"')
        await router.response()
        assert runs[-1] == "another", "a UUID that is used for something else is another job"


def _unknown() -> list[bytes]:
    return [b"400", b'{"reason":"unknown","message":"this worker has no such job"}']


# The worker's management


async def ask(router: Router, task: Any) -> tuple[bytes, Any]:
    router.send(MMI, b"g0000009", b"", b"u-9", json.dumps(task).encode())
    found = await router.response()
    assert found[:3] == [b"g0000009", b"", b"u-9"]
    return found[3], json.loads(found[4])


@pytest.mark.clause("NFP-W-01", "NFP-W-02")
async def test_management_shows(router: Router):
    """NFP §WMMI. A broker that answers no questions itself does not keep the worker from answering."""
    worker = Worker(router.url, name="w1", concurrency=2, resources=["r1"])
    worker.add("double", lambda body: 2 * body)
    async with running(worker):
        me = await router.enrol()
        status, shown = await ask(router, {"task": "show_workers", "kwargs": {}, "args": []})
        assert status == b"200"
        assert [(row["name"], row["service"], row["credit"], row["running"]) for row in shown] == [
            ("w1", "double", 2, [])
        ]
        assert shown[0]["resources"] == ["r1"]
        for task in ("show_broker", "show_clients"):
            router.send(MMI, b"g0000009", b"", b"u-9", json.dumps({"task": task}).encode(), to=me)
            if task == "show_broker":
                await router.greet(b"NFPC01")
                client = router.last
            request = await router.next()
            assert request[2] == b"mmi.service.broker"
            assert json.loads(request[5])["task"] == task
            router.send(RESPONSE, request[2], request[4], b"200", b'{"name":"ours"}', to=client)
            shown = json.loads((await router.response())[4])
            assert (shown["status"] if task == "show_broker" else shown) == {"name": "ours"}
        router.send(MMI, b"g0000009", b"", b"u-9", b"show_workers", to=me)
        assert (await router.response())[3] == b"200"
        router.send(MMI, b"g0000009", b"", b"u-9", b'{"task":"nonsense"}', to=me)
        assert (await router.response())[3] == b"400"


@pytest.mark.clause("NFP-W-02")
async def test_management_disconnect(router: Router):
    worker = Worker(router.url, name="w1")
    worker.add("double", lambda body: 2 * body)
    async with running(worker):
        await router.enrol()
        assert (await ask(router, {"task": "disconnect"}))[0] == b"200"
        assert (await router.next())[:2] == [b"NFPW01", DISCONNECT]
        await router.enrol()
    assert len(router.peers) == 2


@pytest.mark.clause("NFP-W-02")
async def test_management_shutdown(router: Router):
    worker = Worker(router.url, name="w1")
    worker.add("double", lambda body: 2 * body)
    async with running(worker) as task:
        await router.enrol()
        assert (await ask(router, {"task": "shutdown"}))[0] == b"200"
        assert (await router.next())[:2] == [b"NFPW01", DISCONNECT]
        await asyncio.wait_for(task, 5)


@pytest.mark.clause("NFP-W-02")
async def test_management_restart_finishes_what_is_in_hand_and_forgets(router: Router):
    worker = Worker(router.url, name="w1")
    gate = asyncio.Event()

    @worker.service
    async def gated(body: Any) -> Any:
        await gate.wait()
        return body

    async with running(worker):
        await router.enrol()
        router.send(POST, TOKEN, b"", b"u-1", b"1")
        assert (await ask(router, {"task": "restart"}))[0] == b"200"
        gate.set()
        assert (await router.response())[2:] == [b"u-1", b"200", b"1"]
        assert (await router.next())[:2] == [b"NFPW01", DISCONNECT]
        await router.enrol()
        router.send(GET, b"g0000001", b"", b"u-1", b"")
        assert (await router.response())[3] == b"400"
        _, shown = await ask(router, {"task": "show_workers"})
        assert shown[0]["done"] == 0


@pytest.mark.clause("NFP-G-01")
async def test_resources_can_change(router: Router):
    worker = Worker(router.url, name="w1", resources=["a"])
    worker.add("double", lambda body: 2 * body)
    async with running(worker):
        await router.enrol()
        worker.set_resources(["b", "c"])
        found = await router.next()
        assert found[1:4] == [MMI, b"", b""]
        assert json.loads(found[6]) == {"task": "set_resources", "kwargs": {"resources": ["b", "c"]}}
        router.send(MMI, b"", b"", found[4], b"200", b"{}")
        router.send(DISCONNECT, b"double", b"")
        assert (await router.greet(b"NFPW01"))["resources"] == ["b", "c"]
