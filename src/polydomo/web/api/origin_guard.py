"""Protection from web pages of other sites: checks of `Host` and `Origin`.

A browser runs pages of all sites, on any network. Both checks are made for every request before it is routed.

- `Host` must name this broker: an IP address or `localhost`, a name that it listens on, or one of `http.hosts`.
  Otherwise a page could resolve its own name to the broker's address and read everything (DNS rebinding). An address
  cannot be rebound, so any is accepted. HTTP/1.1 requires exactly one `Host` (RFC 9112 §3.2); HTTP/1.0, which browsers
  do not use, requires none.
- `Origin`, which browsers send for cross-origin or modifying requests, must have the same host and port, or be one of
  `http.origins`. Pages of the latter may read the responses (CORS). Programs send no `Origin`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from starlette.types import Scope

from polydomo.web.api.problems import HttpProblem, problem

# Key of the ASGI scope for the authority of an absolute request target.
AUTHORITY: Final = "polydomo.authority"

# Wildcard in `http.hosts` and `http.origins`.
ANY: Final = "*"

# Syntax of `Host`: a name or an address, and a port (RFC 9110 §7.2). Underscores are common in names of containers.
_HOST = re.compile(
    r"(?:\[(?P<six>[0-9a-f:.]+(?:%[^\]]*)?)\]|(?P<name>[0-9a-z._-]+))(?::[0-9]{0,5})?", re.ASCII
)

# Number of `Host` values whose results are cached.
_CACHE_MAX: Final = 256

_ALLOW: Final = "allow a name with http.hosts, or use the broker's IP address"


class OriginGuard:
    """Both checks. `listening`: the hosts that the broker listens on."""

    def __init__(self, hosts: Sequence[str], origins: Sequence[str], listening: Sequence[str] = ()) -> None:
        self.hosts = list(hosts)
        self.origins = list(origins)
        own = [*hosts, "localhost", *listening]
        self._any_host = ANY in hosts
        self._names = {name.lower().rstrip(".") for name in own if not name.startswith("*")}
        self._domains = tuple(name.lower()[1:] for name in hosts if name.startswith("*."))
        self._any_origin = ANY in origins
        self._origins = {origin.lower() for origin in origins}
        self._error = lru_cache(_CACHE_MAX)(self._find_error)

    def check(self, scope: Scope) -> HttpProblem | None:
        """Return the problem of a request that is refused, or None."""
        hosts = []
        origin = None
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value)
            elif name == b"origin":
                origin = value.decode("latin-1")
        if len(hosts) != 1 and (hosts or scope.get("http_version") != "1.0"):
            return problem("malformed", f"a request needs one Host header, and this one has {len(hosts)}")
        if AUTHORITY in scope:  # it takes precedence over `Host` (RFC 9112 §3.2.2); both must be valid
            hosts.append(scope[AUTHORITY])
        for host in hosts:
            wrong = self._error(host)
            if wrong:
                return problem("malformed" if wrong == _MALFORMED else "misdirected", wrong)
        if origin is not None and not self._is_ours(origin, hosts) and not self.shares_with(origin):
            return problem(
                "not-allowed", "the request comes from a web page of another site; see http.origins"
            )
        return None

    def shares_with(self, origin: str) -> bool:
        """Return whether pages of `origin` may use the broker across origins."""
        return self._any_origin or origin.lower() in self._origins

    def _find_error(self, host: bytes) -> str:
        """Return what is wrong with a value of `Host`; empty if it is valid."""
        found = _HOST.fullmatch(host.decode("latin-1").lower())
        if found is None:
            return _MALFORMED
        if self._any_host or _is_address(found["six"] or found["name"]):
            return ""
        name = (found["name"] or "").rstrip(".")
        if name in self._names or name.endswith(self._domains):
            return ""
        return f"this broker is not known as {name[:100]!r}: {_ALLOW}"

    def _is_ours(self, origin: str, hosts: list[bytes]) -> bool:
        """Return whether `origin` has a requested host and port. The scheme may be a proxy's."""
        _, separator, place = origin.lower().partition("://")
        return bool(separator) and place in [host.decode("latin-1").lower() for host in hosts]


_MALFORMED: Final = "the Host header names no host"


def _is_address(name: str) -> bool:
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
