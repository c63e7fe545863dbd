"""A MemoDB broker in the form that pynng suggests, one task for each of many REP contexts: the reference for ours.
`python bench/pynng_broker.py ENDPOINT [CONTEXTS]`.

A context receives a request, waits for the reply and sends it. A worker's request (READY, RESULT, HEARTBEAT) is
answered with its next JOB, or with a HEARTBEAT after ten seconds; a client's JOB with its RESULT. The broker is correct
but minimal: no retries, no limits, no deduplication, no durability.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections import deque
from io import BytesIO
from typing import Any, Final

import cbor2
import pynng

READY: Final = 1
JOB: Final = 2
RESULT: Final = 3
HEARTBEAT: Final = 4
DISCONNECT: Final = 5

CONTEXTS: Final = 2048  # requests that can wait for a reply at the same time
PATIENCE: Final = 10.0  # seconds that a worker is parked, or a job waits for a worker

DROPPED: Final = None


class Job:
    """One JOB, and the future of its RESULT."""

    __slots__ = ("answer", "payload", "service", "timeout", "timer")

    def __init__(self, service: str, timeout: float, payload: bytes, answer: asyncio.Future[Any]) -> None:
        self.service = service
        self.timeout = timeout
        self.payload = payload
        self.answer = answer
        self.timer: asyncio.TimerHandle


class Worker:
    """One worker, by its ID."""

    __slots__ = ("id", "job", "parked", "services")

    def __init__(self, id: bytes, services: list[str]) -> None:
        self.id = id
        self.services = services
        self.job: Job | None = None
        self.parked: asyncio.Future[Job | None] | None = None


class Broker:
    """The broker: registered workers, parked workers and waiting jobs."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.workers: dict[bytes, Worker] = {}
        self.parked: dict[str, deque[Worker]] = {}
        self.waiting: dict[str, deque[Job]] = {}

    async def serve(self, context: Any) -> None:
        """Serve one context forever."""
        while True:
            try:
                answer = await self.answer(await context.arecv())
            except (cbor2.CBORDecodeError, ValueError, TypeError, IndexError):
                continue  # receiving again drops the request
            if answer is not DROPPED:
                await context.asend(answer)

    async def answer(self, data: bytes) -> bytes | None:
        """Return the reply to a request, as soon as there is one."""
        stream = BytesIO(data)
        header = cbor2.load(stream)
        protocol, kind, id = header[:3]
        if protocol != "memo01":
            raise ValueError(protocol)
        payload = data[stream.tell() :]
        if kind == JOB:
            return await self.submit(header[3], header[4] / 1000, payload)
        if kind == READY:
            worker = Worker(secrets.token_bytes(4), header[3])
            self.workers[worker.id] = worker
            return await self.next_job(worker)
        known = self.workers.get(id)
        if known is None:
            return encode(DISCONNECT, id)
        if kind == RESULT:
            self.finish(known, payload)
            if len(header) > 3 and header[3]:
                del self.workers[id]
                return encode(DISCONNECT, id)
        return await self.next_job(known)

    async def submit(self, service: str, timeout: float, payload: bytes) -> bytes | None:
        answer: asyncio.Future[bytes | None] = self.loop.create_future()
        job = Job(service, timeout, payload, answer)
        parked = self.parked.get(service)
        while parked:
            worker = parked.popleft()
            if worker.parked is not None and not worker.parked.done():
                worker.parked.set_result(job)
                break
        else:
            job.timer = self.loop.call_later(PATIENCE, give_up, answer)
            self.waiting.setdefault(service, deque()).append(job)
        result = await answer
        return DROPPED if result is None else encode(RESULT, b"") + result

    async def next_job(self, worker: Worker) -> bytes:
        job = self.take(worker)
        if job is None:
            worker.parked = self.loop.create_future()
            for service in worker.services:
                self.parked.setdefault(service, deque()).append(worker)
            timer = self.loop.call_later(PATIENCE, give_up, worker.parked)
            job = await worker.parked
            timer.cancel()
            worker.parked = None
        if job is None:
            return encode(HEARTBEAT, worker.id)
        worker.job = job
        job.timer = self.loop.call_later(job.timeout, give_up, job.answer)
        return encode(JOB, worker.id, job.service, round(job.timeout * 1000)) + job.payload

    def take(self, worker: Worker) -> Job | None:
        """Return the next job that waits for this worker."""
        for service in worker.services:
            waiting = self.waiting.get(service)
            while waiting:
                job = waiting.popleft()
                if not job.answer.done():
                    job.timer.cancel()
                    return job
        return None

    def finish(self, worker: Worker, payload: bytes) -> None:
        job, worker.job = worker.job, None
        if job is not None and not job.answer.done():
            job.timer.cancel()
            job.answer.set_result(payload)


def encode(*header: object) -> bytes:
    return cbor2.dumps(["memo01", *header])


def give_up(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)


async def main(endpoint: str, contexts: int) -> None:
    with pynng.Rep0(listen=endpoint) as socket:
        broker = Broker()
        await asyncio.gather(*(broker.serve(socket.new_context()) for _ in range(contexts)))


if __name__ == "__main__":
    try:
        from uvloop import run  # like our broker
    except ImportError:
        from asyncio import run
    run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else CONTEXTS))
