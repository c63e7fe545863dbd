"""Peers of bench/bulk.py, each in its own process.

    python bench/bulk_peers.py worker URL SERVICE --count FILE [--die-after N] [--concurrency N]
    python bench/bulk_peers.py client URL SERVICE --rows N --first N --run RUN --window N [--memory]

The worker echoes requests. With `--count` it records each execution, when it starts, in its own file. With
`--die-after` it kills itself with SIGKILL when it receives the job after that many: it holds that job then, and has not
started it. With one job at a time all earlier replies have reached the broker by then, so the counts are exact.

The client sends its rows as fast as a window of them allows. It prints "ready", waits for a line, and prints how long
it took and how many replies were right.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time

import uvloop

from polydomo import Client, Worker
from polydomo.wire.frames import frame


def body_of(row: int) -> bytes:
    """Return the body that Spark produces for such a row."""
    return json.dumps({"id": row, "text": f"row {row}"}, separators=(",", ":")).encode()


async def work(options: argparse.Namespace) -> None:
    worker = Worker(options.url, concurrency=options.concurrency)
    counts = os.open(options.count, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) if options.count else -1
    begun = 0

    @worker.service(options.service, codec="raw")
    async def echo(body: bytes) -> bytes:
        nonlocal begun
        if options.die_after and begun >= options.die_after:
            os.kill(os.getpid(), signal.SIGKILL)
        begun += 1
        if counts >= 0:
            os.write(counts, body + b"\n")
        return body

    await worker.run()


async def send(options: argparse.Namespace) -> None:
    rows = range(options.first, options.first + options.rows)
    bodies = [frame(body_of(row)) for row in rows]
    turns = asyncio.Semaphore(options.window)
    right = 0

    async def one(place: int) -> None:
        nonlocal right
        try:
            named = {} if options.memory else {"id": f"{options.run}-{options.first + place}"}
            answer = await client.exchange(options.service, bodies[place], timeout=300, **named)
            right += answer == bodies[place]
        finally:
            turns.release()

    async with Client(options.url, window=options.window) as client:
        await client.offered(options.service)  # connected
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        started, used = time.perf_counter(), time.process_time()
        async with asyncio.TaskGroup() as group:
            for place in range(len(bodies)):
                await turns.acquire()
                group.create_task(one(place))
        seconds, cpu = time.perf_counter() - started, time.process_time() - used
    print(json.dumps({"seconds": seconds, "cpu": cpu, "right": right}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    kinds = parser.add_subparsers(dest="kind", required=True)
    worker = kinds.add_parser("worker")
    client = kinds.add_parser("client")
    for kind in (worker, client):
        kind.add_argument("url")
        kind.add_argument("service")
    worker.add_argument("--count", default="")
    worker.add_argument("--die-after", type=int, default=0)
    worker.add_argument("--concurrency", type=int, default=1)
    client.add_argument("--rows", type=int, required=True)
    client.add_argument("--first", type=int, default=0)
    client.add_argument("--run", required=True)
    client.add_argument("--window", type=int, required=True)
    client.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    uvloop.run(work(options) if options.kind == "worker" else send(options))


if __name__ == "__main__":
    main()
