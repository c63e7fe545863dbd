"""The principal of a request, which `api.app` finds out before the request is routed."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

from polydomo.core.broker import Broker
from polydomo.core.principals import ANONYMOUS, Principal
from polydomo.server.admission import site_of

# Key of the ASGI scope for the principal's name.
PRINCIPAL: Final = "polydomo.principal"

# The site of requests from this machine.
LOCAL: Final = "local"


def caller_name(scope: MutableMapping[str, Any]) -> str:
    """Return the name of a request's principal."""
    name: str = scope.get(PRINCIPAL, ANONYMOUS)
    return name


def caller_site(scope: MutableMapping[str, Any]) -> str:
    """Return where a request comes from: a group of addresses that counts as one, or this machine."""
    client = scope.get("client")
    if client is None:
        return LOCAL
    site = site_of((client[0], 0), LOCAL)
    return LOCAL if site.startswith("127.") or client[0] == "::1" else site


def caller_of(broker: Broker, scope: MutableMapping[str, Any]) -> Principal:
    """Return a request's principal."""
    return broker.principals.get(caller_name(scope))
