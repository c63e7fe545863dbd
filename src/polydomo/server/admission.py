"""Admission: a limited number of connections that no single address can use up.

When the limit is reached, a new connection is still admitted: one of the address with the most connections is cut. So
an address with more connections than all others can only displace its own. Of that address the oldest connection is
cut, which has had the most time for its handshake; or the newest, if connections are meant to last.

Each operation takes constant time, independent of the number of addresses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

# Prefix length of an IPv6 site: all of its addresses belong to one customer and count as one.
IPV6_SITE = 64


class Entrant(Protocol):
    """Connection to be admitted. Compared by identity."""

    def cut(self, reason: str) -> None:
        """Close the connection at once, and log the reason."""


EntrantT = TypeVar("EntrantT", bound=Entrant)


class Admission(Generic[EntrantT]):
    """Admitted connections by address. A change of `limit` takes effect with the next connection.

    With `newest_first` the newest connection of the address with the most is cut, otherwise the oldest.
    """

    def __init__(self, limit: int, *, newest_first: bool = False) -> None:
        self.limit = limit
        self.newest_first = newest_first
        self.evicted = 0
        self._addresses: dict[EntrantT, str] = {}
        self._groups: dict[str, dict[EntrantT, None]] = {}  # entrants of each address, oldest first
        self._ranks: dict[int, dict[str, None]] = {}  # addresses by the size of their group
        self._largest = 0  # size of the largest group

    def __len__(self) -> int:
        return len(self._addresses)

    def __iter__(self) -> Iterator[EntrantT]:
        return iter(self._addresses)

    def is_full_for(self, address: str) -> bool:
        """Return whether a new connection from `address` could only displace another one of the same address."""
        return len(self) >= self.limit and len(self._groups.get(address, ())) >= self._largest

    def enter(self, entrant: EntrantT, address: str) -> None:
        """Admit `entrant`, and cut others if the limit is reached."""
        while self._addresses and len(self._addresses) >= self.limit:
            self.evict(
                f"made room for others: no address has more than its {self._largest} of {len(self)} connections"
            )
        group = self._groups.setdefault(address, {})
        group[entrant] = None
        self._addresses[entrant] = address
        self._rank(address, len(group) - 1, len(group))

    def leave(self, entrant: EntrantT) -> None:
        """Remove `entrant`, if it is admitted."""
        address = self._addresses.pop(entrant, None)
        if address is None:
            return
        group = self._groups[address]
        del group[entrant]
        if not group:
            del self._groups[address]
        self._rank(address, len(group) + 1, len(group))

    def touch(self, entrant: EntrantT) -> None:
        """Make `entrant` the newest of its address."""
        group = self._groups[self._addresses[entrant]]
        del group[entrant]
        group[entrant] = None

    def evict(self, reason: str) -> None:
        """Cut one entrant of the address with the most. There must be an entrant."""
        group = self._groups[next(iter(self._ranks[self._largest]))]
        victim = next(reversed(group) if self.newest_first else iter(group))
        self.leave(victim)
        self.evicted += 1
        victim.cut(reason)

    def _rank(self, address: str, before: int, after: int) -> None:
        """Record that the group of `address` has grown or shrunk by one."""
        if before:
            rank = self._ranks[before]
            del rank[address]
            if not rank:
                del self._ranks[before]
        if after:
            self._ranks.setdefault(after, {})[address] = None
        if after > self._largest or self._largest not in self._ranks:
            self._largest = after


def site_of(peername: Any, listener: str) -> str:
    """Return the unit that counts as one address: a host, an IPv6 site, or a local `listener`."""
    if not isinstance(peername, tuple):
        return listener
    host = str(peername[0]).partition("%")[0]
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, IPV6_SITE), strict=False))
