"""Asking a running broker: its catalogue, with the few seconds of patience a person at a terminal has."""

from __future__ import annotations

import asyncio
import difflib
from typing import Any

from polydomo.cli import common
from polydomo.errors import Timeout, UnknownService, Unreachable
from polydomo.sdk import Client

MANAGEMENT = "mmi.service.broker"
PATIENCE = 3.0
# Nobody listens: a second is enough to be sure, and for a broker that is just being started.
CONNECT_PATIENCE = 1.0
# Shell completion: the person is waiting for a Tab.
COMPLETION_PATIENCE = 0.3


def connect(url: str, **options: Any) -> Client:
    """A client that does not keep a person waiting for a broker that is not there."""
    return Client(url, **({"connect_timeout": CONNECT_PATIENCE} | options))


def query(url: str, what: str, *, timeout: float = PATIENCE, **filters: Any) -> Any:
    """Rows of the catalogue: `services`, `workers`, `clients`, `jobs`, or the one of `broker`."""

    async def once() -> Any:
        async with connect(url, connect_timeout=min(timeout, CONNECT_PATIENCE)) as client:
            return await query_with(client, url, what, timeout=timeout, **filters)

    return asyncio.run(once())


async def query_with(
    client: Client, url: str, what: str, *, timeout: float = PATIENCE, **filters: Any
) -> Any:
    """The same with a client that is there."""
    return await call_task(client, url, f"show_{what}", filters, timeout=timeout)


def run_task(
    url: str,
    task: str,
    kwargs: dict[str, Any] | None = None,
    *,
    service: str = MANAGEMENT,
    timeout: float = PATIENCE,
) -> Any:
    """One task of one of the broker's own services; arguments that are None are not given."""
    given = {name: value for name, value in (kwargs or {}).items() if value is not None}

    async def once() -> Any:
        async with connect(url) as client:
            return await call_task(client, url, task, given, timeout=timeout, service=service)

    return asyncio.run(once())


async def call_task(
    client: Client,
    url: str,
    task: str,
    kwargs: dict[str, Any],
    *,
    timeout: float = PATIENCE,
    service: str = MANAGEMENT,
) -> Any:
    """The same with a client that is there. A broker that says nothing in time counts as not there."""
    try:
        return await client.call(service, {"task": task, "kwargs": kwargs}, timeout=timeout, codec="json")
    except Timeout:
        raise Unreachable(
            f"no answer from {url} within {timeout:g} s",
            hint="something listens there; is it a Polydomo broker?",
        ) from None


def complete_service(incomplete: str) -> list[str]:
    """For the shell: services that begin so, if a broker answers quickly."""
    try:
        rows = query(common.default_url(), "services", timeout=COMPLETION_PATIENCE)
    except Exception:  # whatever it is, a shell's Tab is no place to tell it
        return []
    return [row["name"] for row in rows if row["name"].startswith(incomplete) and row["name"].isprintable()]


def unknown_service(service: str, rows: list[dict[str, Any]]) -> UnknownService:
    """The error for a service nobody offers: with the one that was probably meant, and those there are."""
    offered = [row["name"] for row in rows if row["workers"]]
    near = difflib.get_close_matches(service, offered, n=1)
    if not offered:
        hint = "no service is offered at all; start a worker, or wait for one with --wait"
    else:
        shown = ", ".join(offered[:10]) + (f" and {len(offered) - 10} more" if len(offered) > 10 else "")
        hint = f"offered: {shown}; or wait for a worker with --wait"
    if near:
        hint = f"did you mean {near[0]}? {hint}"
    return UnknownService(f"nobody offers {service!r}", hint=hint)
