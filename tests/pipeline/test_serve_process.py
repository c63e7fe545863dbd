"""Tests of long-running commands in separate processes: they end on a signal, and their Java with them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.cli.support import CLEAN
from tests.pipeline.conftest import QUICK
from tests.support.broker import BrokerProcess, wait_for
from tests.support.ledger import job, write_segment
from tests.support.peers import Manager, MdpClient

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SETS = [word for pair in QUICK for word in ("--set", f"spark.conf={pair}")]


def start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "polydomo", "spark", *words, "--master", "local[1]", *SETS]
    import os

    java = {name: os.environ[name] for name in ("PATH", "JAVA_HOME") if name in os.environ}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**CLEAN, **java}
    )


def end(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str, str]:
    """Send a signal and return exit code and output. The command's Java must end, too."""
    children = psutil.Process(process.pid).children(recursive=True)
    assert any("java" in child.name() for child in children)
    process.send_signal(number)
    said, noise = process.communicate(timeout=60)
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive, alive
    return process.returncode, said, noise


@pytest.fixture
def data(tmp_path: Path, no_java: None) -> Path:
    write_segment(tmp_path / "ledger", "jobs", [job(service="echo") for _ in range(10)])
    return tmp_path


def test_run_then_serve(data: Path) -> None:
    """The stream ingests what is there and waits for more; SIGTERM ends it after the current batch. Then the tables are
    served until Ctrl-C."""
    stream = start("run", "--data", str(data), "--json", "--set", "spark.interval=500ms")
    wait_for(lambda: list((data / "tables").glob("gold/service_minute/data/*")) or stream.poll(), 120)
    write_segment(data / "ledger", "jobs", [job(service="late")])
    code, said, noise = end(stream, signal.SIGTERM)
    assert code == 0, noise
    assert json.loads(said)["counts"]["jobs"]["added"] in (10, 11)
    assert "WARN" not in noise
    with BrokerProcess() as broker:
        url = broker.endpoint.replace("tcp://", "mdp://")
        service = start("serve", "--data", str(data), "--url", url)
        try:
            with Manager(broker.endpoint) as manager:
                wait_for(lambda: manager.offered(b"sql") or service.poll() is not None, 200)
            with MdpClient(broker.endpoint) as client:
                answer = client.call(b"sql", [b"SELECT service FROM jobs LIMIT 1"], timeout=60)
            assert json.loads(answer.final[0])["rows"] == [["echo"]]
        except BaseException:
            service.terminate()
            print(*service.communicate(timeout=60))  # shows the cause
            raise
        code, _, noise = end(service, signal.SIGINT)
        assert code == 0, noise
        assert "stopped" in noise
