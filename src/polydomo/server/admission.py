"""Admission: a bounded crowd of connections that no single address can fill.

When the crowd is full, a newcomer still gets in: a connection of the address that has most of them is cut to make room.
So an address can only push out its own connections while it has more than anybody else. Of that address the oldest goes
first, which has had most time for its handshake; or the newest, where connections are meant to stay.

Each operation takes constant time, however many addresses there are.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

# A network that one customer gets for each site: all addresses of it are as good as one.
IPV6_SITE = 64


class Entrant(Protocol):
    """One connection. Compared by identity."""

    def cut(self, reason: str) -> None:
        """End the connection at once, and log why."""


EntrantT = TypeVar("EntrantT", bound=Entrant)


class Admission(Generic[EntrantT]):
    """The crowd, by address. `limit` may be changed at any time; the next newcomer makes it take effect.

    `newest_first` says which entrant of the most crowded address is cut.
    """

    def __init__(self, limit: int, *, newest_first: bool = False) -> None:
        self.limit = limit
        self.newest_first = newest_first
        self.evicted = 0  # since the beginning
        self._addresses: dict[EntrantT, str] = {}
        self._groups: dict[str, dict[EntrantT, None]] = {}  # each from its oldest to its newest
        self._ranks: dict[int, dict[str, None]] = {}  # addresses by the size of their group
        self._largest = 0  # size of the largest group

    def __len__(self) -> int:
        return len(self._addresses)

    def __iter__(self) -> Iterator[EntrantT]:
        return iter(self._addresses)

    def is_full_for(self, address: str) -> bool:
        """Return whether a newcomer from `address` could only take the place of another one from there."""
        return len(self) >= self.limit and len(self._groups.get(address, ())) >= self._largest

    def enter(self, entrant: EntrantT, address: str) -> None:
        """Let `entrant` in, and cut others if the crowd is full."""
        while self._addresses and len(self._addresses) >= self.limit:
            self.evict(
                f"made room for others: no address has more than its {self._largest} of {len(self)} connections"
            )
        group = self._groups.setdefault(address, {})
        group[entrant] = None
        self._addresses[entrant] = address
        self._rank(address, len(group) - 1, len(group))

    def leave(self, entrant: EntrantT) -> None:
        """Take `entrant` out. It need not be in."""
        address = self._addresses.pop(entrant, None)
        if address is None:
            return
        group = self._groups[address]
        del group[entrant]
        if not group:
            del self._groups[address]
        self._rank(address, len(group) + 1, len(group))

    def touch(self, entrant: EntrantT) -> None:
        """Make `entrant` the newest of its address: it has just been useful."""
        group = self._groups[self._addresses[entrant]]
        del group[entrant]
        group[entrant] = None

    def evict(self, reason: str) -> None:
        """Cut one entrant of the most crowded address. There must be one."""
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
    """Return what counts as one address: a host, an IPv6 network of one site, or all that use one local `listener`."""
    if not isinstance(peername, tuple):
        return listener
    host = str(peername[0]).partition("%")[0]
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, IPV6_SITE), strict=False))
