"""Admission of HTTP connections: a bounded number, and no address can exclude another.

A connection is *busy* while its request is being answered. When the limit is reached, a new connection replaces one of
the address that has most of them. Idle connections are cut first, the least recently used before others. A busy one is
cut only if that makes the distribution fairer; a new connection that could only replace a busy one of its own address
is refused instead.
"""

from __future__ import annotations

from typing import TypeVar

from polydomo.server.admission import Admission, Entrant

EntrantT = TypeVar("EntrantT", bound=Entrant)


class ConnectionAdmission(Admission[EntrantT]):
    """Admission of connections that are busy or idle; call `admit` instead of `enter`."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._busy: set[EntrantT] = set()
        self._idle: dict[str, int] = {}  # idle connections by address; never 0

    def admit(self, entrant: EntrantT, address: str) -> bool:
        """Admit `entrant`, cutting others if the limit is reached; return False if there is no place for it."""
        while len(self) >= self.limit and len(self):
            victim = self._victim(address)
            if victim is None:
                return False
            reason = f"made room for others: no address has more than its {self._largest} of {len(self)} connections"
            self.leave(victim)
            self.evicted += 1
            victim.cut(reason)
        self.enter(entrant, address)
        return True

    def enter(self, entrant: EntrantT, address: str) -> None:
        super().enter(entrant, address)
        self._count(address, 1)

    def leave(self, entrant: EntrantT) -> None:
        self.set_idle(entrant)
        address = self._addresses.get(entrant)
        super().leave(entrant)
        if address is not None:
            self._count(address, -1)

    def set_busy(self, entrant: EntrantT) -> None:
        """Record that a request of `entrant`, if it is admitted, is being answered."""
        if entrant in self._addresses and entrant not in self._busy:
            self.touch(entrant)
            self._busy.add(entrant)
            self._count(self._addresses[entrant], -1)

    def set_idle(self, entrant: EntrantT) -> None:
        """Record that no request of `entrant` is being answered."""
        if entrant in self._busy:
            self._busy.remove(entrant)
            self._count(self._addresses[entrant], 1)

    def move(self, entrant: EntrantT, address: str) -> None:
        """Count `entrant`, if it is admitted, for another address."""
        if self._addresses.get(entrant, address) != address:
            busy = entrant in self._busy
            self.leave(entrant)
            self.enter(entrant, address)
            if busy:
                self.set_busy(entrant)

    def _victim(self, address: str) -> EntrantT | None:
        """Return the connection that makes room for a new one from `address`."""
        own = len(self._groups.get(address, ()))
        largest = address if own == self._largest else next(iter(self._ranks[self._largest]))
        group = self._groups[largest]
        if largest in self._idle:
            return next(one for one in group if one not in self._busy)
        return next(iter(group)) if self._largest > own + 1 else None

    def _count(self, address: str, change: int) -> None:
        number = self._idle.get(address, 0) + change
        if number:
            self._idle[address] = number
        else:
            del self._idle[address]
