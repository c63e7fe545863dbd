"""`polydomo call` and `polydomo worker` with memo:// URLs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from polydomo.cli import broker_client
from tests.cli.support import CLEAN, run
from tests.support.broker import BrokerProcess, wait_for


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a broker with a worker that speaks MemoDB."""
    folder: Path = tmp_path_factory.mktemp("memo")
    (folder / "mine.py").write_text("def double(body):\n    return body * 2\n")
    with BrokerProcess(nng=True) as broker:
        place = broker.nng.replace("tcp", "memo")
        command = [
            sys.executable,
            "-m",
            "polydomo",
            "worker",
            "mine:double",
            "--url",
            place,
            "--concurrency",
            "3",
        ]
        worker = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=CLEAN, cwd=folder)
        try:
            wait_for(lambda: len(broker_client.query(place, "workers")) == 3, 20)
            yield place
        finally:
            worker.terminate()
            assert worker.wait(10) == 0


def test_a_call(url: str):
    done = run("call", "double", "21", "-u", url)
    assert (done.returncode, done.stdout) == (0, "42\n")


def test_a_service_that_nobody_offers(url: str):
    done = run("call", "triple", "21", "-u", url)
    assert done.returncode == 4
    assert "offered: double" in done.stderr


def test_what_memodb_cannot_say(url: str):
    done = run("call", "double", "21", "-u", url, "--priority", "3")
    assert done.returncode == 2
    assert "not supported by memo" in done.stderr
