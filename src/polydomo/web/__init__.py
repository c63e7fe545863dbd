"""What the broker offers over HTTP: the REST API, MemoDB's own REST."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polydomo.server.doors import Door

if TYPE_CHECKING:
    from polydomo.server.house import House


def join(house: House) -> Door | None:
    """The HTTP door, if `broker.http` names a place. FastAPI is only loaded then: it takes half a second."""
    if not house.settings.broker.http:
        return None
    from polydomo.web.door import HttpDoor

    return HttpDoor(house)
