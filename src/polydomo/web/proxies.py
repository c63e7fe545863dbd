"""Trusted reverse proxies: the client address of a request that a proxy forwards.

`Forwarded` (RFC 7239) and `X-Forwarded-For` list addresses, each appended by the proxy that received the request from
there. Addresses that a client wrote itself stand further left, so the right-most one that is not a trusted proxy is the
client's. Most proxies set one of the two headers and pass on the other unchanged: if both exist and differ, neither is
used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

# One `for=` of `Forwarded`: a token or a quoted string (RFC 7239 §4).
_FOR = re.compile(rb'(?:^|;)\s*for=("[^"\\]*"|[^;,\s"]*)\s*(?=;|$)', re.IGNORECASE)


class Proxies:
    """The proxies that are trusted, as addresses and networks."""

    def __init__(self, networks: Sequence[str]) -> None:
        self.networks = list(networks)
        self._networks = [ip_network(network, strict=False) for network in networks]

    def trusts(self, peer: tuple[str, int] | None) -> bool:
        """Return whether `peer` is a trusted proxy."""
        return bool(self._networks) and peer is not None and self._is_proxy(_address(peer[0]))

    def client(self, headers: Iterable[tuple[bytes, bytes]], peer: tuple[str, int] | None) -> str:
        """Return the client address of a request of the trusted proxy `peer`; the peer's if none is given."""
        found = []
        fields = list(headers)
        for name, parse in ((b"forwarded", _forwarded), (b"x-forwarded-for", _x_forwarded_for)):
            values = [value for given, value in fields if given == name]
            if values:
                found.append(self._first_untrusted(parse(b",".join(values))))
        unknown = "" if peer is None else peer[0]
        if not found or found[0] is None or any(other != found[0] for other in found):
            return unknown
        return str(found[0])

    def _first_untrusted(
        self, addresses: list[IPv4Address | IPv6Address | None]
    ) -> IPv4Address | IPv6Address | None:
        """Return the right-most address that is not a proxy, or the left-most if all are."""
        last = None
        for address in reversed(addresses):
            last = address
            if not self._is_proxy(address):
                break
        return last

    def _is_proxy(self, address: IPv4Address | IPv6Address | None) -> bool:
        return address is not None and any(address in network for network in self._networks)


def _forwarded(value: bytes) -> list[IPv4Address | IPv6Address | None]:
    found = []
    for element in value.split(b","):
        match = _FOR.search(element.strip())
        found.append(_address(match[1].strip(b'"').decode("latin-1")) if match else None)
    return found


def _x_forwarded_for(value: bytes) -> list[IPv4Address | IPv6Address | None]:
    return [_address(one.strip().decode("latin-1")) for one in value.split(b",")]


def _address(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address that may have brackets and a port; None if it is hidden or not an address."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped
