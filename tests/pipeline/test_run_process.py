"""Test of `polydomo spark run` in its own process: it ends on a signal, and its Java with it.

`polydomo spark serve` is tested like this in `tests/abuse/test_sql.py`, with tables in `docs/how-to/sql-service.md`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.cli.support import CLEAN
from tests.pipeline.conftest import QUICK
from tests.support.broker import wait_for
from tests.support.ledger import job, write_segment

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SETS = [word for pair in QUICK for word in ("--set", f"spark.conf={pair}")]


def start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "polydomo", "spark", *words, "--master", "local[1]", *SETS]
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


def test_run_ends_on_a_signal_after_its_batch(tmp_path: Path, no_java: None) -> None:
    """The stream ingests what is there and waits for more; SIGTERM ends it after the current batch."""
    write_segment(tmp_path / "ledger", "jobs", [job(service="echo") for _ in range(10)])
    stream = start("run", "--data", str(tmp_path), "--json", "--set", "spark.interval=500ms")
    wait_for(lambda: list((tmp_path / "tables").glob("gold/service_minute/data/*")) or stream.poll(), 120)
    write_segment(tmp_path / "ledger", "jobs", [job(service="late")])
    code, said, noise = end(stream, signal.SIGTERM)
    assert code == 0, noise
    assert json.loads(said)["counts"]["jobs"]["added"] in (10, 11)
    assert "WARN" not in noise
