"""A broker that starts on damaged files reports the damage and what to do."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from polydomo.store.damage import scan_log
from polydomo.store.records import DONE
from tests.store.desk import NOW, Desk, job, name
from tests.store.test_damage import FRAME, PAGE, crashed, flip
from tests.support.broker import BrokerProcess, free_port, wait_for
from tests.support.peers import Manager

MARK = b"here is a result " * 10


def full_store(path: Path) -> None:
    """Jobs that have ended: a start reads none of their results."""
    desk = Desk(f"sqlite:///{path}")
    for number in range(1, 300):
        desk.store.add(job(number))
        desk.store.finish(name(number), 0, DONE, MARK, NOW)
    assert desk.do(desk.store.add, job(1000)) is None
    desk.close()


def break_results(path: Path) -> None:
    """The head of a page in the middle of the results is overwritten."""
    data = bytearray(path.read_bytes())
    pages = [start for start in range(0, len(data), PAGE) if data.count(MARK, start, start + PAGE) > 5]
    start = pages[len(pages) // 2]
    data[start : start + 16] = b"\xff" * 16
    path.write_bytes(data)


def ready(broker: BrokerProcess) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://{broker.http}/readyz", timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def shown(broker: BrokerProcess) -> dict[str, str]:
    with Manager(broker.endpoint) as manager:
        found: dict[str, str] = manager.show("show_broker")["store"]
        return found


def test_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    full_store(path)
    break_results(path)
    with BrokerProcess("--set", f"store.url=sqlite:///{path}", http=True) as broker:
        wait_for(lambda: ready(broker)[0] == 503, 20, broker.log())
        told = ready(broker)[1]["detail"]
        assert "damaged" in told
        assert "restore the file from a backup" in told
        assert "damaged" in shown(broker)["trouble"]
        assert "store in trouble" in broker.log()
        assert broker.stop() == 0


def test_a_file_is_not_searched_if_that_is_not_wanted(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    full_store(path)
    break_results(path)
    store = f"store.url=sqlite:///{path}"
    with BrokerProcess("--set", store, "--set", "store.check=0", http=True) as broker:
        assert ready(broker)[0] == 200
        assert broker.stop() == 0
        assert "store in trouble" not in broker.log()


def test_a_damaged_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polydomo.store.checkpoint.PAUSE", 3600.0)
    path = crashed(tmp_path)
    log = Path(f"{path}-wal")
    scan = scan_log(log)
    assert scan is not None
    flip(log, 32 + scan.commits[-3] * FRAME + 100)
    with BrokerProcess("--set", f"store.url=sqlite:///{path}", http=True) as broker:
        status, told = ready(broker)
        assert status == 200  # what is left is sound
        assert "lost" in told["warning"]
        assert "write-ahead log is damaged" in shown(broker)["damage"]
        assert "the store has lost jobs" in broker.log()
        assert "recovered unfinished jobs" in broker.log()


def test_a_file_that_cannot_be_opened_ends_the_start_with_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    full_store(path)
    data = bytearray(path.read_bytes())
    data[PAGE:] = b"\xff" * (len(data) - PAGE)
    path.write_bytes(data)
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    done = subprocess.run(
        [sys.executable, "-m", "polydomo", "broker", "--zmq", endpoint, "--data", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 6
    assert "malformed" in done.stderr
    assert "backup" in done.stderr
    assert "Traceback" not in done.stderr
