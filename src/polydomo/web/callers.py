"""The principal of a request, which `api.app` finds out before the request is routed."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

from polydomo.core.broker import Broker
from polydomo.core.principals import ANONYMOUS, Principal

# Key of the ASGI scope for the principal's name.
PRINCIPAL: Final = "polydomo.principal"


def caller_name(scope: MutableMapping[str, Any]) -> str:
    """Return the name of a request's principal."""
    name: str = scope.get(PRINCIPAL, ANONYMOUS)
    return name


def caller_of(broker: Broker, scope: MutableMapping[str, Any]) -> Principal:
    """Return a request's principal."""
    return broker.principals.get(caller_name(scope))
