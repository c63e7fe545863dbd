"""Web pages of others must not use a broker through their visitors' browsers.

A browser says with `Origin` which page a request comes from (always where it may change something). That must be one of
the broker's own. On the loopback interface its name must be an address or `localhost`, too: any other name there is
somebody's who had it resolved to this machine (DNS rebinding). Programs send no `Origin` and are not concerned.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.types import Scope


def is_foreign(scope: Scope) -> bool:
    """Does it come from another site's page?"""
    origin = host = None
    for name, value in scope["headers"]:
        if name == b"origin":
            origin = value
        elif name == b"host":
            host = value
    return origin is not None and not _is_ours(
        origin.decode("latin-1"), (host or b"").decode("latin-1"), scope
    )


def _is_ours(origin: str, host: str, scope: Scope) -> bool:
    try:
        page, here = urlsplit(origin), urlsplit(f"//{host}")
        same = page.netloc.lower() == here.netloc.lower() and bool(here.netloc)
        name = here.hostname or ""
    except ValueError:
        return False
    if not same:
        return False
    listener = scope.get("server")
    return listener is None or not _is_loopback(listener[0]) or name == "localhost" or _is_address(name)


def _is_loopback(host: str) -> bool:
    return _is_address(host) and ip_address(host.partition("%")[0]).is_loopback


def _is_address(name: str) -> bool:
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
