"""A service's resources, shared out among its workers: each one to the worker that scores highest for it.

Rendezvous hashing: the score of a worker for a resource depends on their two names only, so it is the
same in any order, on any machine. A worker that leaves gives away only its own resources; one that joins takes only
those it wins.

Every resource remembers its best score and how many of the workers, in the order they joined, it was compared with.
A join is therefore one comparison per resource, and a leave compares the leaver's resources with all workers. Both
are put off: `settle` does them in slices, and `owner` at once for the one resource it is asked about.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b
from typing import Final

# A prime: products of two numbers below it, taken modulo it, are spread evenly and are never 0. Of 30 bits, so that no
# product is a number for which Python, or C, needs more than a machine word.
PRIME: Final = (1 << 30) - 35

# So many workers that have left may stand in the list of those who joined before it is worth tidying.
STALE: Final = 64


class _Resource:
    __slots__ = ("best", "candidate", "here", "name", "number", "owner", "seen")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.number: int = _number(name)
        self.here = True  # False: it was taken off the list, and may still stand in a queue
        self.seen = 0  # compared with so many of those who joined
        self.best: int = 0
        self.candidate: bytes | None = None  # the best of them
        self.owner: bytes | None = None  # the best of all when everything was compared last


class RendezvousHash:
    """The owners of one service's resources. Names of workers are unique, those of resources are made so."""

    def __init__(self) -> None:
        # Changes of owners since `drain`: resource, from, to. None as `from`: there was no owner, or it has left; as
        # `to`: there is no such resource any more.
        self.moved: list[tuple[bytes, bytes | None, bytes | None]] = []
        self.compared = 0  # comparisons so far
        self._resources: dict[bytes, _Resource] = {}
        self._entries: list[_Resource] = []  # the same, to go through in slices
        self._joined: list[bytes] = []  # workers in order of arrival…
        self._numbers: list[int] = []  # …and their numbers: 0, which never wins, if one has left
        self._left = 0  # how many of them have
        self._places: dict[bytes, int] = {}  # of the workers that are here
        self._shares: dict[bytes, dict[bytes, _Resource]] = {}
        self._orphans: deque[_Resource] = deque()  # without an owner: they come first
        self._cursor = 0  # next entry that has to meet those who joined…
        self._sweep = 0  # …and how many entries from there on have to
        self._paused: _Resource | None = None  # the budget ended in the middle of its comparisons

    def set_resources(self, names: list[bytes]) -> None:
        """Set the resources to share out. Those that were there before keep their owners."""
        wanted = dict.fromkeys(names)
        for name in [name for name in self._resources if name not in wanted]:
            entry = self._resources.pop(name)
            entry.here = False
            if entry is self._paused:
                self._paused = None
            if entry.owner is not None:
                self._shares[entry.owner].pop(name, None)
                self.moved.append((name, entry.owner, None))
        for name in wanted:
            if name not in self._resources:
                entry = _Resource(name)
                self._resources[name] = entry
                self._orphans.append(entry)
        self._entries = list(self._resources.values())
        self._cursor = 0
        if self._sweep:
            self._sweep = len(self._entries)

    def join(self, worker_name: bytes) -> None:
        """Add a worker. It has a share after `settle`."""
        if worker_name in self._places:
            return
        if self._left > len(self._places) + STALE:
            self._tidy()
        self._places[worker_name] = len(self._joined)
        self._joined.append(worker_name)
        self._numbers.append(_number(worker_name))
        self._shares[worker_name] = {}
        self._sweep = len(self._entries)

    def leave(self, worker_name: bytes) -> None:
        """Remove a worker. Its resources have no owner until `settle`, or until `owner` is asked for one."""
        place = self._places.pop(worker_name, -1)
        if place < 0:
            return
        self._numbers[place] = 0
        self._left += 1
        for entry in self._shares.pop(worker_name).values():
            entry.owner = None
            if entry.candidate == worker_name:
                _reset(entry)
                self._orphans.append(entry)
        paused = self._paused
        if paused is not None and paused.candidate == worker_name:
            _reset(paused)

    def owner(self, resource: bytes) -> bytes | None:
        """Return the owner of a resource. None: there is no such resource, or no worker."""
        entry = self._resources.get(resource)
        if entry is None:
            return None
        if entry.seen != len(self._joined) or entry.owner != entry.candidate:
            self._compare(entry, len(self._joined))
        return entry.owner

    def of(self, worker_name: bytes) -> list[bytes]:
        """Return the resources of one worker as far as is settled, sorted."""
        share = self._shares.get(worker_name)
        return [] if share is None else sorted(share)

    def settle(self, budget: int) -> bool:
        """Do what was put off, with at most `budget` comparisons. True: nothing is left to do."""
        while budget > 0:
            entry = self._next()
            if entry is None:
                return True
            behind = len(self._joined) - entry.seen
            # Looking at one that is up to date is not free either.
            budget -= max(1, self._compare(entry, min(budget, behind)))
        return not (self._sweep or self._orphans or self._paused is not None)

    def drain(self) -> list[tuple[bytes, bytes | None, bytes | None]]:
        """Return the changes of owners since the last call."""
        moved = self.moved
        self.moved = []
        return moved

    def _next(self) -> _Resource | None:
        if self._paused is not None:
            return self._paused
        while self._orphans:
            entry = self._orphans.popleft()
            if entry.here:
                return entry
        if self._sweep:
            entry = self._entries[self._cursor]
            self._sweep -= 1
            self._cursor += 1
            if self._cursor == len(self._entries):
                self._cursor = 0
            return entry
        return None

    def _compare(self, entry: _Resource, limit: int) -> int:
        """Compare it with up to `limit` of the workers that it has not met, and hand it over if it has met all.
        How many comparisons that were."""
        start = entry.seen
        end = min(len(self._numbers), start + limit)
        number = entry.number
        best = entry.best
        winner = -1
        place = start
        for other in self._numbers[start:end]:
            score = number * other % PRIME
            if score >= best and (score > best or self._wins(place, entry, winner)):
                best = score
                winner = place
            place += 1
        if winner >= 0:
            entry.best = best
            entry.candidate = self._joined[winner]
        entry.seen = end
        self.compared += end - start
        if end < len(self._joined):
            self._paused = entry
            return end - start
        if entry is self._paused:
            self._paused = None
        if entry.owner != entry.candidate:
            self._hand_over(entry)
        return end - start

    def _wins(self, place: int, entry: _Resource, winner: int) -> bool:
        """Decide between two workers with the same score by their names, not by the order in which they came.

        Not always for the greater name, or one of two workers with the same number would have nothing. A worker that
        has left scores 0, like none.
        """
        if not self._numbers[place]:
            return False
        rival = self._joined[winner] if winner >= 0 else entry.candidate
        return rival is None or (self._joined[place] > rival) == (entry.number & 1 == 1)

    def _hand_over(self, entry: _Resource) -> None:
        old = entry.owner
        new = entry.candidate
        if old is not None:
            self._shares[old].pop(entry.name, None)
        if new is not None:
            self._shares[new][entry.name] = entry
        entry.owner = new
        self.moved.append((entry.name, old, new))

    def _tidy(self) -> None:
        """Take those who have left off the list."""
        kept: list[int] = [0]  # how many before each place are still here
        for number in self._numbers:
            kept.append(kept[-1] + (1 if number else 0))
        here = [place for place, number in enumerate(self._numbers) if number]
        self._joined = [self._joined[place] for place in here]
        self._numbers = [self._numbers[place] for place in here]
        self._places = {name: place for place, name in enumerate(self._joined)}
        self._left = 0
        for entry in self._entries:
            entry.seen = kept[entry.seen]


def _reset(entry: _Resource) -> None:
    entry.seen = 0
    entry.best = 0
    entry.candidate = None


def _number(name: bytes) -> int:
    """Between 1 and PRIME - 1; the same in every process."""
    return 1 + int.from_bytes(blake2b(name, digest_size=8).digest(), "big") % (PRIME - 1)
