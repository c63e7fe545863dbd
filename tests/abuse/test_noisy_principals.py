"""Abuse: a principal that floods the broker, over one connection or a thousand, takes no more than its share."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
import zmq

from polydomo.security.keys import ACCEPTED, KeyFolder
from polydomo.wire.curve.keys import KeyPair, encode_key, new_key_pair
from tests.support.broker import BrokerProcess, wait_for
from tests.support.peers import MdpClient, MdpWorker, Serving, Task
from tests.web.api.site import Site

TOML = """
[security]
curve = "on"
keys = "{keys}"
roles = "off"

[quotas.noisy]
jobs = {jobs}
rate = {rate}

[limits]
client_jobs = 100000
handshake = "60s"
"""

JOBS = 200
WORKERS = 4
TAKES = 0.005  # seconds that a worker needs for a job


class Field:
    """A broker with CURVE and the keys of two principals."""

    def __init__(self, broker: BrokerProcess, server: KeyPair, quiet: KeyPair, noisy: KeyPair) -> None:
        self.broker = broker
        self.server = server
        self.noisy = noisy
        self.site = Site(broker.http)
        self.context = zmq.Context()
        for option, key in (
            (zmq.CURVE_SERVERKEY, server.public),
            (zmq.CURVE_PUBLICKEY, quiet.public),
            (zmq.CURVE_SECRETKEY, quiet.secret),
        ):
            self.context.setsockopt(option, encode_key(key).encode())

    def figure(self, name: str) -> float:
        """A metric of the noisy principal; 0 if it has none yet."""
        text = self.site.get("/metrics").body.decode()
        found = re.search(rf'^polydomo_principal_{name}{{principal="noisy"}} (.+)$', text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    @contextmanager
    def noise(self, connections: int, service: str) -> Iterator[None]:
        keys = [":" + encode_key(key) for key in (self.server.public, self.noisy.public, self.noisy.secret)]
        command = [
            sys.executable,
            "-m",
            "tests.support.noise",
            self.broker.endpoint,
            str(connections),
            service,
        ]
        process = subprocess.Popen([*command, *keys], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"loud\n"
            wait_for(lambda: self.figure("connections") == connections, 60)
            yield
        finally:
            process.communicate(b"\n")


@contextmanager
def field(folder: Path, rate: float) -> Iterator[Field]:
    keys = KeyFolder(folder)
    server = keys.open()
    pairs = {name: new_key_pair(os.urandom) for name in ("quiet", "noisy")}
    for name, pair in pairs.items():
        assert keys.record(pair.public, name, "", ACCEPTED, 10) is not None
    toml = TOML.format(keys=folder, jobs=JOBS, rate=rate)
    with BrokerProcess(toml=toml, http=True) as broker:
        here = Field(broker, server, pairs["quiet"], pairs["noisy"])
        try:
            yield here
        finally:
            here.context.destroy(0)


@pytest.mark.parametrize("connections", [1, 1000])
def test_anothers_job_waits_for_one_noisy_job_at_most(tmp_path: Path, connections: int, full: bool) -> None:
    """Also beyond what the noisy principal may send there is always something of it in the queue."""
    with field(tmp_path, 1e6) as here, here.noise(connections if full else min(connections, 40), "work"):
        wait_for(lambda: here.figure("jobs") > JOBS / 2)
        with (
            closing(MdpWorker(here.broker.endpoint, b"work", context=here.context)) as worker,
            closing(MdpClient(here.broker.endpoint, context=here.context)) as client,
        ):
            for _ in range(50):
                task = worker.take()
                client.request(b"work", b"quiet")
                client.request(b"mmi.service", b"fence")  # so the broker has the request before
                assert client.answer(b"mmi.service").final == [b"404"]
                bodies = []
                while b"quiet" not in bodies:
                    worker.reply(task, [b"ok"])
                    task = worker.take()
                    bodies += task.body
                assert len(bodies) <= 2
                worker.reply(task, [b"ok"])
                assert client.answer(b"work").final == [b"ok"]
            assert here.figure("jobs") <= JOBS
        assert here.site.get("/readyz").status == 200


def p99(client: MdpClient, calls: int) -> float:
    taken = []
    for _ in range(calls):
        began = time.perf_counter()
        assert client.call(b"work", [b"quiet"]).final == [b"quiet"]
        taken.append(time.perf_counter() - began)
    return sorted(taken)[int(calls * 0.99)]


@pytest.mark.parametrize("connections", [1, 1000])
@pytest.mark.parametrize("rate", [100.0, 1e6])
def test_the_latency_of_others_at_most_doubles(
    tmp_path: Path, connections: int, rate: float, full: bool
) -> None:
    if not full:
        pytest.skip("a measurement, for a machine with nothing else to do: make abuse")
    least = connections + 500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < least:
        resource.setrlimit(resource.RLIMIT_NOFILE, (least, hard))

    def handle(worker: MdpWorker, task: Task) -> None:
        time.sleep(TAKES)  # the work
        worker.reply(task, task.body)

    def worker(context: zmq.Context) -> MdpWorker:
        context.setsockopt(zmq.LINGER, 0)
        for option in (zmq.CURVE_SERVERKEY, zmq.CURVE_PUBLICKEY, zmq.CURVE_SECRETKEY):
            context.setsockopt(option, here.context.getsockopt(option))
        return MdpWorker(here.broker.endpoint, b"work", context=context)

    with field(tmp_path, rate) as here, ExitStack() as stack:
        for _ in range(WORKERS):
            stack.enter_context(Serving(worker, handle))
        client = stack.enter_context(closing(MdpClient(here.broker.endpoint, context=here.context)))
        alone = p99(client, 1000)
        with here.noise(connections, "work"):
            beside = p99(client, 1000)
            assert here.figure("jobs") <= JOBS
        print(
            f"{connections} connections, {rate:g}/s: p99 {alone * 1e3:.2f} ms, with noise {beside * 1e3:.2f} ms"
        )
        assert beside <= 2 * alone
