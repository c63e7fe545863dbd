"""HTTP: the REST API, and MemoDB's own REST API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polydomo.server.extensions import Extension

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer


def join(server: BrokerServer) -> Extension | None:
    """Return the HTTP server if `broker.http` is set. FastAPI is loaded only then: that takes half a second."""
    if not server.settings.broker.http:
        return None
    from polydomo.web.http_server import HttpServer

    return HttpServer(server)
