"""Requests to a running broker's management service, with timeouts for a person at a terminal."""

from __future__ import annotations

import asyncio
import difflib
from typing import Any

from polydomo.cli import common
from polydomo.errors import Timeout, UnknownService, Unreachable
from polydomo.sdk import Client

MANAGEMENT = "mmi.service.broker"
TIMEOUT = 3.0
# Without a listener: long enough for a broker that is just being started.
CONNECT_TIMEOUT = 1.0
# Shell completion must be quick.
COMPLETION_TIMEOUT = 0.3


def connect(url: str, **options: Any) -> Client:
    """Return a client that gives up soon if there is no broker."""
    return Client(url, **({"connect_timeout": CONNECT_TIMEOUT} | options))


def query(url: str, what: str, *, timeout: float = TIMEOUT, **filters: Any) -> Any:
    """Return the rows of `services`, `workers`, `clients` or `jobs`, or the one of `broker`."""
    return run_task(url, f"show_{what}", filters, timeout=timeout)


def run_task(
    url: str,
    task: str,
    kwargs: dict[str, Any] | None = None,
    *,
    service: str = MANAGEMENT,
    timeout: float = TIMEOUT,
) -> Any:
    """Call a task of one of the broker's own services. Arguments that are None are left out."""

    async def once() -> Any:
        async with connect(url, connect_timeout=min(timeout, CONNECT_TIMEOUT)) as client:
            return await call_task(client, url, task, kwargs, timeout=timeout, service=service)

    return asyncio.run(once())


async def call_task(
    client: Client,
    url: str,
    task: str,
    kwargs: dict[str, Any] | None = None,
    *,
    timeout: float = TIMEOUT,
    service: str = MANAGEMENT,
) -> Any:
    """Call a task with an existing client. Raises Unreachable if there is no reply in time."""
    arguments = {name: value for name, value in (kwargs or {}).items() if value is not None}
    body = {"task": task, "kwargs": arguments}
    try:
        return await client.call(service, body, timeout=timeout, codec="json")
    except Timeout:
        raise Unreachable(
            f"no reply from {url} within {timeout:g} s",
            hint="something listens there; is it a Polydomo broker?",
        ) from None


def complete_service(incomplete: str) -> list[str]:
    """Complete a service's name for the shell, if a broker replies quickly."""
    try:
        rows = query(common.default_url(), "services", timeout=COMPLETION_TIMEOUT)
    except Exception:  # completion has no place for errors
        return []
    return [row["name"] for row in rows if row["name"].startswith(incomplete) and row["name"].isprintable()]


def unknown_service(service: str, rows: list[dict[str, Any]]) -> UnknownService:
    """Return the error for a service without workers, with a similar name and the services on offer as a hint."""
    offered = [row["name"] for row in rows if row["workers"]]
    near = difflib.get_close_matches(service, offered, n=1)
    if not offered:
        hint = "no service is offered at all; start a worker, or wait for one with --wait"
    else:
        shown = ", ".join(offered[:10]) + (f" and {len(offered) - 10} more" if len(offered) > 10 else "")
        hint = f"offered: {shown}; or wait for a worker with --wait"
    if near:
        hint = f"did you mean {near[0]}? {hint}"
    return UnknownService(f"no worker offers {service!r}", hint=hint)
