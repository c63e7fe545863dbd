"""Many requests while peers are killed, frozen and reconnected; then everything is as it was before.

Every request is answered, and no try of one is answered twice. `make soak` runs a million.
"""

from __future__ import annotations

import json
import random
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import Manager

ROOT = Path(__file__).resolve().parents[2]
MIB = 1024 * 1024

TOML = """
[heartbeat]
interval = 0.5
liveness = 4
[defaults]
timeout = 1.0
wait = 20.0
[limits]
client_grace = 2.0
[log]
level = "warning"
"""

WORKERS = ("mdp", "mdp", "mdp", "dcp", "dcp")
CLIENTS = ("mdp", "mdp", "mdp", "dcp", "dcp")
QUOTA = 4_000  # requests of one client's life
ACT = 2_000  # answers between two misfortunes
FREEZE = (0.5, 3.0)  # seconds; a worker loses its job after 1, and is given up after 2

# What must be as it was when all peers are gone. `done` and the like only grow.
RESTORED = ("services", "workers", "clients", "active", "memory")


class Process:
    def __init__(self, role: str, dialect: str, endpoint: str, name: str, *more: str) -> None:
        self.role = role
        self.dialect = dialect
        self.name = name
        command = [sys.executable, "-m", "tests.support.soak", role, dialect, endpoint, name, *more]
        self.popen = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.quota = int(more[0]) if more else 0
        self.thaw_at = 0.0
        self.doomed = False
        self.finished = False

    @property
    def frozen(self) -> bool:
        return self.thaw_at > 0

    def freeze(self, seconds: float) -> None:
        self.popen.send_signal(signal.SIGSTOP)
        self.thaw_at = time.monotonic() + seconds

    def thaw(self) -> None:
        self.popen.send_signal(signal.SIGCONT)
        self.thaw_at = 0.0

    def kill(self) -> None:
        self.doomed = True
        self.popen.kill()

    def close(self) -> None:
        self.popen.kill()
        self.popen.communicate()


class Soak:
    """Keeps the peers going, and troubles them."""

    def __init__(self, endpoint: str, total: int) -> None:
        self.endpoint = endpoint
        self.chance = random.Random(total)
        self.pending = total  # requests not yet given to a client
        self.progress = self.answered = self.retried = self.late = self.reconnects = 0
        self.acts = {"kill worker": 0, "freeze worker": 0, "kill client": 0, "freeze client": 0}
        self.names = 0
        self.selector = selectors.DefaultSelector()
        self.workers: list[Process] = []
        self.clients: list[Process] = []

    def start_worker(self, dialect: str) -> None:
        self.names += 1
        self.workers.append(Process("worker", dialect, self.endpoint, f"worker {self.names}"))

    def start_client(self, dialect: str) -> None:
        quota = min(QUOTA, self.pending)
        if quota:
            self.pending -= quota
            self.names += 1
            client = Process("client", dialect, self.endpoint, f"client {self.names}", str(quota))
            self.clients.append(client)
            self.selector.register(client.popen.stdout, selectors.EVENT_READ, client)

    def run(self) -> None:
        for dialect in WORKERS:
            self.start_worker(dialect)
        for dialect in CLIENTS:
            self.start_client(dialect)
        next_act = ACT
        last = time.monotonic()
        while self.clients:
            for key, _ in self.selector.select(0.1):
                last = time.monotonic()
                self.hear(key.data)
            for process in [*self.workers, *self.clients]:
                if process.frozen and time.monotonic() > process.thaw_at:
                    process.thaw()
            if self.progress >= next_act:
                next_act = self.progress + ACT
                self.trouble()
                self.show()
            assert time.monotonic() - last < 45, f"nothing is answered any more after {self.progress}"

    def show(self) -> None:
        """Show the progress of a long run on a terminal."""
        if sys.stdout.isatty():
            troubles = sum(self.acts.values())
            print(f"\r{self.progress:>10,} answers, {troubles} killed or frozen ", end="", flush=True)

    def hear(self, client: Process) -> None:
        line = client.popen.stdout.readline()
        if line.startswith("{"):
            report = json.loads(line)
            client.finished = True
            self.answered += report["answered"]
            self.retried += report["retried"]
            self.late += report["late"]
            self.reconnects += report["reconnects"]
        elif line:
            self.progress += int(line)
        else:
            self.bury(client)

    def bury(self, client: Process) -> None:
        self.selector.unregister(client.popen.stdout)
        self.clients.remove(client)
        _, errors = client.popen.communicate()
        assert client.doomed or client.popen.returncode == 0, errors
        if not client.finished:
            self.pending += client.quota
        self.start_client(client.dialect)

    def trouble(self) -> None:
        act = self.chance.choice(list(self.acts))
        role = self.workers if act.endswith("worker") else self.clients
        able = [one for one in role if not one.frozen and not one.doomed and not one.finished]
        if len(able) < 2:  # one must stay
            return
        victim = self.chance.choice(able)
        self.acts[act] += 1
        if act.startswith("freeze"):
            victim.freeze(self.chance.uniform(*FREEZE))
            return
        victim.kill()
        if victim.role == "worker":
            victim.close()
            self.workers.remove(victim)
            self.start_worker(victim.dialect)

    def close(self) -> None:
        for process in [*self.workers, *self.clients]:
            process.close()
        self.selector.close()


@pytest.fixture
def server() -> Iterator[BrokerProcess]:
    with BrokerProcess(toml=TOML) as process:
        yield process


def state(broker: BrokerProcess) -> dict[str, int]:
    with Manager(broker.endpoint) as manager:
        shown = manager.show("show_broker")
        process = psutil.Process(broker.pid)
        return {**shown, "descriptors": process.num_fds(), "resident": process.memory_info().rss}


def soak(broker: BrokerProcess, total: int) -> Soak:
    run = Soak(broker.endpoint, total)
    try:
        run.run()
    finally:
        run.close()
    return run


@pytest.mark.slow
def test_a_long_life_with_many_deaths(server: BrokerProcess, request: pytest.FixtureRequest):
    total = request.config.getoption("--soak-requests")
    soak(server, 3_000)  # so that what is allocated once is there
    before = settle(server, lambda now: now["workers"] == 0 and now["clients"] == 0)
    started = time.monotonic()
    run = soak(server, total)
    took = time.monotonic() - started
    after = settle(server, lambda now: all(now[key] == before[key] for key in (*RESTORED, "descriptors")))
    print(
        f"\n{total} requests in {took:.1f} s, {run.acts}, {run.reconnects} reconnected, {run.retried} asked again, "
        f"{run.late} answered late; the broker: {after['retried'] - before['retried']} retried, "
        f"{after['failed'] - before['failed']} failed, {after['strays'] - before['strays']} strays, "
        f"{(after['resident'] - before['resident']) / MIB:+.1f} MiB"
    )
    assert run.answered == total
    assert {key: after[key] for key in RESTORED} == {key: before[key] for key in RESTORED}
    assert after["descriptors"] <= before["descriptors"]
    assert after["resident"] - before["resident"] < 24 * MIB
    assert after["done"] - before["done"] >= total
    assert "Traceback" not in server.log()


def settle(broker: BrokerProcess, quiet: Callable[[dict[str, int]], bool]) -> dict[str, int]:
    """The broker's state once it is quiet; what it is if that does not happen is for the caller to find out."""
    found = state(broker)

    def look() -> bool:
        nonlocal found
        found = state(broker)
        return quiet(found)

    try:
        wait_for(look, 15)
    except AssertionError:
        pass
    return found
