"""Counts of jobs by outcome, per service.

Every job that ends is counted once, at the service it was at, under the outcome that its ledger row has; the broker's
totals are the sums. A service is forgotten when nothing uses it any more, its counts are not: the latest `REMEMBERED`
services that had a worker or a result keep theirs by name, all others share one account.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

# What is counted. The same words stand in `show_broker`, `show_services`, the REST API and /metrics; the first five are
# the outcomes in the ledger.
MEANINGS: Final = {
    "done": "jobs that ended with a result",
    "failed": "jobs that ended without a result, and not in one of the ways below",
    "cancelled": "jobs that were cancelled",
    "dead": "durable jobs whose attempts were used up: dead letters",
    "refused": "jobs that were not accepted",
    "repeated": "requests that got the result or the failure of another job with their id or key",
    "retried": "attempts that were lost and made again",
    "forwarded": "jobs that were passed on to another service, and are counted there",
}

# Services whose counts are kept by name while the service itself is not there.
REMEMBERED: Final = 1000


class Counts:
    """Jobs of one service, or of several, since the broker's start."""

    __slots__ = (*MEANINGS, "served")

    def __init__(self) -> None:
        self.done = 0
        self.failed = 0
        self.cancelled = 0
        self.dead = 0
        self.refused = 0
        self.repeated = 0  # not among the others: the job they repeat is
        self.retried = 0  # attempts, not jobs
        self.forwarded = 0  # to another service, at which they are counted
        self.served = False  # the service had a worker once

    def add(self, other: Counts) -> None:
        """Take over another's counts, which are 0 afterwards."""
        for name in MEANINGS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
            setattr(other, name, 0)
        self.served = self.served or other.served

    def show(self) -> dict[str, int]:
        """Return the counts by name."""
        return {name: getattr(self, name) for name in MEANINGS}


class PastCounts:
    """Counts of services that are not there."""

    def __init__(self, room: int = REMEMBERED) -> None:
        self.room = room
        self.named: OrderedDict[bytes, Counts] = OrderedDict()  # the service that left first comes first
        self.others = Counts()

    def take(self, name: bytes) -> Counts:
        """Return the counts of a service that comes into being, which goes on counting where it stopped."""
        return self.named.pop(name, None) or Counts()

    def put(self, name: bytes, counts: Counts) -> None:
        """Keep the counts of a service that is forgotten. Names that clients made up are not worth a place."""
        known = self.named.get(name)
        if known is not None:
            known.add(counts)
        elif counts.served or counts.done:
            self.named[name] = counts
            if len(self.named) > self.room:
                self.others.add(self.named.popitem(False)[1])
        else:
            self.others.add(counts)
