"""`polydomo worker module:object`: which objects it accepts, and how it runs them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from polydomo.cli import broker_client
from polydomo.cli.processes import url_of
from polydomo.cli.worker_loader import as_worker, load
from polydomo.errors import ConfigError
from polydomo.sdk import Worker
from tests.cli.support import CLEAN, here, run
from tests.support.broker import BrokerProcess, wait_for

PROGRAM = """
from polydomo.sdk import SyncWorker, Worker

worker = Worker()

@worker.service("hello")
def hello(name):
    return f"hello {name}"

def shout(body):
    return body.upper()

functions = {"a": shout, "b": hello}
twin = SyncWorker()
twin.add("twin", shout)
number = 3

class Holder:
    inner = shout
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of somebody's in the current folder."""
    (tmp_path / "somebodys.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield "somebodys"
    for name in [name for name in sys.modules if name.startswith("somebodys")]:
        del sys.modules[name]


def offered(target: str, **options: str) -> set[str]:
    worker = as_worker(load(target), target, **options)
    assert isinstance(worker, Worker)
    return set(worker.services)


def test_a_worker_a_function_a_dict_a_twin(module: str) -> None:
    assert offered("somebodys:worker") == {"hello"}
    assert offered("somebodys:shout") == {"shout"}
    assert offered("somebodys:shout", service="loud") == {"loud"}
    assert offered("somebodys:functions") == {"a", "b"}
    assert offered("somebodys:twin") == {"twin"}
    assert offered("somebodys:Holder.inner") == {"shout"}


def test_without_an_object_the_only_worker_is_meant(module: str) -> None:
    Path("somebodys2.py").write_text("from polydomo.sdk import Worker\nw = Worker()\nw.add('x', print)")
    assert offered("somebodys2") == {"x"}
    with pytest.raises(ConfigError, match="2 Workers"):
        offered("somebodys")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nowhere:x", "there is no module 'nowhere'"),
        ("somebodys.deep:x", "there is no module 'somebodys.deep'|not a package"),
        ("somebodys:nothing", "has no 'nothing'"),
        ("somebodys:number", "is a int"),
        ("somebodys.py:worker", "write somebodys, without .py"),
        ("some/bodys.py", "write some.bodys, without .py"),
        ("some/bodys:worker", "not a module's name"),
    ],
)
def test_what_cannot_be_run(target: str, said: str, module: str) -> None:
    with pytest.raises(ConfigError, match=said):
        as_worker(load(target), target)


def test_somebodys_mistake_is_shown_where_it_is(module: str) -> None:
    Path("somebodys3.py").write_text("def f():\n    return 1 / 0\n\nf()\n")
    done = here("worker", "somebodys3:f")
    assert done.exit_code == 2
    assert "somebodys3.py" in done.stderr
    assert "line 2, in f" in done.stderr
    assert "importlib" not in done.stderr
    assert "error: somebodys3 cannot be imported: ZeroDivisionError: division by zero" in done.stderr


def start(*words: str, url: str, cwd: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "polydomo", "worker", *words, "--url", url],
        stderr=subprocess.PIPE,
        env=CLEAN,
        cwd=cwd,
    )


def end(process: subprocess.Popen[bytes]) -> str:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=15)[1].decode()
    assert process.returncode == 0, said
    return said


def services(url: str) -> dict[str, int]:
    return {row["name"]: row["workers"] for row in broker_client.query(url, "services")}


def test_it_serves_until_it_is_told_to_stop(module: str, tmp_path: Path) -> None:
    with BrokerProcess() as broker:
        url = url_of(broker.endpoint)
        process = start("somebodys:functions", "--concurrency", "3", url=url, cwd=tmp_path)
        try:
            wait_for(lambda: services(url) == {"a": 3, "b": 3}, 20)
            assert here("call", "a", "x", "--url", url).stdout == "X\n"
            assert here("call", "b", "you", "--url", url).stdout == "hello you\n"
        finally:
            said = end(process)
        assert f'"services": ["a", "b"], "concurrency": 3, "broker": "{broker.endpoint}"' in said
        wait_for(lambda: services(url) == {"a": 0, "b": 0})


def test_it_says_when_its_broker_is_gone_and_when_it_offers_again(module: str, tmp_path: Path) -> None:
    """And no line for each attempt in between."""
    with BrokerProcess() as broker:
        place = broker.endpoint
        process = start("somebodys:functions", url=url_of(place), cwd=tmp_path)
        wait_for(lambda: len(services(url_of(place))) == 2, 20)
        broker.kill()  # a broker that ends in order says DISCONNECT
    lines = []
    assert process.stderr is not None
    try:
        while not lines or "Connection refused" not in lines[-1]:
            lines.append(process.stderr.readline().decode())
        time.sleep(1)  # several attempts
        with BrokerProcess(zmq=place):
            wait_for(lambda: len(services(url_of(place))) == 2, 20)
    finally:
        lines += end(process).splitlines()
    told = [json.loads(line) for line in lines]
    assert [(line["level"], line["event"]) for line in told][1:5] == [
        ("info", "offering"),
        ("warning", f"{place}: the broker closed the connection; connecting again"),
        ("warning", f"no broker at {place}: Connection refused; still looking"),
        ("info", "offering"),
    ]
    assert told[1]["broker"] == told[4]["broker"] == place


def test_the_command_line_wins_over_the_url_in_the_program(tmp_path: Path) -> None:
    (tmp_path / "fixed.py").write_text(
        "from polydomo.sdk import Worker\nw = Worker('mdp://127.0.0.1:1')\n"
        "@w.service('up')\nasync def up(body, ctx):\n    return await ctx.call('mmi.service', b'up')\n"
    )
    with BrokerProcess() as broker:
        url = url_of(broker.endpoint, "dcp")
        process = start("fixed:w", url=url, cwd=tmp_path)
        try:
            wait_for(lambda: services(url) == {"up": 1}, 20)
            # Its own calls go there too; the answer, bytes, is sent as it is.
            assert here("call", "up", "--url", url).stdout == "200\n"
        finally:
            end(process)


def test_reload_serves_the_changed_program(module: str, tmp_path: Path) -> None:
    with BrokerProcess() as broker:
        url = url_of(broker.endpoint)
        process = start("somebodys:worker", "--reload", url=url, cwd=tmp_path)
        lines: list[bytes] = []
        assert process.stderr is not None
        reader = threading.Thread(target=lines.extend, args=(iter(process.stderr.readline, b""),))
        reader.start()
        try:
            wait_for(lambda: services(url) == {"hello": 1}, 20)
            assert here("call", "hello", "you", "--url", url).stdout == "hello you\n"
            (tmp_path / "somebodys.py").write_text(PROGRAM.replace("hello {name}", "bye, {name}"))
            wait_for(lambda: here("call", "hello", "you", "--wait", "--url", url).stdout == "bye, you\n", 20)
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(15) == 0
            reader.join()
            process.stderr.close()
        assert b"somebodys.py changed" in b"".join(lines)
        wait_for(lambda: services(url) == {"hello": 0})


def test_no_module_at_all() -> None:
    done = run("worker", "nowhere:worker", "--url", "mdp://127.0.0.1:1")
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no module 'nowhere'")
