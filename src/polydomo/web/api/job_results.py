"""Results of ended jobs, from memory or from the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from polydomo.core import failure as reasons
from polydomo.core.result_history import JobResult
from polydomo.web.api.problems import problem
from polydomo.web.waiting import called_back

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer
    from polydomo.web.clients import WebClients
    from polydomo.web.connection import HttpConnection


async def load_result(clients: WebClients, uid: str, connection: HttpConnection | None) -> JobResult | None:
    """Return the result of a job, counted as the connection's memory; None if it is unknown or has not ended."""
    if "\0" in uid:
        return None
    return await clients.loader.load(
        connection,
        lambda: _recall(clients.server, uid),
        lambda ended: 0 if ended is None else len(ended.body or b""),
    )


async def _recall(server: BrokerServer, uid: str) -> JobResult | None:
    def start(then: Callable[[JobResult | None], None]) -> None:
        server.advance()
        server.broker.recall(uid, then)

    ended = await called_back(start)
    failure = None if ended is None or ended.service else ended.failure
    if failure is not None and failure.reason == reasons.STORE:  # the store could not be read
        raise problem("store", failure.message)
    return ended
