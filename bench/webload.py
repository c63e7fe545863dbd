"""HTTP load, and the MDP workers for it, over plain sockets. Each in its own process:

    webload.py load HOST:PORT --connections 64 --size 64 --seconds 3 --warmup 1 --path /v1/services/echo/jobs
    webload.py work tcp://HOST:PORT --workers 16

`load` keeps one request in flight on each keep-alive connection and prints one line of JSON, like mdpraw; `work` prints
`ready` and echoes every request until it is killed. Both do as little per request as possible in Python, so that they
are not the limit; `gen_cpu_us` × `rps` near one million would mean that `load` is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from array import array

import uvloop

from loadwire import DIALECTS, GREETING, encode, handshake, next_message

STALL = 5.0  # seconds without any reply: give up
BEAT = 1.0
SETTLE = 0.3  # READY has no reply: time for the registration


class Load:
    """State shared by all connections."""

    def __init__(self, options: argparse.Namespace) -> None:
        body = b"x" * options.size
        head = f"POST {options.path} HTTP/1.1\r\nHost: localhost\r\nPrefer: wait=10\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        self.request = head.encode() + body
        self.body = body
        self.running = True
        self.measuring = False
        self.sent = self.done = self.wrong = 0
        self.latency_us = array("I")
        self.lost = ""


class Client(asyncio.Protocol):
    """One HTTP connection."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.transport: asyncio.Transport
        self.inbox = b""
        self.sent_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def send(self) -> None:
        self.load.sent += 1
        self.sent_at = time.perf_counter()
        self.transport.write(self.load.request)

    def data_received(self, data: bytes) -> None:
        load = self.load
        if self.inbox:
            data = self.inbox + data
        body = load.body
        # Fast path: a complete reply whose body is what was sent.
        if not (data.startswith(b"HTTP/1.1 200 ") and data.endswith(b"\r\n\r\n" + body)):
            head, found, rest = data.partition(b"\r\n\r\n")
            if not found or len(rest) < length_of(head):
                self.inbox = data
                return
            load.wrong += 1
            load.lost = data[:500].decode("latin-1")
        self.inbox = b""
        load.done += 1
        if load.measuring:
            load.latency_us.append(int((time.perf_counter() - self.sent_at) * 1e6))
        if load.running:
            self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.load.running:
            self.load.lost = f"a connection was closed: {exc}"


def length_of(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def run_load(options: argparse.Namespace) -> int:
    load = Load(options)
    host, _, port = options.where.rpartition(":")
    loop = asyncio.get_running_loop()
    clients = []
    for _ in range(options.connections):
        _, client = await loop.create_connection(lambda: Client(load), host, int(port))
        clients.append(client)
    for client in clients:
        client.send()
    await steady(load, options.warmup)
    print("measuring", file=sys.stderr, flush=True)
    load.measuring = True
    cpu, start, done = cpu_seconds(), time.perf_counter(), load.done
    await steady(load, options.seconds)
    load.measuring = False
    seconds, count, cpu = time.perf_counter() - start, load.done - done, cpu_seconds() - cpu
    print("measured", file=sys.stderr, flush=True)
    load.running = False
    stalled = not count or bool(load.lost and not load.wrong)
    if load.lost:
        print(load.lost, file=sys.stderr)
    ordered = sorted(load.latency_us) or [0]
    print(
        json.dumps(
            {
                "n": count,
                "rps": count / seconds,
                "p50_us": ordered[len(ordered) // 2],
                "p99_us": ordered[len(ordered) * 99 // 100],
                "gen_cpu_us": cpu * 1e6 / max(count, 1),
                "sent": load.sent,
                "done": load.done,
                "wrong": load.wrong,
                "stalled": stalled,
                "disconnects": 0,
            }
        )
    )
    return 0


async def steady(load: Load, seconds: float) -> None:
    """Wait for some seconds, or until there is no reply for STALL seconds."""
    end = time.perf_counter() + seconds
    seen, since = load.done, time.perf_counter()
    while (now := time.perf_counter()) < end:
        await asyncio.sleep(min(0.1, end - now))
        if load.done != seen:
            seen, since = load.done, time.perf_counter()
        elif time.perf_counter() - since > STALL:
            load.lost = load.lost or f"no reply for {STALL:g} s"
            return


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Worker(asyncio.Protocol):
    """An MDP worker that echoes requests."""

    def __init__(self) -> None:
        self.dialect = DIALECTS["mdp02"]
        self.ready = encode(self.dialect.ready, b"echo")
        self.beat = encode(self.dialect.heartbeat, b"echo")
        self.final = encode(self.dialect.final, b"echo", head=True)
        self.inbox = b""
        self.greeted = self.shaken = self.lost = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        transport.write(GREETING)

    def data_received(self, data: bytes) -> None:
        data = self.inbox + data
        at = 0
        if not self.greeted:
            if len(data) < len(GREETING):
                self.inbox = data
                return
            self.greeted = True
            at = len(GREETING)
            self.transport.write(handshake(b""))
        while (message := next_message(data, at)) is not None:
            at = message.end
            if message.is_command:
                if not self.shaken:
                    self.shaken = True
                    self.transport.write(self.ready)
            elif message.command(self.dialect.command_at) == self.dialect.command_request:
                start = message.heads[self.dialect.address_at]
                self.transport.write(self.final + data[start : message.end])
        self.inbox = data[at:]

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


async def run_workers(options: argparse.Namespace) -> int:
    host, _, port = options.where.removeprefix("tcp://").rpartition(":")
    loop = asyncio.get_running_loop()
    workers = []
    for _ in range(options.workers):
        _, worker = await loop.create_connection(Worker, host, int(port))
        workers.append(worker)
    end = time.perf_counter() + STALL
    while not all(worker.shaken for worker in workers):
        await asyncio.sleep(0.01)
        if time.perf_counter() > end:
            return 1
    await asyncio.sleep(SETTLE)
    print("ready", flush=True)
    while not any(worker.lost for worker in workers):
        await asyncio.sleep(BEAT)
        for worker in workers:
            worker.transport.write(worker.beat)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Generate HTTP load, or run MDP workers for it.")
    parser.add_argument("what", choices=("load", "work"))
    parser.add_argument("where")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--warmup", type=float, default=1.0)
    parser.add_argument("--path", default="/v1/services/echo/jobs")
    options = parser.parse_args()
    return uvloop.run(run_load(options) if options.what == "load" else run_workers(options))


if __name__ == "__main__":
    sys.exit(main())
