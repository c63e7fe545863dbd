"""The demo's workers and services, each in a process of its own: `polydomo worker polydomo.cli.demo.workers:NAME`."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from polydomo.cli import example_services
from polydomo.sdk import Context, Worker

majordomo = example_services.make_worker(None, concurrency=2)


async def reverse(text: str) -> str:
    """Return the text reversed."""
    return text[::-1]


async def slow(task: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Report the process id at once, then work long enough to be killed."""
    ctx.progress(os.getpid())
    await asyncio.sleep(task["seconds"])
    return {"worker": os.getpid(), "result": task["x"] * 2}


def _greeter(protocol: str) -> Worker:
    """Return a worker whose replies name its protocol."""
    greeter = Worker(grace=1.0)

    @greeter.service("greet")
    async def greet(name: str) -> str:
        """Return a greeting that names the worker's protocol."""
        return f"hello {name}, says a {protocol} worker"

    return greeter


greeter_mdp = _greeter("Majordomo")
greeter_dcp = _greeter("DagBox")
greeter_nfp = _greeter("NORFAB")


async def cube(number: int) -> int:
    """Return the cube, after a delay that a cached result does not have."""
    await asyncio.sleep(0.2)
    return number**3


async def carry(load: str) -> dict[str, Any]:
    """Be busy for a while, and return the process id."""
    await asyncio.sleep(0.3)
    return {"load": load, "worker": os.getpid()}


careful = Worker(grace=1.0, concurrency=4)


@careful.service("square")
async def square(number: int) -> int:
    """Return the square, slowly enough that the broker can be killed while jobs wait."""
    await asyncio.sleep(0.02)
    return number * number
