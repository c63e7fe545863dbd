"""kill -9 at any moment: every acknowledged job is there, none twice, in order; every acknowledged result too."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from polydomo.store.records import DONE, JobFilter, JobRecord
from tests.store.desk import Desk

ROUNDS = int(os.environ.get("POLYDOMO_CRASH_ROUNDS", "5"))

# Adds jobs, runs them, reports each acknowledgement: "A id" added, "F id" finished. 200 are under way at a time.
LOAD = """
import os, sys
from polydomo.store.records import DONE
from tests.store.desk import NOW, Desk, job, name

desk = Desk(sys.argv[1])
first = int(sys.argv[2])
count = 0

def say(what, number):
    os.write(1, f"{what} {number}\\n".encode())

def submit():
    global count
    number = first + count
    count += 1
    desk.store.add(job(number, body=os.urandom(100) * (number % 50)), lambda error: added(error, number))

def added(error, number):
    assert error is None, error
    say("A", number)
    desk.store.attempt(name(number), 1, b"worker", NOW)
    desk.store.partial(name(number), 1, b"part", NOW)
    if number % 3:
        desk.store.finish(name(number), 1, DONE, b"result %d" % number, NOW, lambda error: finished(error, number))
    else:
        submit()

def finished(error, number):
    assert error is None, error
    say("F", number)
    submit()

for _ in range(200):
    submit()
desk.until(lambda: False, 60)
"""


def load_and_kill(url: str, first: int, seconds: float) -> tuple[list[int], list[int]]:
    """What a process acknowledged before it was killed: jobs added, jobs finished."""
    process = subprocess.Popen(
        [sys.executable, "-c", LOAD, url, str(first)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    heard = [process.stdout.readline()]  # it is at work now
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    rest, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL, errors.decode()
    heard += rest.splitlines()
    words = [line.split() for line in heard]
    added = [int(number) for what, number in words if what == b"A"]
    finished = [int(number) for what, number in words if what == b"F"]
    return added, finished


def check(desk: Desk, added: list[int], finished: list[int]) -> int:
    """Returns how many jobs there are."""
    jobs: list[JobRecord] = []
    page: str | None = None
    while True:
        answer = desk.ask(desk.store.find(JobFilter(oldest_first=True, page=page, limit=5000)))
        jobs += answer.jobs
        page = answer.next
        if page is None:
            break
    numbers = [int(record.id.replace("-", ""), 16) for record in jobs]
    assert len(set(numbers)) == len(numbers)
    assert numbers == sorted(numbers)
    assert set(added) <= set(numbers)
    states = dict(zip(numbers, (record.state for record in jobs), strict=True))
    assert {states[number] for number in finished} <= {DONE}
    for number, record in random.sample(list(zip(numbers, jobs, strict=True)), min(len(jobs), 50)):
        result = desk.ask(desk.store.result(record.id))
        assert (result is not None) == (record.state == DONE)
        if result is not None:
            assert result.body == b"result %d" % number
            assert len(desk.ask(desk.store.partials(record.id))) == 1
    counted = sum(count.jobs for count in desk.ask(desk.store.counts()))
    assert counted == len(numbers)
    return counted


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_killed_at_random_moments(kind: str, new_url: Callable[[str], str], tmp_path: Path) -> None:
    url = new_url(kind)
    rounds = ROUNDS if kind == "sqlite" else max(ROUNDS // 2, 1)
    added: list[int] = []
    finished: list[int] = []
    for turn in range(rounds):
        more, done = load_and_kill(url, 1 + turn * 1_000_000, random.uniform(0.0, 0.3))
        assert more
        added += more
        finished += done
        desk = Desk(url)
        check(desk, added, finished)
        desk.close()
