"""What the broker offers over HTTP: the REST API, MemoDB's own REST."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polydomo.server.extensions import Extension

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer


def join(server: BrokerServer) -> Extension | None:
    """The HTTP door, if `broker.http` names a place. FastAPI is only loaded then: it takes half a second."""
    if not server.settings.broker.http:
        return None
    from polydomo.web.http_extension import HttpExtension

    return HttpExtension(server)
