"""Names that the broker answers to, and web pages that may use it.

A browser is used by pages of all sites, on any network. Two checks keep those away from a broker; both are made for
every request, before it is routed.

- `Host` must name this broker: an IP address or `localhost`, a name that it listens on, or one of `http.hosts`.
  Otherwise a page could have its own name resolved to the broker's address and read everything (DNS rebinding). An
  address cannot be resolved to something else, so any is accepted. HTTP/1.1 asks for exactly one `Host` (RFC 9112
  §3.2); HTTP/1.0, which no browser speaks, for none.
- `Origin`, which browsers send where a page wants to change or read something, must be of the same host and port, or
  one of `http.origins`. Pages of the latter may read the responses (CORS). Programs send no `Origin`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

from starlette.types import Scope

from polydomo.web.api.problems import Problem, problem

# Where a connection puts the authority of an absolute request target.
AUTHORITY: Final = "polydomo.authority"

# In `http.hosts` and `http.origins`: all of them.
ANY: Final = "*"

# What `Host` may be: a name or an address, and a port (RFC 9110 §7.2). Underscores are common in names of containers.
_HOST = re.compile(
    r"(?:\[(?P<six>[0-9a-f:.]+(?:%[^\]]*)?)\]|(?P<name>[0-9a-z._-]+))(?::[0-9]{0,5})?", re.ASCII
)

# Answers for so many different `Host` headers are remembered.
_REMEMBERED: Final = 256

_ALLOW: Final = "allow a name with http.hosts, or use the broker's IP address"


class Guard:
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
        self._known: dict[bytes, str] = {}  # what is wrong with a `Host`, by its value

    def check(self, scope: Scope) -> Problem | None:
        """Return why a request is refused; None: it is not."""
        hosts = []
        origin = None
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value)
            elif name == b"origin":
                origin = value
        if len(hosts) != 1 and (hosts or scope.get("http_version") != "1.0"):
            return problem("malformed", f"a request has one Host header, and this one has {len(hosts)}")
        if AUTHORITY in scope:  # it counts, and not `Host` (RFC 9112 §3.2.2); neither may be wrong
            hosts.append(scope[AUTHORITY])
        for host in hosts:
            wrong = self._known.get(host)
            if wrong is None:
                wrong = self._wrong(host)
                if len(self._known) < _REMEMBERED:
                    self._known[host] = wrong
            if wrong:
                return problem("malformed" if wrong == _MALFORMED else "misdirected", wrong)
        if origin is not None and not self._is_ours(origin, hosts) and not self.shares_with(origin):
            return problem("not-allowed", "it comes from a web page of another site; see http.origins")
        return None

    def shares_with(self, origin: bytes) -> bool:
        """Return whether pages of `origin` may use the broker although it is not theirs."""
        return self._any_origin or origin.decode("latin-1").lower() in self._origins

    def _wrong(self, host: bytes) -> str:
        found = _HOST.fullmatch(host.decode("latin-1").lower())
        if found is None:
            return _MALFORMED
        if self._any_host or _is_address(found["six"] or found["name"]):
            return ""
        name = (found["name"] or "").rstrip(".")
        if name in self._names or name.endswith(self._domains):
            return ""
        return f"this broker is not known as {name[:100]!r}: {_ALLOW}"

    def _is_ours(self, origin: bytes, hosts: list[bytes]) -> bool:
        """Return whether a page is of the host and port that it asks. The scheme may be a proxy's."""
        _, separator, place = origin.lower().partition(b"://")
        return bool(separator) and place in [host.lower() for host in hosts]


_MALFORMED: Final = "the Host header names no host"


def origin_of(scope: Scope) -> bytes | None:
    """Return the header `Origin`."""
    for name, value in scope["headers"]:
        if name == b"origin":
            found: bytes = value
            return found
    return None


def _is_address(name: str) -> bool:
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
