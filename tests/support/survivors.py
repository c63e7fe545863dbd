"""Peers that survive restarts of the broker: NFP in the specification's form, on bare pyzmq.

Clients submit jobs under their own UUIDs, record those that were acknowledged (202), resubmit the others and poll (GET)
until there is a result. Workers give each execution a unique number, so that a result recorded twice would show: a
client would have seen another number than the store has in the end. Nothing here imports polydomo.

As a program (`python -m tests.support.survivors worker|client ENDPOINT NAME`) it is a single peer that can be killed or
frozen: a worker prints each job it gets and replies when it is told to; a client submits one job and prints its
acknowledgement.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import zmq

OPEN, READY, KEEPALIVE, DISCONNECT, POST, RESPONSE, GET = (bytes((code,)) for code in range(7))

SERVICE = b"safe"

# Seconds after which a client resubmits an unacknowledged job, and polls for a result again.
PATIENCE = 1.0
PAUSE = 0.2
BEAT = 0.25


class Sockets:
    """Sockets that are closed at the end."""

    def __init__(self) -> None:
        self.context = zmq.Context()
        self.opened: list[zmq.Socket[bytes]] = []

    def dealer(self, endpoint: str, identity: bytes = b"") -> zmq.Socket[bytes]:
        socket = self.context.socket(zmq.DEALER)
        socket.linger = 0
        socket.sndhwm = socket.rcvhwm = 0
        socket.reconnect_ivl = 20
        if identity:
            socket.identity = identity
        self.opened.append(socket)
        socket.connect(endpoint)
        return socket

    def close_one(self, socket: zmq.Socket[bytes]) -> None:
        self.opened.remove(socket)
        socket.close()

    def close(self) -> None:
        for socket in self.opened:
            socket.close()
        self.context.term()


class Worker:
    """A worker that replies at once. `remembers`: asked about a job that it has done (after a restart of the broker),
    it sends the result again; otherwise it reports the job as unknown."""

    executions = count(1)

    def __init__(
        self, sockets: Sockets, endpoint: str, name: bytes, *, credit: int = 20, remembers: bool = True
    ) -> None:
        self.sockets = sockets
        self.endpoint = endpoint
        self.name = name
        self.hello = json.dumps({"name": name.decode(), "credit": credit}).encode()
        self.remembers = remembers
        self.results: dict[tuple[bytes, bytes], bytes] = {}  # of the last attempts
        self.ran: dict[bytes, int] = {}  # executions of each job
        self.beaten = 0.0
        self.start()

    def start(self) -> None:
        self.socket = self.sockets.dealer(self.endpoint, self.name)
        self.send(OPEN, self.hello)
        self.send(READY, SERVICE)

    def send(self, command: bytes, *frames: bytes) -> None:
        self.socket.send_multipart([b"", b"NFPW01", command, *frames])

    def turn(self) -> None:
        now = time.monotonic()
        if now > self.beaten + BEAT:
            self.beaten = now
            self.send(KEEPALIVE, SERVICE)
        while self.socket.poll(0):
            self.take(self.socket.recv_multipart())

    def take(self, frames: list[bytes]) -> None:
        command = frames[2]
        if command == DISCONNECT:
            # NFP §Opening and Closing: it MUST close its socket and come back on a new one. On the old one, messages
            # still in flight would be taken for part of the new session.
            self.sockets.close_one(self.socket)
            self.start()
        elif command == POST:
            token, _, uuid = frames[3:6]
            self.ran[uuid] = self.ran.get(uuid, 0) + 1
            result = b"%b by %b, execution %d" % (uuid, self.name, next(self.executions))
            self.results[token, uuid] = result
            self.answer(token, uuid, result)
        elif command == GET:
            token, _, uuid = frames[3:6]
            known = self.results.get((token, uuid)) if self.remembers else None
            if known is None:
                self.send(RESPONSE, token, b"", uuid, b"400", b"")
            else:
                self.answer(token, uuid, known)

    def answer(self, token: bytes, uuid: bytes, result: bytes) -> None:
        self.send(RESPONSE, token, b"", uuid, b"200", result)


class Client:
    """A client that keeps `window` jobs in flight as long as it is told to."""

    def __init__(
        self,
        sockets: Sockets,
        endpoint: str,
        name: bytes,
        window: int,
        targets: tuple[bytes, ...] = (b"any",),
    ) -> None:
        self.socket = sockets.dealer(endpoint, name)
        self.name = name
        self.window = window
        self.targets = targets  # targets of its jobs, in turn
        self.numbers = count(1)
        self.posted: dict[bytes, float] = {}  # without a 202; when they were sent
        self.accepted: dict[bytes, float] = {}  # with a 202, without a result; when they were polled last
        self.acknowledged: set[bytes] = set()
        self.results: dict[bytes, bytes] = {}
        self.changed: list[
            tuple[bytes, bytes, bytes]
        ] = []  # jobs with two different results: must stay empty
        self.refused: dict[bytes, bytes] = {}

    @property
    def under_way(self) -> int:
        return len(self.posted) + len(self.accepted)

    def turn(self, more: bool) -> None:
        """Receive messages, poll for late results, and submit new jobs if `more`."""
        while self.socket.poll(0):
            self.take(self.socket.recv_multipart())
        now = time.monotonic()
        for uuid, when in list(self.posted.items()):
            if now < when + PATIENCE:
                break  # the others were posted later
            self.post(uuid)
        for uuid, when in list(self.accepted.items()):
            if now < when + PAUSE:
                break
            self.ask(uuid)
        while more and self.under_way < self.window:
            self.post(b"%b-%d" % (self.name, next(self.numbers)))

    def target(self, uuid: bytes) -> bytes:
        number = uuid.rpartition(b"-")[2]
        return self.targets[int(number) % len(self.targets)] if number.isdigit() else self.targets[0]

    def post(self, uuid: bytes) -> None:
        self.posted.pop(uuid, None)
        self.posted[uuid] = time.monotonic()
        self.send(POST, self.target(uuid), uuid, b'{"job":"%b"}' % uuid)

    def ask(self, uuid: bytes) -> None:
        self.accepted.pop(uuid, None)
        self.accepted[uuid] = time.monotonic()
        self.send(GET, self.target(uuid), uuid, b"")

    def send(self, command: bytes, target: bytes, uuid: bytes, body: bytes) -> None:
        self.socket.send_multipart([b"", b"NFPC01", command, SERVICE, target, uuid, body])

    def take(self, frames: list[bytes]) -> None:
        uuid, status, body = frames[4:7]
        if status == b"202":
            if self.posted.pop(uuid, None) is not None and uuid not in self.results:
                self.acknowledged.add(uuid)
                self.accepted[uuid] = time.monotonic()
        elif status == b"200":
            self.posted.pop(uuid, None)
            self.accepted.pop(uuid, None)
            known = self.results.setdefault(uuid, body)
            if known != body:
                self.changed.append((uuid, known, body))
        elif status != b"300":
            self.refused[uuid] = status + b" " + body


def run(peers: list[Worker], clients: list[Client], seconds: float, more: bool = True) -> None:
    """Run all peers for some seconds."""
    until(peers, clients, lambda: False, seconds, more)


def until(
    peers: list[Worker],
    clients: list[Client],
    condition: Callable[[], bool],
    seconds: float,
    more: bool = False,
) -> bool:
    """Run all peers until a condition holds; return False after the timeout."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        for worker in peers:
            worker.turn()
        for client in clients:
            client.turn(more)
        poller = zmq.Poller()  # workers replace their sockets
        for peer in [*peers, *clients]:
            poller.register(peer.socket, zmq.POLLIN)
        poller.poll(10)
    return True


class Alone:
    """A peer in its own process."""

    def __init__(self, role: str, endpoint: str, name: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "tests.support.survivors", role, endpoint, name],
            cwd=Path(__file__).resolve().parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def heard(self) -> str:
        """Return its next line; empty at the end."""
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def go_on(self) -> None:
        """Tell the worker to reply to the job it holds."""
        assert self.popen.stdin is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()

    def freeze(self) -> None:
        os.kill(self.popen.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.popen.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()

    def close(self) -> None:
        self.kill()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def alone(role: str, endpoint: str, name: str) -> Iterator[Alone]:
    """Start a peer, which is ended at the end of the block."""
    peer = Alone(role, endpoint, name)
    try:
        yield peer
    finally:
        peer.close()


class Holding(Worker):
    """A worker that prints each job's name, sends heartbeats, and replies when a line arrives on stdin."""

    def take(self, frames: list[bytes]) -> None:
        if frames[2] == POST:
            self.held = frames[3], frames[5]
            print(frames[5].decode(), flush=True)
        else:
            super().take(frames)

    def serve(self) -> None:
        while True:
            poller = zmq.Poller()
            poller.register(self.socket, zmq.POLLIN)
            poller.register(sys.stdin.fileno(), zmq.POLLIN)
            ready = dict(poller.poll(100))
            if sys.stdin.fileno() in ready:
                if not sys.stdin.readline():
                    return
                token, uuid = self.held
                self.answer(token, uuid, b"%b by %b" % (uuid, self.name))
                print("answered", flush=True)
            self.turn()


def main(role: str, endpoint: str, name: str) -> None:
    sockets = Sockets()
    if role == "worker":
        Holding(sockets, endpoint, name.encode(), credit=1).serve()
    else:
        client = Client(sockets, endpoint, name.encode(), 1)
        client.post(b"job-of-" + client.name)
        while not client.acknowledged:
            client.turn(more=False)
            time.sleep(0.01)
        print("acknowledged", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
