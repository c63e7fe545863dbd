"""How a job ended, from memory or from the disk, for a handler that waits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from polydomo.core import job as jobs
from polydomo.core.result_history import JobResult
from polydomo.web.api.problems import problem

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer
    from polydomo.web.clients import WebClients
    from polydomo.web.connection import Connection


async def ended_of(clients: WebClients, uid: str, connection: Connection | None) -> JobResult | None:
    """Return it for a connection that waits. None: it is not known, or has not ended."""
    if "\0" in uid:
        return None
    return await clients.loading.load(connection, lambda: _recall(clients.server, uid), _size)


def _size(ended: JobResult | None) -> int:
    return 0 if ended is None else len(ended.body or b"")


async def _recall(server: BrokerServer, uid: str) -> JobResult | None:
    future: asyncio.Future[JobResult | None] = server.loop.create_future()

    def then(ended: JobResult | None) -> None:
        if not future.done():  # whoever asked may be gone
            future.set_result(ended)

    server.advance()
    server.broker.recall(uid, then)
    ended = await future
    failure = None if ended is None or ended.service else ended.failure
    if failure is not None and failure.reason == jobs.STORE:  # nothing is known: the disk could not be read
        raise problem("store", failure.message)
    return ended
