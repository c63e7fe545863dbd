"""The services a broker knows: their names, their settings, when they come and go.

A service exists while something uses it: workers, jobs of any kind. Clients may name services that nobody offers, so
names are bounded in length and number, and a service that nothing uses any more is forgotten.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from polydomo.core.counts import Counts, PastCounts
from polydomo.core.policy import BrokerLimits, Policy
from polydomo.core.queue import FairQueue
from polydomo.core.service import Service
from polydomo.core.timers import TimerHeap

if TYPE_CHECKING:
    from polydomo.core.job import Job
    from polydomo.core.worker import Worker

# Names below these belong to the broker itself.
RESERVED: Final = (b"mmi.", b"sid.", b"fss.")

# RFC 18 calls a service name "a printable string", DCP lets it "contain any character"; neither bounds it.
SERVICE_NAME_MAX: Final = 255


def is_question(job: Job) -> bool:
    """Was it asked of the broker itself? Then it is no job. A job stays one wherever it is passed on to."""
    return job.service.internal if not job.hops else job.asked.startswith(RESERVED)


class Registry(ABC):
    """The part of the broker that knows services."""

    def __init__(self, bounds: BrokerLimits, policy: Policy) -> None:
        self.now = 0.0  # set by the owner before each call
        self.bounds = bounds
        self.default_policy = policy
        self.policies: dict[bytes, Policy] = {}
        self.timers = TimerHeap()
        self.services: dict[bytes, Service] = {}
        self.past = PastCounts()
        self.fallback: Worker | None = None  # answers reserved names that have no service

    @abstractmethod
    def expire_queue(self, line: FairQueue) -> None:
        """Its alarm rang: jobs may have waited too long."""

    def policy_of(self, name: bytes) -> Policy:
        """A service's own policy, that of the longest configured prefix ending in `*`, or the default."""
        exact = self.policies.get(name)
        if exact is not None:
            return exact
        best: Policy | None = None
        length = -1
        for pattern, policy in self.policies.items():
            if pattern.endswith(b"*") and name.startswith(pattern[:-1]) and len(pattern) > length:
                best = policy
                length = len(pattern)
        return best or self.default_policy

    def keep_service(self, service: Service) -> None:
        """A job needs it: it is known under its name from now on. Not what the fallback stands in for: that has a
        worker, so it would be known for ever."""
        if self.fallback is None or self.fallback not in service.workers:
            known = self.services.setdefault(service.name, service)
            if known is service and service.name in self.past.named:  # it was forgotten in between
                service.counts.add(self.past.take(service.name))

    def _open(self, name: bytes) -> Service:
        """A service nobody has named before. It is kept (see `_may_open`, `register`) only if something uses it.
        Of a name that is too long no more is kept than shows that it is: refused jobs are remembered too."""
        name = name[: SERVICE_NAME_MAX + 1]
        internal = name.startswith(RESERVED)
        service = Service(self, name, self.policy_of(name), self.past.take(name), internal)
        if self.fallback is not None and internal and self._good_name(name):
            service.workers[self.fallback] = None
            service.idle[self.fallback] = None
        return service

    def _may_open(self, service: Service) -> bool:
        """May jobs wait for this service, which has no workers?"""
        if not self._good_name(service.name):
            return False
        if service.name not in self.services:
            if len(self.services) >= self.bounds.services:
                return False
            self.services[service.name] = service
        return True

    def _good_name(self, name: bytes) -> bool:
        return 0 < len(name) <= SERVICE_NAME_MAX

    def _sweep(self, service: Service) -> None:
        """Forget a service that nothing uses any more, or the names clients make up would be kept for ever."""
        if service.unused():
            if self.services.get(service.name) is service:
                del self.services[service.name]
            self._retire(service)
            self.timers.clear(service)

    def _retire(self, service: Service) -> None:
        """Keep the counts of a service that is not known (any more)."""
        successor = self.services.get(service.name)
        if successor is None:
            counts, service.counts = (
                service.counts,
                Counts(),
            )  # a job that still refers to it begins again at 0
            self.past.put(service.name, counts)
        elif successor is not service:
            successor.counts.add(service.counts)
