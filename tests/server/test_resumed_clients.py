"""Clients of MDP and DCP that wait under their own identity while the broker is killed and restarted.

Their sockets reconnect by themselves and send nothing; the broker must know them again.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import DcpPeer, DcpPeer4, Mdp01Client, MdpClient, MdpReqClient, MdpWorker, Peer

TOML = """
[heartbeat]
interval = 0.5
[services.safe]
durable = true
grace = "1s"
"""


class TomoForm(Peer):
    """majortomo's form of MDP/0.2, by hand: with an identity of its own."""

    def request(self, service: bytes, *body: bytes) -> None:
        self.send(b"", b"MDPC02", b"\x02", service, *body)


# Each kind of client, with the frames that it is answered with.
KINDS: dict[bytes, tuple[Callable[..., Any], Callable[[bytes], list[bytes]]]] = {
    b"mdp-0.2": (MdpClient, lambda body: [b"MDPC02", b"\x03", b"safe", body]),
    b"mdp-0.2-req": (MdpReqClient, lambda body: [b"", b"MDPC02", b"\x03", b"safe", body]),
    b"mdp-0.1": (Mdp01Client, lambda body: [b"MDPC01", b"safe", body]),
    b"majortomo": (TomoForm, lambda body: [b"", b"MDPC02", b"\x04", body]),
    b"dcp": (DcpPeer, lambda body: [b"", b"DGBX\x01", b"\x05", b"dcp", b"", b"meta", b"", body]),
    b"dcp-wide": (
        DcpPeer4,
        lambda body: [b"", b"DGBX\x01", b"\x05\0\0\0", b"dcp-wide", b"", b"meta", b"", body],
    ),
}


class Scene:
    """A broker, and one client of each kind."""

    def __init__(self, stack: ExitStack, toml: str = TOML) -> None:
        self.stack = stack
        self.broker = stack.enter_context(BrokerProcess(toml=toml))
        self.clients = {name: self.client(name) for name in KINDS}

    def client(self, name: bytes) -> Any:
        client: Peer = KINDS[name][0](self.broker.endpoint, identity=name)
        self.stack.callback(client.close)
        return client

    def worker(self) -> MdpWorker:
        worker = MdpWorker(self.broker.endpoint, b"safe", beat=0.2, identity=b"worker")
        self.stack.callback(worker.close)
        return worker

    def ask(self) -> None:
        """Send the requests of all clients and wait until they are on disk."""
        for name, client in self.clients.items():
            more = {"metadata": [b"meta"]} if isinstance(client, DcpPeer) else {}
            client.request(b"safe", name, **more)
        wait_for(lambda: self.query("SELECT count(*) FROM jobs")[0][0] == len(KINDS))

    def work(self, worker: MdpWorker, jobs: int) -> None:
        for _ in range(jobs):
            task = worker.take()
            worker.reply(task, [task.body[0].upper()])

    def done(self) -> bool:
        return bool(self.query("SELECT count(*) FROM jobs WHERE state = 'done'")[0][0] == len(KINDS))

    def told(self) -> int:
        """Up to which end the store says that clients were told."""
        rows = self.query("SELECT value FROM shelf WHERE name = ?", b"ending")
        return int(rows[0][0]) if rows else -1

    def query(self, text: str, *values: object) -> list[Any]:
        with closing(sqlite3.connect(self.broker.data / "jobs.db", timeout=10)) as database, database:
            return database.execute(text, values).fetchall()

    def restart(self) -> None:
        self.broker.kill()
        self.broker.start_again()

    def all_are_answered(self) -> None:
        for name, client in self.clients.items():
            assert client.recv() == KINDS[name][1](name.upper())

    def nobody_is_told_more(self) -> None:
        for client in self.clients.values():
            if not isinstance(client, Mdp01Client):
                assert client.fence() == []


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_jobs_that_wait_at_the_kill(stack: ExitStack) -> None:
    scene = Scene(stack)
    scene.ask()
    scene.restart()
    scene.work(scene.worker(), len(KINDS))
    scene.all_are_answered()
    scene.nobody_is_told_more()


def test_a_job_that_runs_at_the_kill(stack: ExitStack) -> None:
    """The worker registers again and answers the job that it got before the restart."""
    scene = Scene(stack)
    worker = scene.worker()
    scene.ask()
    task = worker.take()
    wait_for(lambda: scene.query("SELECT count(*) FROM jobs WHERE state = 'running'")[0][0] == 1)
    scene.restart()
    worker.ready(b"safe")
    worker.reply(task, [task.body[0].upper()])
    scene.work(worker, len(KINDS) - 1)
    scene.all_are_answered()
    scene.nobody_is_told_more()


def test_jobs_that_end_before_their_client_is_back(stack: ExitStack) -> None:
    scene = Scene(stack)
    scene.ask()
    for client in scene.clients.values():
        client.close()
    scene.restart()
    scene.work(scene.worker(), len(KINDS))
    wait_for(scene.done)
    scene.clients = {
        name: scene.client(name) for name in KINDS if name != b"mdp-0.1"
    }  # a new REQ waits for nothing
    scene.all_are_answered()
    scene.nobody_is_told_more()


def test_results_that_were_recorded_but_may_not_have_been_sent(stack: ExitStack) -> None:
    scene = Scene(stack)
    scene.ask()
    scene.work(scene.worker(), len(KINDS))
    scene.all_are_answered()
    wait_for(lambda: scene.told() == len(KINDS))
    scene.broker.kill()
    # As it is if the broker is killed right after the commit: nothing is known about what was sent.
    scene.query("UPDATE shelf SET value = ? WHERE name = ?", b"0", b"ending")
    scene.broker.start_again()
    for name, client in scene.clients.items():
        if not isinstance(client, Mdp01Client):  # REQ drops what it does not wait for
            assert client.recv() == KINDS[name][1](name.upper())
    scene.nobody_is_told_more()


def test_an_answer_is_not_repeated_once_it_is_known_to_be_sent(stack: ExitStack) -> None:
    scene = Scene(stack)
    scene.ask()
    scene.work(scene.worker(), len(KINDS))
    scene.all_are_answered()
    wait_for(lambda: scene.told() == len(KINDS))
    scene.restart()
    scene.nobody_is_told_more()


def test_clients_are_expected_for_their_grace_time_only(stack: ExitStack) -> None:
    """A later client of the same name must not take an old answer for that to its own request."""
    scene = Scene(stack, TOML + '[limits]\nclient_grace = "0.1s"\n')
    scene.ask()
    for client in scene.clients.values():
        client.close()
    scene.restart()
    scene.work(scene.worker(), len(KINDS))
    wait_for(scene.done)
    time.sleep(0.3)  # their grace time is over
    scene.clients = {name: scene.client(name) for name in KINDS if name != b"mdp-0.1"}
    scene.nobody_is_told_more()
