"""`polydomo dev`, `bench` and `demo`: the commands that new users run first."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from polydomo.cli import processes
from tests.cli.support import CLEAN, here, run


def _hear_ctrl_c() -> None:
    """Tests that a shell started in the background inherit that Ctrl-C is ignored, and so would what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def running(*words: str) -> Iterator[tuple[subprocess.Popen[str], Iterator[str]]]:
    """A command in the background and its lines; it must not leave children behind."""
    process = subprocess.Popen(
        [sys.executable, "-m", "polydomo", *words],
        stdout=subprocess.PIPE,
        text=True,
        env=CLEAN,
        preexec_fn=_hear_ctrl_c,
    )
    assert process.stdout is not None
    children: list[psutil.Process] = []
    try:
        yield process, iter(process.stdout.readline, "")
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(15) in (0, 130)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert psutil.wait_procs(children, timeout=5)[1] == []


def until(lines: Iterator[str], text: str) -> str:
    seen = ""
    for line in lines:
        seen += line
        if text in line:
            return line
    raise AssertionError(f"{text!r} was not said:\n{seen}")


def test_dev_offers_toys_and_says_what_to_try() -> None:
    with running("dev", "--port", "0") as (process, lines):
        url = until(lines, "a broker at").split()[-1]
        line = until(lines, "call echo hello")
        words = line.split()
        assert words[1:] == ["call", "echo", "hello", "--url", url]
        assert here(*words[1:]).stdout == "hello\n"
        assert [row["name"] for row in json.loads(here("services", "ls", "--json", "--url", url).stdout)] == [
            "count",
            "echo",
            "upper",
        ]
        until(lines, "Ctrl-C to stop")
        assert process.poll() is None


def test_dev_with_a_broken_configuration() -> None:
    done = here("dev", "--log-level", "loud")
    assert done.exit_code == 2
    assert "--log-level" in done.stderr


def test_the_usual_port_if_it_is_free_and_any_other_if_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert processes.port_to_listen_on(port) == "*"
    assert processes.port_to_listen_on(port) == str(port)


@pytest.mark.parametrize("dialect", ["mdp", "dcp"])
def test_bench_with_a_broker_of_its_own(dialect: str) -> None:
    done = run(
        "bench",
        "-n",
        "200",
        "--clients",
        "2",
        "--workers",
        "2",
        "--size",
        "1KiB",
        "--dialect",
        dialect,
        "--json",
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["plan"]["dialect"] == dialect
    assert (found["plan"]["size"], found["plan"]["own_broker"]) == (1024, True)
    result = found["result"]
    assert (result["requests"], result["failed"]) == (200, 0)
    assert 0 < result["p50"] <= result["p90"] <= result["p99"] <= result["worst"]
    assert result["rate"] > 0


def test_bench_of_a_service_that_is_there(url: str) -> None:
    done = run("bench", "-n", "50", "--workers", "0", "--service", "echo", "--url", url)
    assert done.returncode == 0, done.stderr
    assert f"50 requests of 64B over MDP through {url}" in done.stdout
    assert re.search(r"^ +4 +echo +[\d,]+ ", done.stdout, re.MULTILINE)
    assert re.search("[▁▂▃▄▅▆▇█]", done.stdout)


def test_bench_of_a_service_nobody_offers(url: str) -> None:
    done = run("bench", "-n", "50", "--workers", "0", "--service", "ecko", "--url", url)
    assert done.returncode == 4
    assert "did you mean echo?" in done.stderr


@pytest.mark.parametrize(
    "words", [["--size", "1foo"], ["--service", "x"], ["--workers", "0"], ["--dialect", "latin"], ["-n", "0"]]
)
def test_bench_usage(words: list[str]) -> None:
    assert here("bench", *words).exit_code == 2


@pytest.mark.slow
@pytest.mark.usefixtures("no_java")
def test_the_demo_succeeds() -> None:
    done = run("demo", "--fast", "--port", "0", timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "an MDP client calls upper(hello) of an MDP worker: HELLO" in done.stdout
    assert "of a DagBox worker: stressed" in done.stdout
    assert "kill -9" in done.stdout
    assert "the client got its answer, 42" in done.stdout
    assert re.search(r"Spark counts 116 jobs in \d+ rows of the ledger, the broker 116", done.stdout)
    assert "✗" not in done.stdout


@pytest.mark.slow
def test_the_demo_stays_until_ctrl_c_and_its_broker_can_be_tried() -> None:
    with running("demo", "--port", "0", "--no-spark") as (_, lines):
        words = until(lines, "call upper hello").split()[1:]
        assert here(*words).stdout == "HELLO\n"


def test_a_demo_whose_broker_cannot_start_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("demo", "--fast", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "the broker did not start" in done.stderr
    assert "cannot listen" in done.stderr
