"""Services: their names, their policies, when they come and go.

A service exists while something uses it: workers, or jobs of any kind. Clients may name services that no worker offers,
so names are bounded in length and number, and a service that nothing uses any more is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, ValuesView
from typing import Final

from polydomo.core.counts import Counts, PastCounts
from polydomo.core.model import Job, Service, Worker
from polydomo.core.policy import BrokerLimits, Policy
from polydomo.core.queue import FairQueue
from polydomo.core.timers import TimerHeap

# Names that begin like this belong to the broker itself.
RESERVED: Final = (b"mmi.", b"sid.", b"fss.")

# RFC 18 calls a service name "a printable string", DCP lets it "contain any character"; neither bounds it.
SERVICE_NAME_MAX: Final = 255


def is_question(job: Job) -> bool:
    """Return whether a job was asked of the broker itself. Then it is in no counts; a job stays one where it is
    forwarded to."""
    return job.service.internal if not job.hops else job.requested_service.startswith(RESERVED)


def is_good_name(name: bytes) -> bool:
    """Return whether a service may have this name."""
    return 0 < len(name) <= SERVICE_NAME_MAX


class Services:
    """All services of a broker."""

    # Set by the broker: the parts that have them need the services first.
    on_expiry: Callable[[FairQueue[Job]], None]  # told of queues in which jobs may have waited too long
    applies: Callable[[Service], bool]  # says whether a feature applies to all jobs of a service

    def __init__(self, limits: BrokerLimits, policy: Policy, timers: TimerHeap) -> None:
        self.limits = limits
        self.default_policy = policy
        self.policies: dict[bytes, Policy] = {}
        self.known: dict[bytes, Service] = {}
        self.past = PastCounts()
        self.fallback: Worker | None = None  # answers reserved names that have no service
        self._timers = timers

    def get(self, name: bytes) -> Service | None:
        """Return a known service."""
        return self.known.get(name)

    def __getitem__(self, name: bytes) -> Service:
        return self.known[name]

    def __contains__(self, name: bytes) -> bool:
        return name in self.known

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.known)

    def __len__(self) -> int:
        return len(self.known)

    def values(self) -> ValuesView[Service]:
        """Return all known services."""
        return self.known.values()

    def items(self) -> ItemsView[bytes, Service]:
        """Return all services with their names."""
        return self.known.items()

    def configure(
        self, limits: BrokerLimits, policy: Policy, policies: dict[bytes, Policy], now: float
    ) -> None:
        """Use new settings. A shorter wait also applies to what waits, counted from now."""
        self.limits = limits
        self.default_policy = policy
        self.policies = policies
        for service in self.known.values():
            service.set_policy(self.policy_of(service.name))
            service.tracked = self.applies(service)
            if service.queue.waiting:
                service.queue.shorten(now + service.policy.wait)
                self._timers.set(service.queue, service.queue.next_expiry())

    def policy_of(self, name: bytes) -> Policy:
        """Return a service's own policy, that of the longest configured prefix ending in `*`, or the default."""
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

    def find(self, name: bytes) -> Service:
        """Return the service of this name, a new one if it is not known; `keep` makes it known."""
        return self.known.get(name) or self.open(name)

    def open(self, name: bytes) -> Service:
        """Return a new service. It is kept (`may_wait`, `keep`) only if something uses it.

        Of a name that is too long no more is kept than shows that it is: refused jobs are remembered, too.
        """
        name = name[: SERVICE_NAME_MAX + 1]
        internal = name.startswith(RESERVED)
        service = Service(
            name, self.policy_of(name), self.past.take(name), self._timers, self.on_expiry, internal
        )
        service.tracked = not internal and self.applies(service)
        if self.fallback is not None and internal and is_good_name(name):
            service.workers[self.fallback] = None
            service.idle[self.fallback] = None
        return service

    def keep(self, service: Service) -> None:
        """Make a service known that a job needs.

        Not one that the fallback stands in for: that has a worker, so it would be known for ever.
        """
        if self.fallback is None or self.fallback not in service.workers:
            known = self.known.setdefault(service.name, service)
            if known is service and service.name in self.past.named:  # it was forgotten in between
                service.counts.add(self.past.take(service.name))

    def add(self, service: Service) -> None:
        """Make a service known that a worker offers."""
        self.known[service.name] = service
        service.counts.served = True

    def may_add(self, name: bytes) -> bool:
        """Return whether workers may offer a service of this name: no reserved or impossible one, nor one too many."""
        if not is_good_name(name) or name.startswith(RESERVED):
            return False
        return name in self.known or len(self.known) < self.limits.services

    def may_wait(self, service: Service) -> bool:
        """Return whether jobs may wait for a service that has no workers. If so, it is known from now on."""
        if not is_good_name(service.name):
            return False
        if service.name not in self.known:
            if len(self.known) >= self.limits.services:
                return False
            self.known[service.name] = service
        return True

    def drop_if_unused(self, service: Service) -> None:
        """Forget a service that nothing uses any more, or the names that clients make up would be kept for ever."""
        if not service.is_used():
            if self.known.get(service.name) is service:
                del self.known[service.name]
            self.retire(service)
            self._timers.clear(service.queue)

    def retire(self, service: Service) -> None:
        """Keep the counts of a service that is not known (any more)."""
        successor = self.known.get(service.name)
        if successor is None:
            counts, service.counts = (
                service.counts,
                Counts(),
            )  # a job that still refers to it begins again at 0
            self.past.put(service.name, counts)
        elif successor is not service:
            successor.counts.add(service.counts)
