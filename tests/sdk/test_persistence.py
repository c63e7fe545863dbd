"""The job files of NFP's peers: jobs survive when the peer or the broker is killed and restarted."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zmq

from polydomo.errors import JobFailed, Timeout, Unreachable, WorkerError
from polydomo.sdk import Client, Gather, Handle
from polydomo.sdk.persistence import ClientJob, ClientStore, NfpResult, NotKept, RecentResults, WorkerStore
from polydomo.sdk.testing import LocalBroker
from tests.sdk.support import gated_worker, until
from tests.support.broker import BrokerProcess


def rows(path: Path, query: str = "SELECT id, ended IS NULL, failure FROM jobs ORDER BY submitted") -> Any:
    with sqlite3.connect(path) as file:
        found = file.execute(query).fetchall()
    file.close()
    return found


# The stores


@pytest.mark.clause("NFP-J-02")
async def test_a_clients_store_across_its_life(tmp_path: Path):
    path = tmp_path / "deep" / "jobs.db"
    store = ClientStore(path)
    for number in range(3):
        await store.add(ClientJob(f"u-{number}", "svc", "any", b"\x00\x01x", "json", float(number)))
    await store.add(ClientJob("u-1", "svc", "any", b"changed", "json", 9.0))
    await store.end("u-0", b"\x00\x01y")
    await store.close()
    store = ClientStore(path)
    assert [(job.id, job.body) for job in await store.unfinished()] == [
        ("u-1", b"\x00\x01x"),
        ("u-2", b"\x00\x01x"),
    ]
    await store.end("u-2", None, "expired")
    await store.close()
    assert rows(path, "SELECT id, result, failure FROM jobs WHERE ended IS NOT NULL ORDER BY id") == [
        ("u-0", b"\x00\x01y", ""),
        ("u-2", None, "expired"),
    ]


async def test_ended_jobs_are_kept_for_a_while_and_others_for_ever(tmp_path: Path):
    store = ClientStore(tmp_path / "jobs.db", keep=0.0)
    await store.add(ClientJob("u-0", "svc", "any", b"", "json", 0.0))
    await store.add(ClientJob("u-1", "svc", "any", b"", "json", 0.0))
    await store.end("u-0", b"")
    await store.close()
    store = ClientStore(tmp_path / "jobs.db", keep=0.0)
    await store.add(ClientJob("u-2", "svc", "any", b"", "json", 1.0))
    await store.close()
    assert [row[0] for row in rows(tmp_path / "jobs.db")] == ["u-1", "u-2"]


async def test_many_at_once_share_commits(tmp_path: Path):
    store = ClientStore(tmp_path / "jobs.db")
    jobs = [ClientJob(f"u-{number}", "svc", "any", b"", "json", 0.0) for number in range(500)]
    await asyncio.gather(*[store.add(job) for job in jobs])
    assert len(await store.unfinished()) == 500
    await store.close()


async def test_a_disk_in_trouble_is_told_and_got_over(tmp_path: Path):
    path = tmp_path / "jobs.db"
    path.mkdir()
    store = ClientStore(path)
    job = ClientJob("u-0", "svc", "any", b"", "json", 0.0)
    with pytest.raises(NotKept, match=r"jobs\.db"):
        await store.add(job)
    path.rmdir()
    await store.add(job)
    await store.close()


@pytest.mark.clause("NFP-J-01")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_workers_records(tmp_path: Path, kind: str):
    store: RecentResults | WorkerStore = (
        RecentResults() if kind == "memory" else WorkerStore(tmp_path / "worker.db")
    )
    assert await store.begin("svc", "u-1", b"body") is None
    assert await store.find("svc", "u-1") is None, "it has not ended"
    await store.finish("svc", "u-1", NfpResult("200", b"result"))
    assert await store.find("svc", "u-1") == NfpResult("200", b"result")
    assert await store.begin("svc", "u-1", b"body") == NfpResult("200", b"result")
    assert await store.find("other", "u-1") is None
    assert await store.begin("svc", "u-1", b"another body") is None
    await store.finish("svc", "u-1", NfpResult("500", b"sorry"))
    assert await store.find("svc", "u-1") == NfpResult("500", b"sorry")
    assert await store.begin("svc", "u-1", b"another body") is None, "what failed is run again"
    await store.close()


async def test_a_workers_memory_is_bounded():
    store = RecentResults()
    for number in range(RecentResults.MOST + 10):
        await store.begin("svc", f"u-{number}", b"")
        await store.finish("svc", f"u-{number}", NfpResult("200", b"x"))
    assert await store.find("svc", "u-9") is None
    assert await store.find("svc", "u-10") is not None
    await store.begin("svc", "big", b"")
    await store.finish("svc", "big", NfpResult("200", bytes(RecentResults.MOST_BYTES)))
    assert await store.find("svc", "u-100") is None


async def test_jobs_that_never_finish_are_bounded_too():
    store = RecentResults()
    for number in range(RecentResults.MOST + 10):
        await store.begin("svc", f"u-{number}", b"")
    assert len(store._jobs) == RecentResults.MOST


# The client


@pytest.fixture
def url(local: LocalBroker) -> str:
    return local.url_for("nfp")


@pytest.mark.clause("NFP-J-02")
async def test_a_job_is_on_record_before_it_is_sent_and_so_is_its_end(tmp_path: Path, url: str):
    path = tmp_path / "jobs.db"
    worker, gate, asked = gated_worker(url)

    @worker.service
    async def fails(body: Any) -> None:
        raise ValueError("no")

    async with worker, Client(url, store=path) as client:
        handle = client.submit("gated", 1)
        await until(lambda: asked)
        assert rows(path) == [(handle.id, 1, "")]
        gate.set()
        await handle
        assert rows(path) == [(handle.id, 0, "")]
        with pytest.raises(WorkerError):
            await client.call("fails")
        assert rows(path)[1][1:] == (0, "worker-error")
        gate.clear()
        left = client.submit("gated", 2)
        await until(lambda: len(asked) == 2)
        left.cancel()
        with pytest.raises(JobFailed):
            await left
        await client.services()
    assert rows(path)[2:] == [(left.id, 0, "cancelled")], "questions to the broker itself are not recorded"


async def test_time_that_ran_out_ends_a_call_and_not_a_handle(tmp_path: Path, url: str):
    async with Client(url, store=tmp_path / "jobs.db", timeout=0.1) as client:
        with pytest.raises(Timeout):
            await client.call("nobody")
        with pytest.raises(Timeout):
            await client.submit("nobody")
    assert [row[1:] for row in rows(tmp_path / "jobs.db")] == [(0, "timeout"), (1, "")]


async def test_a_client_that_was_closed_goes_on_where_it_was(tmp_path: Path, url: str):
    path = tmp_path / "jobs.db"
    worker, gate, asked = gated_worker(url, name="w1", concurrency=3)
    async with worker:
        async with Client(url, store=path) as client:
            handles = [client.submit("gated", {"n": 1}), client.submit("gated", b"2", codec="raw")]
            gathered = client.broadcast("gated", 3)
            await until(lambda: len(asked) == 3)
        for lost in [*handles, gathered]:
            with pytest.raises(Unreachable):
                await lost
        async with Client(url, store=path) as client:
            found = await client.recover()
            assert [each.id for each in found] == [*[handle.id for handle in handles], gathered.id]
            assert await client.recover() == [], "once"
            gate.set()
            assert [type(each) for each in found] == [Handle, Handle, Gather]
            assert [await each for each in found] == [{"n": 1}, b"2", {"w1": 3}]
        async with Client(url, store=path) as client:
            assert await client.recover() == []
    assert asked.count({"n": 1}) == asked.count(2) == 1, "to the broker they were the same jobs"


# Processes that are killed


CLIENT = """
import asyncio, sys
from polydomo import Client

async def main(url, store):
    client = Client(url, store=store, timeout=None)
    handles = [client.submit("gated", {"n": n}) for n in range(5)]
    for handle in handles:
        await handle.accepted()
        print(handle.id, flush=True)
    await asyncio.sleep(60)

asyncio.run(main(*sys.argv[1:]))
"""

WORKER = """
import asyncio, sys
from polydomo import Worker

worker = Worker(sys.argv[1], name="w1", store=sys.argv[2])

@worker.service
async def slow(body):
    with open(sys.argv[3], "a") as file:
        print(body["n"], file=file, flush=True)
    await asyncio.sleep(body.get("sleep", 0))
    return body["n"] * 2

worker.run_forever()
"""


def spawn(program: str, *words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program, *[str(word) for word in words]]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@pytest.mark.clause("NFP-J-02")
async def test_a_killed_clients_jobs_are_recovered(tmp_path: Path):
    """NFP §Job Persistence: clients SHOULD store job requests."""
    with BrokerProcess() as broker:
        url = broker.endpoint.replace("tcp", "nfp")
        process = spawn(CLIENT, url, tmp_path / "jobs.db")
        assert process.stdout is not None
        ids = [(await asyncio.to_thread(process.stdout.readline)).strip() for _ in range(5)]
        kill(process)
        worker, gate, asked = gated_worker(url, concurrency=5)
        gate.set()
        async with worker, Client(url, store=tmp_path / "jobs.db") as client:
            found = await client.recover()
            assert [each.id for each in found] == ids
            assert [await each for each in found] == [{"n": n} for n in range(5)]
        assert sorted(each["n"] for each in asked) == list(range(5)), "each was run once"


@pytest.mark.clause("NFP-J-01")
async def test_a_killed_workers_results_are_there_for_any_client(tmp_path: Path):
    """NFP §Job Persistence: workers SHOULD store requests and results. The broker that took them is another by then,
    so it has to ask the worker; so does a raw pyzmq client in the specification's form."""
    ran = tmp_path / "ran"
    with BrokerProcess() as broker:
        url = broker.endpoint.replace("tcp", "nfp")
        process = spawn(WORKER, url, tmp_path / "worker.db", ran)
        async with Client(url, timeout=20) as client:
            handle = client.submit("slow", {"n": 21}, id="u-1")
            assert await handle == 42
            hung = client.submit("slow", {"n": 5, "sleep": 60}, target="w1", id="u-2", timeout=None)
            await until(lambda: ran.read_text().split() == ["21", "5"])
            kill(process)
            hung.cancel()
    with BrokerProcess() as broker:
        url = broker.endpoint.replace("tcp", "nfp")
        process = spawn(WORKER, url, tmp_path / "worker.db", ran)
        try:
            async with Client(url, timeout=20) as client:
                while not await client.offered("slow"):
                    await asyncio.sleep(0.02)
                job = await client.job("u-1", "slow")
                assert await job.result() == 42
                assert (await client.job("u-2", "slow")).state == "unknown"
                assert await client.call("slow", {"n": 21}, id="u-1") == 42, "not run again"
                assert await client.call("slow", {"n": 6}, id="u-2") == 12
            assert await asyncio.to_thread(raw_get, broker.endpoint) == [b"200", b"42"]
        finally:
            kill(process)
    assert ran.read_text().split() == ["21", "5", "6"]


def raw_get(endpoint: str) -> list[bytes]:
    """Another client, of another kind: a REQ socket."""
    with zmq.Context() as context, context.socket(zmq.REQ) as socket:
        socket.linger = 0
        socket.rcvtimeo = 10000
        socket.connect(endpoint)
        socket.send_multipart([b"NFPC01", b"\x06", b"slow", b"w1", b"u-1", b""])
        answer = socket.recv_multipart()
        assert answer[:4] == [b"NFPB01", b"\x05", b"slow", b"u-1"]
        return answer[4:]


@pytest.mark.clause("NFP-J-04")
@pytest.mark.parametrize("moment", ["running", "finished"])
async def test_a_killed_broker_gets_its_jobs_answer_from_the_worker_that_has_it(moment: str):
    """Registered again, it is asked for what it has; whatever it finished meanwhile it brings along. Run once."""
    with BrokerProcess() as broker:
        url = broker.endpoint.replace("tcp", "nfp")
        worker, gate, asked = gated_worker(url, name="w1", concurrency=4)
        async with worker, Client(url, timeout=40, connect_timeout=30) as client:
            handles = [client.submit("gated", {"n": n}) for n in range(4)]
            await until(lambda: len(asked) == 4)
            broker.kill()
            if moment == "finished":
                gate.set()
            await asyncio.sleep(0.2)
            await asyncio.to_thread(broker.start_again)
            if moment == "running":
                await worker.ready()
                await asyncio.sleep(0.2)
                gate.set()
            assert [await handle for handle in handles] == [{"n": n} for n in range(4)]
        assert len(asked) == 4
