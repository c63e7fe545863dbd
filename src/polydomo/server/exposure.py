"""Listeners that other machines can reach without authentication.

A listener that only this machine can reach may be open. Any other must authenticate its peers, or name the principal
that they act for; otherwise the broker does not start, unless `broker.insecure` is set.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Final

from polydomo.errors import ConfigError
from polydomo.server import endpoints
from polydomo.server.endpoints import Endpoint, Listener
from polydomo.server.log import Log
from polydomo.server.settings import BrokerSection, Settings

log = Log()

# Kinds of listeners whose peers have keys if CURVE is on; requests of the others have other credentials.
KEYED: Final = ("zmq", "events")


def listeners(broker: BrokerSection) -> Iterator[tuple[str, str, Listener]]:
    """Yield all listeners of a broker: kind, text and meaning."""
    for kind, texts in (("zmq", broker.zmq), ("events", broker.events)):
        for text in texts:
            yield kind, text, endpoints.parse_listener(text)
    for text in broker.nng:
        yield "nng", text, endpoints.parse_listener(text, tls=True)
    for text in broker.http:
        yield "http", text, endpoints.parse_address(text)


def has_tls(broker: BrokerSection) -> bool:
    """Return whether any listener has TLS."""
    return any(listener.endpoint.tls for _, _, listener in listeners(broker))


def is_local(endpoint: Endpoint) -> bool:
    """Return whether only this machine can connect to an endpoint."""
    return endpoint.is_ipc or is_loopback(endpoint.host)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to the host; an empty host means all addresses."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def open_to_others(settings: Settings) -> list[str]:
    """Return the listeners that other machines can reach, and that anybody may use."""
    return [
        f"{kind} {endpoints.endpoint_part(text)}"
        for kind, text, listener in listeners(settings.broker)
        if not is_local(listener.endpoint) and not _is_guarded(settings, kind, listener)
    ]


def check(settings: Settings) -> None:
    """Raise ConfigError if other machines can reach a listener that anybody may use; if that is wanted, log it."""
    found = open_to_others(settings)
    if found and settings.broker.insecure:
        log.warning("anybody who reaches this machine can use the broker", listeners=found)
    elif found:
        keyed = any(listener.startswith(KEYED) for listener in found)
        close = (
            'set security.curve = "on"' if keyed else 'set security.roles = "on" or tls.clients = "required"'
        )
        raise ConfigError(
            f"anybody who reaches this machine could use {', '.join(found)}",
            hint=f"{close}, name the peers' principal (?principal=NAME), listen on 127.0.0.1, or say --insecure",
        )


def _is_guarded(settings: Settings, kind: str, listener: Listener) -> bool:
    """Return whether a listener's peers are authenticated, or their principal was chosen."""
    if listener.identification.is_given:
        return True
    if kind in KEYED:
        return settings.security.curve == "on"
    return settings.roles_apply() or (listener.endpoint.tls and settings.tls.clients == "required")
