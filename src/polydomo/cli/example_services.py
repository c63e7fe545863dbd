"""Example services, which `polydomo dev` offers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from polydomo.sdk import Context, Worker

MOST = 1000
PAUSE = 0.2


async def echo(body: Any) -> Any:
    """Return the body unchanged."""
    return body


async def upper(body: bytes) -> bytes:
    """Return the body in capital letters."""
    return body.upper()


async def count(to: Any, ctx: Context) -> int:
    """Count up to a number, each one a partial reply."""
    if not isinstance(to, int) or not 0 < to <= MOST:
        raise ValueError(f"count to a number from 1 to {MOST}, not {to!r}")
    for number in range(1, to):
        ctx.progress(number)
        await asyncio.sleep(PAUSE)
    return to


# Name → function and codec. `upper` works on the bytes of a JSON string as well as on text.
EXAMPLES: dict[str, tuple[Callable[..., Any], str]] = {
    "echo": (echo, "raw"),
    "upper": (upper, "raw"),
    "count": (count, "json"),
}


def make_worker(url: str | None, concurrency: int = 4) -> Worker:
    """Return a worker that offers all examples."""
    worker = Worker(url, concurrency=concurrency, grace=1.0)
    for name, (function, codec) in EXAMPLES.items():
        worker.add(name, function, codec=codec)
    return worker
