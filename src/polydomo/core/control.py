"""The control plane: what operators and the server do to a running broker."""

from __future__ import annotations

from polydomo.core.clients import Clients
from polydomo.core.features.cache import Cache, ServiceCache
from polydomo.core.features.resources import Resources
from polydomo.core.model import Service, Worker
from polydomo.core.policy import BrokerLimits, Policy
from polydomo.core.tracking import Tracking


class Control:
    """Settings, pauses, resources and cached results of one broker."""

    def __init__(self, tracking: Tracking, clients: Clients, cache: Cache, resources: Resources) -> None:
        self._tracking = tracking
        self._accounting = tracking.accounting
        self._scheduler = tracking.scheduler
        self._clients = clients
        self._cache = cache
        self._resources = resources

    def configure(self, limits: BrokerLimits, policy: Policy, policies: dict[bytes, Policy]) -> None:
        """Use new settings for what comes from now on. A shorter wait also applies to what waits, counted from now."""
        self._accounting.limit_memory(limits.memory)
        self._tracking.services.configure(limits, policy, policies, self._tracking.clock.now)
        for client in self._clients:
            if client.held:
                self._accounting.maybe_release(client)

    def drain(self) -> None:
        """Take no new jobs, and finish those that are here."""
        self._accounting.draining = True

    def is_closing(self) -> bool:
        """Return whether the broker stops: jobs on disk are left to the next start."""
        return self._scheduler.closing

    def pause(self, service: Service) -> None:
        """Give a service's jobs to no worker until `resume`."""
        service.paused = True
        service.idle.clear()

    def resume(self, service: Service) -> None:
        """Give a service's jobs to workers again."""
        service.paused = False
        for worker in list(service.workers):
            self._scheduler.offer(worker)
        if service.wakeup is not None:
            for job in service.queue.jobs():
                service.wakeup.wanted(service, job)

    def share_out(self, service: bytes, names: list[bytes]) -> None:
        """Share resources out among the workers of a service."""
        self._resources.share_out(service, names)

    def resources_of(self, worker: Worker) -> list[bytes]:
        """Return the resources that a worker has now."""
        return self._resources.of(worker)

    def caches(self) -> dict[bytes, ServiceCache]:
        """Return the caches of all services that have one."""
        return self._cache.services

    def cache_of(self, service: bytes) -> ServiceCache:
        """Return the cache of one service."""
        return self._cache.service(service)

    def forget_results(self, service: bytes, body: bytes | None = None) -> int:
        """Forget the cached result of a request, or all of a service. Return how many were in memory."""
        return self._cache.forget(service, body)
