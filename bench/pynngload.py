"""Load for a MemoDB broker from pynng's peers, in separate processes: options, marks and result as in nngload.c.

A process for each client socket and for each sixteen workers; in them, a task for each context. Python peers cost more
than most brokers, so this shows the broker's CPU time, hardly ever its limit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import time
from io import BytesIO
from multiprocessing.connection import Connection
from typing import Any

import cbor2
import pynng

JOB, RESULT, HEARTBEAT = 2, 3, 4
WORKERS = 16  # per socket
SETTLE = 0.3  # seconds for workers to register


def encode(*header: object) -> bytes:
    return cbor2.dumps(["memo01", *header])


async def worker(socket: pynng.Req0, service: str, counts: dict[str, int]) -> None:
    context = socket.new_context()
    request = encode(1, b"", [service])
    while True:
        await context.asend(request)
        answer = await context.arecv()
        stream = BytesIO(answer)
        _, kind, id, *_ = cbor2.load(stream)
        if kind == JOB:
            request = encode(RESULT, id) + answer[stream.tell() :]
        elif kind == HEARTBEAT:
            request = encode(HEARTBEAT, id)
        else:
            counts["disconnects"] += 1
            request = encode(1, b"", [service])


async def client(
    socket: pynng.Req0, size: int, number: int, counts: dict[str, int], took: list[float]
) -> None:
    context = socket.new_context()
    header, expected = encode(JOB, b"", "echo", 30_000), encode(RESULT, b"")
    turn = 0
    while True:
        turn += 1
        payload = f"{number}:{turn} ".encode().ljust(size, b"x")[:size]
        began = time.perf_counter()
        counts["sent"] += 1
        await context.asend(header + payload)
        answer = await context.arecv()
        took.append(time.perf_counter() - began)
        counts["done"] += 1
        counts["wrong"] += answer != expected + payload


async def peers(options: argparse.Namespace, kind: str, amount: int, line: Connection) -> None:
    """Run the peers of one process and report the counters on request."""
    counts = dict.fromkeys(("sent", "done", "wrong", "disconnects"), 0)
    took: list[float] = []
    socket = pynng.Req0(dial=options.endpoint)
    if kind == "client":
        tasks = [client(socket, options.size, number, counts, took) for number in range(amount)]
    else:
        names = {"worker": "echo", "parked": "parked"}
        tasks = [worker(socket, names[kind], counts) for _ in range(amount)]
    running = [asyncio.ensure_future(task) for task in tasks]
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    loop.add_reader(line.fileno(), asked.set)
    while True:
        waiting = asyncio.ensure_future(asked.wait())
        done, _ = await asyncio.wait([waiting, *running], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {waiting}:
            task.result()  # tasks end only with an error
        asked.clear()
        if not line.poll():
            continue  # the reader fired twice for one request
        line.recv()
        times = os.times()
        line.send({**counts, "cpu": times.user + times.system, "took": took[:]})
        took.clear()


def process(options: argparse.Namespace, kind: str, amount: int, line: Connection) -> None:
    asyncio.run(peers(options, kind, amount, line))


class Peers:
    """The processes of all peers."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._lines: list[Connection] = []

    def start(self, kind: str, amount: int) -> None:
        near, far = multiprocessing.Pipe()
        arguments = (self._options, kind, amount, far)
        multiprocessing.get_context("spawn").Process(target=process, args=arguments, daemon=True).start()
        self._lines.append(near)

    def ask(self) -> dict[str, Any]:
        total: dict[str, Any] = {"took": []}
        for line in self._lines:
            line.send(None)
        for line in self._lines:
            if not line.poll(10):
                raise SystemExit("a process of peers does not reply")
            for name, value in line.recv().items():
                total[name] = total.get(name, 0) + value if name != "took" else total["took"] + value
        return total


def main() -> int:
    parser = argparse.ArgumentParser()
    for flag, name, kind, default in (
        ("-e", "endpoint", str, ""),
        ("-c", "clients", int, 1),
        ("-k", "workers", int, 1),
        ("-n", "window", int, 1),
        ("-i", "parked", int, 0),
        ("-x", "idle_clients", int, 0),
        ("-s", "size", int, 64),
        ("-t", "seconds", float, 1.0),
        ("-W", "warmup", float, 0.5),
    ):
        parser.add_argument(flag, dest=name, type=kind, default=default)
    parser.add_argument("-m", action="store_true")
    parser.add_argument("-j", action="store_true")
    options = parser.parse_args()
    processes = Peers(options)
    for first in range(0, options.workers, WORKERS):
        processes.start("worker", min(WORKERS, options.workers - first))
    if options.parked:
        processes.start("parked", options.parked)
    processes.ask()
    time.sleep(SETTLE)
    for _ in range(options.clients):
        processes.start("client", options.window)
    processes.ask()
    time.sleep(options.warmup)
    before = processes.ask()
    print("measuring", file=sys.stderr, flush=True)
    began = time.perf_counter()
    time.sleep(options.seconds)
    elapsed = time.perf_counter() - began
    after = processes.ask()
    print("measured", file=sys.stderr, flush=True)
    took = sorted(after.pop("took")) or [0.0]
    n = after["done"] - before["done"]
    result = {
        "n": n,
        "rps": n / elapsed,
        "p50_us": took[len(took) // 2] * 1e6,
        "p99_us": took[len(took) * 99 // 100] * 1e6,
        "gen_cpu_us": (after["cpu"] - before["cpu"]) * 1e6 / n if n else 0.0,
        "stalled": not n,
        **{name: after[name] for name in ("sent", "done", "wrong", "disconnects")},
    }
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
