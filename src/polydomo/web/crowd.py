"""The crowd of HTTP connections: as many as may be, and no address shuts out another.

A connection is *busy* while its request is being answered. When all places are taken, a newcomer gets one of the
address that has most of them. There, connections that are not busy go first, the one that was used longest ago before
others. Busy ones go only if that makes the crowd fairer; a newcomer that would gain a place only at the cost of such a
connection of its own address is refused instead.
"""

from __future__ import annotations

from typing import TypeVar

from polydomo.server.admission import Admission, Entrant

EntrantT = TypeVar("EntrantT", bound=Entrant)


class Crowd(Admission[EntrantT]):
    """Admission of connections that are busy or not; `admit` instead of `enter`."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._busy: set[EntrantT] = set()
        self._idle: dict[
            str, int
        ] = {}  # how many of an address are not busy; addresses with none are left out

    def admit(self, entrant: EntrantT, address: str) -> bool:
        """Let `entrant` in, and cut others if the crowd is full. False: there is no place for it."""
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
        self.vacate(entrant)
        address = self._addresses.get(entrant)
        super().leave(entrant)
        if address is not None:
            self._count(address, -1)

    def occupy(self, entrant: EntrantT) -> None:
        """Record that `entrant`, if it is in, is being served."""
        if entrant in self._addresses and entrant not in self._busy:
            self.touch(entrant)
            self._busy.add(entrant)
            self._count(self._addresses[entrant], -1)

    def vacate(self, entrant: EntrantT) -> None:
        """Record that `entrant` is not being served any more."""
        if entrant in self._busy:
            self._busy.remove(entrant)
            self._count(self._addresses[entrant], 1)

    def move(self, entrant: EntrantT, address: str) -> None:
        """Count `entrant`, if it is in, as one of another address."""
        if self._addresses.get(entrant, address) != address:
            busy = entrant in self._busy
            self.leave(entrant)
            self.enter(entrant, address)
            if busy:
                self.occupy(entrant)

    def _victim(self, address: str) -> EntrantT | None:
        """Return who makes room for a newcomer from `address`."""
        own = len(self._groups.get(address, ()))
        crowded = address if own == self._largest else next(iter(self._ranks[self._largest]))
        group = self._groups[crowded]
        if crowded in self._idle:
            return next(one for one in group if one not in self._busy)
        return next(iter(group)) if self._largest > own + 1 else None

    def _count(self, address: str, change: int) -> None:
        number = self._idle.get(address, 0) + change
        if number:
            self._idle[address] = number
        else:
            del self._idle[address]
