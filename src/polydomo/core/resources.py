"""Resources: what workers manage, and which of them has one now.

A worker declares the resources it has, or the broker shares a service's resources out among its workers
(`core.rendezvous`). A job for a resource waits for its holder; when the resource moves, so do the jobs that wait for
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polydomo.core.job import WAITING
from polydomo.core.rendezvous import RendezvousHash
from polydomo.core.timers import Timer

if TYPE_CHECKING:
    from polydomo.core.broker import Broker
    from polydomo.core.service import Service
    from polydomo.core.worker import Worker

# Comparisons of one look at shares that have to be worked out anew: about ten milliseconds.
BUDGET: Final = 50_000


class Resources:
    """Belongs to one broker. What is shared out stays so while its service comes and goes."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.declared: dict[bytes, dict[bytes, dict[Worker, None]]] = {}  # service → resource → who has it
        self.shares: dict[bytes, RendezvousHash] = {}  # by service
        self._settling: dict[bytes, Settling] = {}

    def declare(self, worker: Worker, names: list[bytes]) -> None:
        """From now on it has these and no others."""
        for service in worker.services:
            self._withdraw(worker, service)
        worker.resources = list(dict.fromkeys(names))
        for service in worker.services:
            self._add(worker, service)

    def share_out(self, name: bytes, resources: list[bytes]) -> None:
        """The workers of this service have these between them."""
        shares = self.shares.get(name)
        if shares is None:
            shares = self.shares[name] = RendezvousHash()
            service = self.broker.services.get(name)
            if service is not None:
                for worker in service.names:
                    shares.join(worker)
        shares.set_resources(resources)
        self._settle(name)

    def joined(self, worker: Worker, service: Service) -> None:
        """It offers the service now."""
        if worker.resources:
            self._add(worker, service)
        shares = self.shares.get(service.name)
        if shares is not None:
            shares.join(worker.name)
            self._settle(service.name)

    def left(self, worker: Worker, service: Service) -> None:
        """It does not any more; another one of its name may."""
        if worker.resources:
            self._withdraw(worker, service)
        shares = self.shares.get(service.name)
        if shares is not None and worker.name not in service.names:
            shares.leave(worker.name)
            self._settle(service.name)

    def holders(self, name: bytes, resource: bytes) -> list[Worker]:
        """Who has it now."""
        found = list(self.declared.get(name, {}).get(resource, {}))
        shares = self.shares.get(name)
        service = self.broker.services.get(name)
        if shares is not None and service is not None:
            owner = shares.owner(resource)
            if owner is not None and owner in service.names and service.names[owner] not in found:
                found.append(service.names[owner])
        return found

    def pick(self, service: Service, resource: bytes) -> Worker | None:
        """The one of them that has the least to do."""
        best: Worker | None = None
        for worker in self.holders(service.name, resource):
            if best is None or worker.free() > best.free():
                best = worker
        return best

    def of(self, worker: Worker) -> list[bytes]:
        """What it has now."""
        found = dict.fromkeys(worker.resources)
        for service in worker.services:
            shares = self.shares.get(service.name)
            if shares is not None:
                found.update(dict.fromkeys(shares.of(worker.name)))
        return list(found)

    def settle(self, name: bytes) -> bool:
        """Some of the work of sharing out anew; True when there is none left."""
        shares = self.shares[name]
        done = shares.settle(BUDGET)
        changed: dict[bytes, None] = {}
        for resource, old, new in shares.drain():
            for owner in (old, new):
                if owner is not None:
                    changed[owner] = None
            self.moved(name, resource)
        service = self.broker.services.get(name)
        if service is not None:
            for owner in changed:
                worker = service.names.get(owner)
                if worker is not None:
                    worker.port.share(shares.of(owner))
        return done

    def moved(self, name: bytes, resource: bytes) -> None:
        """Somebody else has it now, or nobody: jobs that wait for it wait there."""
        service = self.broker.services.get(name)
        if service is None:
            return
        for job in service.wanted.pop(resource, {}):
            if job.state == WAITING and job.extra is not None and job.extra.line is not None:
                job.extra.line.remove(job)
                self.broker.place(job, False)

    def _add(self, worker: Worker, service: Service) -> None:
        declared = self.declared.setdefault(service.name, {})
        for resource in worker.resources:
            declared.setdefault(resource, {})[worker] = None
        for resource in worker.resources:
            self.moved(service.name, resource)

    def _withdraw(self, worker: Worker, service: Service) -> None:
        declared = self.declared.get(service.name, {})
        for resource in worker.resources:
            holders = declared.get(resource)
            if holders is not None:
                holders.pop(worker, None)
                if not holders:
                    del declared[resource]
        if not declared:
            self.declared.pop(service.name, None)
        for resource in worker.resources:
            self.moved(service.name, resource)

    def _settle(self, name: bytes) -> None:
        timer = self._settling.get(name)
        if timer is None:
            timer = self._settling[name] = Settling(self, name)
        self.broker.timers.set(timer, self.broker.now)


class Settling(Timer):
    """Shares that have to be worked out anew, a slice at a time."""

    def __init__(self, resources: Resources, name: bytes) -> None:
        super().__init__()
        self.resources = resources
        self.name = name

    def fire(self, now: float) -> None:
        if not self.resources.settle(self.name):
            self.resources.broker.timers.set(self, now + 0.001)
