"""MemoDB's own REST, as its users know it: values by their content, heads, calls and their evaluation, workers.

cid         names of values                     library     what is kept, and how much of it may be
dagcbor     values as CBOR                      evaluating  calls become jobs
memojson    values as JSON                      working     jobs become calls
values      values and the frames of jobs       nodes, heads, calls, hiring: the paths
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from polydomo.web.memodb import calls, heads, nodes, worker_routes
from polydomo.web.memodb.content_store import ContentStore
from polydomo.web.memodb.evaluations import Evaluations
from polydomo.web.memodb.rest_workers import RestWorkers
from polydomo.web.memodb.routing import WrittenRoute

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer
    from polydomo.web.clients import WebClients
    from polydomo.web.polling import PollingWorkers


def make_router(server: BrokerServer, clients: WebClients, workers: PollingWorkers) -> APIRouter:
    """All paths, under `/memodb/v1`."""
    router = APIRouter(prefix="/memodb/v1", tags=["memodb"], route_class=WrittenRoute)
    library = ContentStore(server)
    hands = RestWorkers(server, workers, library)
    nodes.add_routes(router, server, library, clients.loading)
    heads.add_routes(router, server, library)
    calls.add_routes(router, server, library, Evaluations(server, clients, library), hands)
    worker_routes.add_routes(router, server, library, hands)
    return router
