"""Results of ended jobs, from memory or from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polydomo.core import failure as reasons
from polydomo.core.principals import Principal
from polydomo.core.result_history import JobResult
from polydomo.web.api.problems import HttpProblem, problem
from polydomo.web.waiting import called_back

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer
    from polydomo.web.clients import WebClients
    from polydomo.web.connection import HttpConnection


def unknown_job(uid: str) -> HttpProblem:
    """Return the problem of a request for a job that is not known."""
    return problem("not-found", f"there is no job {uid[:100]!r}, or it is no longer stored")


async def load_result(
    clients: WebClients, caller: Principal, uid: str, connection: HttpConnection
) -> JobResult:
    """Return the result of a job that its caller may read, counted as the connection's memory.

    Raises HttpProblem if the job is unknown.
    """
    if "\0" in uid:
        raise unknown_job(uid)
    return await clients.loader.load(
        connection, lambda: _recall(clients.server, caller, uid), lambda ended: len(ended.body or b"")
    )


async def _recall(server: BrokerServer, caller: Principal, uid: str) -> JobResult:
    server.advance()
    ended: JobResult | None = await called_back(lambda then: server.broker.jobs.recall(caller, uid, then))
    if ended is None:
        raise unknown_job(uid)
    failure = None if ended.service else ended.failure
    if failure is not None and failure.reason == reasons.STORE:  # the store could not be read
        raise problem("store", failure.message)
    return ended
