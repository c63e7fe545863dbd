"""Workers for tests, and waiting for conditions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from polydomo.sdk import Worker


def echo_worker(url: str, **options: Any) -> Worker:
    """Gives back what it got, byte for byte."""
    worker = Worker(url, codec="raw", **options)

    @worker.service
    async def echo(body: Any) -> Any:
        return body

    return worker


def gated_worker(url: str, **options: Any) -> tuple[Worker, asyncio.Event, list[Any]]:
    """Its jobs end when the gate is opened; what it was asked is in the list."""
    worker = Worker(url, **options)
    gate = asyncio.Event()
    asked: list[Any] = []

    @worker.service
    async def gated(body: Any) -> Any:
        asked.append(body)
        await gate.wait()
        return body

    return worker, gate, asked


async def until(condition: Callable[[], object], timeout: float = 10.0) -> None:
    """Until it is true; a TimeoutError if that takes too long."""
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.001)
