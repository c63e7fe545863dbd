"""Files of a broker are readable by their owner only, and tracebacks are sent to permitted clients only."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polydomo import Client, Worker
from polydomo.core.failure import WORKER_ERROR, Failure
from polydomo.errors import WorkerError
from polydomo.sdk.persistence import ClientStore
from polydomo.server import tracebacks
from polydomo.server.settings import Settings
from polydomo.wire.frames import join
from tests.support.broker import BrokerProcess, wait_for


def test_everything_in_the_data_folder_is_private() -> None:
    before = os.umask(0)
    try:
        with BrokerProcess(
            toml='[ledger]\nfolder = "auto"\nroll = "100ms"\n[services.echo]\ndurable = true'
        ) as broker:
            wait_for(lambda: list((broker.data / "ledger" / "events").glob("[!.]*.parquet")))
            found = [broker.data, *broker.data.rglob("*")]
            names = {path.name for path in found}
            assert {"jobs.db", "jobs.db-wal", "jobs.db-shm", "broker.json", "lock", "ledger"} <= names
            modes = {path: stat.S_IMODE(path.stat().st_mode) for path in found}
            assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}
            assert "open to others" not in broker.log()
    finally:
        os.umask(before)


def test_a_wider_folder_is_left_alone_with_a_warning() -> None:
    with BrokerProcess() as broker:
        broker.stop()
        broker.data.chmod(0o755)
        broker.start_again()
        assert "folder readable by others" in broker.log()
        assert stat.S_IMODE(broker.data.stat().st_mode) == 0o755


async def test_what_a_client_keeps_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = ClientStore(tmp_path / "mine" / "jobs.db")
        await store.unfinished()
        await store.close()
    finally:
        os.umask(before)
    for path in [tmp_path / "mine", *(tmp_path / "mine").iterdir()]:
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


@pytest.mark.parametrize(
    ("broker", "join_up", "allowed"),
    [
        ({}, [], True),
        ({"zmq": ["tcp://127.0.0.2:1", "tcp://[::1]:1", "ipc:///x", "tcp://localhost:1"]}, [], True),
        ({"zmq": ["tcp://*:5555"]}, [], False),
        ({"zmq": ["tcp://10.0.0.1:5555"]}, [], False),
        ({"zmq": ["tcp://broker.example:5555"]}, [], False),
        ({"http": ["127.0.0.1:8080"], "nng": ["tcp://127.0.0.1:1"]}, [], True),
        ({"http": ["*:8080"]}, [], False),
        ({"nng": ["tcp://0.0.0.0:1"]}, [], False),
        ({"events": ["tcp://*:1"]}, [], False),
        ({}, ["wmp://127.0.0.1:1,127.0.0.1:2"], True),
        ({}, ["wmp://127.0.0.1:1,elsewhere:2"], False),
        ({"tracebacks": "never"}, [], False),
        ({"tracebacks": "always", "zmq": ["tcp://*:5555"]}, [], True),
    ],
)
def test_who_may_see_tracebacks(broker: dict[str, Any], join_up: list[str], allowed: bool) -> None:
    settings = msgspec.convert({"broker": broker, "join": {"up": join_up}}, Settings)
    assert (tracebacks.filter_for(settings) is None) is allowed


def test_a_traceback_is_taken_out_of_account_and_body() -> None:
    account = rb'{"reason":"worker-error","message":"x","trac\u0065back":"File a.py","status":500}'
    failure = Failure(WORKER_ERROR, "x", join([account, b"{}", b"plain", b"{broken"]), account)
    tracebacks.remove_traceback(failure)
    assert json.loads(failure.detail) == {"reason": "worker-error", "message": "x", "status": 500}
    assert b"a.py" not in (failure.body or b"")
    failure = Failure(WORKER_ERROR, "x", body := join([b"[1]", b"\0\1"]), b"")
    tracebacks.remove_traceback(failure)
    assert failure.body is body


@pytest.mark.parametrize(("allowed", "seen"), [("never", False), ("loopback", True)])
async def test_no_door_tells_a_traceback_that_is_not_allowed(allowed: str, seen: bool) -> None:
    """Failing workers of two protocols, called through each."""

    def fails(value: object) -> None:
        raise ValueError(f"asked with {value}")

    with BrokerProcess(toml=f'[broker]\ntracebacks = "{allowed}"', http=True, nng=True) as broker:
        place = broker.endpoint.removeprefix("tcp://")
        workers = [Worker(f"{dialect}://{place}", grace=0.1) for dialect in ("nfp", "mdp")]
        for number, worker in enumerate(workers):
            worker.add(f"fails{number}", fails)
        running = [asyncio.create_task(worker.run()) for worker in workers]
        urls = [f"{dialect}://{place}" for dialect in ("mdp", "dcp", "nfp")]
        try:
            for url in urls:
                async with Client(url, timeout=20) as client:
                    for service in ("fails0", "fails1"):
                        with pytest.raises(WorkerError, match="asked with 7") as caught:
                            await client.call(service, 7)
                        assert ("in fails" in caught.value.traceback) is seen, url
            async with Client(broker.nng.replace("tcp://", "memo://"), timeout=20) as client:
                for service in ("fails0", "fails1"):  # MemoDB has no word for failure
                    assert await client.call(service, 7) == {"error": "asked with 7"}
            for service in ("fails0", "fails1"):
                request = urllib.request.Request(
                    f"http://{broker.http}/v1/services/{service}/jobs",
                    b"7",
                    {"content-type": "application/json", "prefer": "wait=20"},
                )
                with pytest.raises(urllib.error.HTTPError) as refused:
                    await asyncio.to_thread(urllib.request.urlopen, request, timeout=20)
                said = refused.value.read().decode()
                assert "asked with 7" in said
                assert seen or "Traceback" not in said
        finally:
            for worker in workers:
                worker.stop()
            await asyncio.gather(*running)
