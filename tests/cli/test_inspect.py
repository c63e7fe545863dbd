"""`services`, `workers`, `clients`, `jobs` (with `ls` or without), `status`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from polydomo import __version__
from polydomo.cli import common
from polydomo.sdk import SyncClient
from tests.cli.support import CLEAN, here


def rows(*words: str, url: str) -> Any:
    done = here(*words, "--json", "--url", url)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_services(url: str) -> None:
    assert [row["name"] for row in rows("services", "ls", url=url)] == ["count", "echo", "upper"]
    lines = here("services", "ls", "--url", url).stdout.splitlines()
    assert lines[0].split() == [
        "service",
        "workers",
        "idle",
        "waiting",
        "running",
        "done",
        "failed",
        "retried",
    ]
    assert lines[1].split()[:3] == ["count", "2", "2"]


def test_workers_of_one_service(url: str) -> None:
    assert len(rows("workers", "ls", url=url)) == 6
    only = rows("workers", "ls", "--service", "echo", url=url)
    assert [row["services"] for row in only] == [["echo"], ["echo"]]
    assert "mdp/0.2" in here("workers", "ls", "--url", url).stdout


def test_clients(url: str) -> None:
    """Those that have sent jobs; whoever only looks is none of them."""
    assert rows("clients", "ls", url=url) == []
    with SyncClient(url) as client:
        client.call("echo", 1)
        [row] = rows("clients", "ls", url=url)
        assert (row["submitted"], row["unanswered"]) == (1, 0)
        assert "submitted" in here("clients", "ls", "--url", url).stdout


def test_jobs_with_filters(url: str) -> None:
    here("call", "echo", "x", "--url", url)
    here("call", "count", "0", "--url", url)
    here("call", "upper", "x", "--url", url)
    assert [row["service"] for row in rows("jobs", "ls", "--limit", "2", url=url)] == ["upper", "count"]
    assert {row["service"] for row in rows("jobs", "ls", "--service", "echo", url=url)} == {"echo"}
    assert [row["service"] for row in rows("jobs", "ls", "--state", "failed", url=url)] == ["count"]
    assert "failed: worker-error" in here("jobs", "ls", "--url", url).stdout
    assert "no jobs" in here("jobs", "ls", "--state", "waiting", "--url", url).stdout


def test_a_state_that_is_none() -> None:
    done = here("jobs", "ls", "--state", "tired")
    assert done.exit_code == 2
    assert "waiting, running, done, failed" in done.stderr


@pytest.mark.parametrize("command", ["status", "broker-info"])
def test_status(command: str, url: str) -> None:
    assert rows(command, url=url)["version"] == __version__
    assert "uptime" in here(command, "--url", url).stdout


def test_looking_is_not_counted(url: str) -> None:
    before = rows("status", url=url)
    here("jobs", "ls", "--url", url)
    here("call", "mmi.nothing", "--url", url)
    here("call", "mmi.service.broker", "nonsense", "--url", url)
    after = rows("status", url=url)
    assert (after["active"], after["memory"], after["clients"]) == (0, 0, 0)
    assert [after[name] - before[name] for name in ("done", "failed")] == [0, 0]
    here("call", "echo", "x", "--url", url)
    here("call", "count", "0", "--url", url)
    after = rows("status", url=url)
    assert [after[name] - before[name] for name in ("done", "failed")] == [1, 1]


@pytest.mark.parametrize(
    "words", [["services"], ["workers", "-s", "echo"], ["clients"], ["jobs", "--limit", "1"]], ids=" ".join
)
def test_ls_may_be_left_out(words: list[str], url: str) -> None:
    here("call", "echo", "x", "--url", url)
    name, *flags = words
    columns = [sorted(row) for row in rows(name, "ls", *flags, url=url)]
    assert [sorted(row) for row in rows(*words, url=url)] == columns
    assert (
        here(*words, "--url", url).stdout.split()[:2]
        == here(name, "ls", *flags, "--url", url).stdout.split()[:2]
    )


def test_a_group_has_help_of_its_own() -> None:
    done = here("jobs", "--help")
    assert done.exit_code == 0
    assert "Without a command: ls." in done.stdout
    assert here("jobs", "--nonsense").exit_code == here("jobs", "sl").exit_code == 2


def test_nobody_listens() -> None:
    done = here("services", "ls", "--url", "mdp://127.0.0.1:1")
    assert done.exit_code == 3
    assert done.stderr.startswith("error: no broker could be reached")


def test_watch_looks_again_and_again(url: str) -> None:
    """As JSON it is one line per look."""
    process = subprocess.Popen(
        [sys.executable, "-m", "polydomo", "services", "ls", "--watch", "--json", "--url", url],
        stdout=subprocess.PIPE,
        env=CLEAN,
    )
    assert process.stdout is not None
    try:
        looks = [json.loads(process.stdout.readline()) for _ in range(2)]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
    assert (
        [row["name"] for row in looks[0]] == [row["name"] for row in looks[1]] == ["count", "echo", "upper"]
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0µs"),
        (0.0000451, "45µs"),
        (0.0123, "12.3ms"),
        (0.9996, "1s"),
        (4.561, "4.56s"),
        (200, "3m20s"),
        (7500, "2h05m"),
        (356400, "4d03h"),
    ],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert common.duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0B"), (1023, "1023B"), (1536, "1.5KiB"), (64 * 1024**2, "64MiB"), (5e12, "4.55TiB")],
)
def test_sizes_are_short(number: float, text: str) -> None:
    assert common.size(number) == text
