"""MemoDB's own REST API: values by their content, heads, calls and their evaluation, workers.

cid         names of values                     content_store  stored values, heads and results
dagcbor     values as CBOR                      evaluations    calls as jobs, for clients
memojson    values as JSON                      rest_workers   jobs as calls, for workers
values      values and the frames of jobs       nodes, heads, calls, worker_routes: the routes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response

from polydomo.web.memodb import calls, heads, nodes, worker_routes
from polydomo.web.memodb.content_store import ContentStore
from polydomo.web.memodb.evaluations import Evaluations
from polydomo.web.memodb.rest_workers import RestWorkers
from polydomo.web.memodb.routing import RawPathRoute

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer
    from polydomo.web.clients import WebClients
    from polydomo.web.polling import PollingWorkers


def make_router(server: BrokerServer, clients: WebClients, workers: PollingWorkers) -> APIRouter:
    """Return the routes under `/memodb/v1`."""
    router = APIRouter(
        prefix="/memodb/v1", tags=["memodb"], route_class=RawPathRoute, default_response_class=Response
    )
    content = ContentStore(server)
    rest_workers = RestWorkers(server, workers, content)
    nodes.add_routes(router, server, content, clients.loader)
    heads.add_routes(router, server, content)
    calls.add_routes(router, server, content, Evaluations(server, clients, content), rest_workers)
    worker_routes.add_routes(router, server, content, rest_workers)
    return router
