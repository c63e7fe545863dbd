"""RFC 18 §Scalability: they come by the thousand. A thousand workers and as many clients, connected at once and
beating: none is given up, all are served, by all. Nothing here is timed."""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Iterator

import psutil
import pytest
import zmq

from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import PATIENCE, Manager

PEERS = 1000
INTERVAL = 1.0
LIVENESS = 4
SERVICE = b"scale"


class Crowd:
    """A thousand workers and a thousand clients in one thread: DEALERs speaking MDP/0.2."""

    def __init__(self, endpoint: str) -> None:
        self.context = zmq.Context()
        self.context.max_sockets = 2 * PEERS + 10
        self.poller = zmq.Poller()
        self.workers = [self._open(endpoint) for _ in range(PEERS)]
        self.clients = [self._open(endpoint) for _ in range(PEERS)]
        self.number = {socket: n for n, socket in enumerate(self.clients)}
        self.working = set(self.workers)
        self.served: Counter[zmq.Socket] = Counter()
        self.answers: Counter[int] = Counter()
        self.beats = 0
        self.beaten = time.monotonic()
        for worker in self.workers:
            worker.send_multipart([b"MDPW02", b"\x01", SERVICE])

    def ask_all(self) -> None:
        for client, number in self.number.items():
            client.send_multipart([b"MDPC02", b"\x01", SERVICE, b"%d" % number])

    def turn(self) -> None:
        """Answer what is there, and beat when it is time."""
        for socket, _ in self.poller.poll(20):
            frames = socket.recv_multipart()
            if socket not in self.working:
                assert frames[:3] == [b"MDPC02", b"\x03", SERVICE]
                assert int(frames[3]) == self.number[socket]
                self.answers[self.number[socket]] += 1
            elif frames[1] == b"\x02":
                self.served[socket] += 1
                socket.send_multipart([b"MDPW02", b"\x04", *frames[2:]])
            else:
                assert frames == [b"MDPW02", b"\x05"], "a worker was given up"
                self.beats += 1
        if time.monotonic() - self.beaten > INTERVAL / 2:
            self.beaten = time.monotonic()
            for worker in self.workers:
                worker.send_multipart([b"MDPW02", b"\x05"])

    def turn_until(self, done) -> None:
        deadline = time.monotonic() + 3 * PATIENCE
        while not done():
            assert time.monotonic() < deadline, (len(self.served), len(self.answers), self.beats)
            self.turn()

    def close(self) -> None:
        self.context.destroy(0)

    def _open(self, endpoint: str) -> zmq.Socket:
        socket = self.context.socket(zmq.DEALER)
        socket.linger = 0
        socket.connect(endpoint)
        self.poller.register(socket, zmq.POLLIN)
        return socket


@pytest.fixture
def room_for_all() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 6 * PEERS:
        pytest.skip(f"this machine allows a process {hard} files; {6 * PEERS} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 6 * PEERS), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.clause("MDP-S-01")
def test_a_thousand_workers_and_a_thousand_clients(room_for_all: None):
    """§Scalability and Performance: they come by the thousand."""
    with BrokerProcess(toml=f"[heartbeat]\ninterval = {INTERVAL}\nliveness = {LIVENESS}") as broker:
        with Manager(broker.endpoint) as manager:
            manager.show("show_broker")
            descriptors = psutil.Process(broker.pid).num_fds()
        crowd = Crowd(broker.endpoint)
        try:
            for round_ in range(1, 4):
                crowd.ask_all()
                crowd.turn_until(lambda: sum(crowd.answers.values()) == round_ * PEERS)  # noqa: B023
            # The least recently used first, so each had its turn.
            assert len(crowd.served) == PEERS
            assert set(crowd.answers.values()) == {3}
            # Idle for longer than anybody may be silent: each hears the broker's heartbeat, none a DISCONNECT.
            beats, end = crowd.beats, time.monotonic() + 1.5 * INTERVAL * LIVENESS
            crowd.turn_until(lambda: time.monotonic() > end and crowd.beats - beats >= 3 * PEERS)
            with Manager(broker.endpoint) as manager:
                shown = manager.show("show_broker")
            assert (shown["workers"], shown["clients"]) == (PEERS, PEERS)
            crowd.ask_all()
            crowd.turn_until(lambda: sum(crowd.answers.values()) == 4 * PEERS)
        finally:
            crowd.close()
        with Manager(broker.endpoint) as manager:
            wait_for(lambda: manager.show("show_broker")["workers"] == 0)
            wait_for(lambda: psutil.Process(broker.pid).num_fds() <= descriptors)
            shown = manager.show("show_broker")
        assert (shown["services"], shown["clients"], shown["failed"]) == (0, 0, 0)
        assert "Traceback" not in broker.log()
