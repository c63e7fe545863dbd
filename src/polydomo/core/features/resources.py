"""Resources: what workers manage, which worker has one now, and the jobs that wait for its holder.

A worker declares the resources it has, or the broker shares a service's resources out among its workers
(`core.rendezvous`). A job for a resource waits for its holder; when the resource moves, so do the jobs that wait for
it.
"""

from __future__ import annotations

from typing import Final

from polydomo.core.failure import Failure
from polydomo.core.features.feature import Feature
from polydomo.core.model import Service, Worker
from polydomo.core.rendezvous import RendezvousHash
from polydomo.core.states import WAITING
from polydomo.core.timers import CallTimer
from polydomo.core.tracked_job import TrackedJob
from polydomo.core.tracking import Tracking

# Comparisons in one step of sharing out: about ten milliseconds.
BUDGET: Final = 50_000

# Seconds between two such steps.
PAUSE: Final = 0.001


class Resources(Feature):
    """The resources of all services. What is shared out stays so while its service comes and goes."""

    def __init__(self, tracking: Tracking) -> None:
        self.declared: dict[bytes, dict[bytes, dict[Worker, None]]] = {}  # service → resource → its holders
        self.shares: dict[bytes, RendezvousHash] = {}  # by service
        self._wanted: dict[tuple[bytes, bytes], dict[TrackedJob, None]] = {}  # by service and resource
        self._settling: dict[bytes, CallTimer] = {}
        self._tracking = tracking

    def pin(self, job: TrackedJob) -> bytes:
        self._wanted.setdefault((job.service.name, job.resource), {})[job] = None
        holder = self.pick(job.service, job.resource)
        # Without a holder: no worker's name begins with a zero byte and goes on as a resource's.
        return b"\0resource:" + job.resource if holder is None else holder.name

    def on_dispatch(self, job: TrackedJob) -> None:
        if job.resource:
            self._forget(job)

    def on_end(self, job: TrackedJob, body: bytes | None, failure: Failure | None) -> None:
        if job.resource:
            self._forget(job)

    def on_register(self, worker: Worker, service: Service) -> None:
        if worker.resources:
            self._add(worker, service)
        shares = self.shares.get(service.name)
        if shares is not None:
            shares.join(worker.name)
            self._settle_soon(service.name)

    def on_withdraw(self, worker: Worker, service: Service) -> None:
        if worker.resources:
            self._withdraw(worker, service)
        shares = self.shares.get(service.name)
        if shares is not None and worker.name not in service.names:  # another worker of its name may offer it
            shares.leave(worker.name)
            self._settle_soon(service.name)

    def declare(self, worker: Worker, names: list[bytes]) -> None:
        """Note that a worker has these resources and no others."""
        for service in worker.services:
            self._withdraw(worker, service)
        worker.resources = list(dict.fromkeys(names))
        for service in worker.services:
            self._add(worker, service)

    def share_out(self, name: bytes, resources: list[bytes]) -> None:
        """Share resources out among the workers of a service."""
        shares = self.shares.get(name)
        if shares is None:
            shares = self.shares[name] = RendezvousHash()
            service = self._tracking.services.get(name)
            if service is not None:
                for worker in service.names:
                    shares.join(worker)
        shares.set_resources(resources)
        self._settle_soon(name)

    def holders(self, name: bytes, resource: bytes) -> list[Worker]:
        """Return the workers of a service that have a resource now."""
        found = list(self.declared.get(name, {}).get(resource, {}))
        shares = self.shares.get(name)
        service = self._tracking.services.get(name)
        if shares is not None and service is not None:
            owner = shares.owner(resource)
            if owner is not None and owner in service.names and service.names[owner] not in found:
                found.append(service.names[owner])
        return found

    def pick(self, service: Service, resource: bytes) -> Worker | None:
        """Return the holder of a resource that has the least to do."""
        best: Worker | None = None
        for worker in self.holders(service.name, resource):
            if best is None or worker.free() > best.free():
                best = worker
        return best

    def of(self, worker: Worker) -> list[bytes]:
        """Return the resources that a worker has now."""
        found = dict.fromkeys(worker.resources)
        for service in worker.services:
            shares = self.shares.get(service.name)
            if shares is not None:
                found.update(dict.fromkeys(shares.of(worker.name)))
        return list(found)

    def _settle(self, name: bytes) -> None:
        """Do one step of sharing out, and tell the workers concerned."""
        shares = self.shares[name]
        done = shares.settle(BUDGET)
        changed: dict[bytes, None] = {}
        for resource, old, new in shares.drain():
            for owner in (old, new):
                if owner is not None:
                    changed[owner] = None
            self._moved(name, resource)
        service = self._tracking.services.get(name)
        if service is not None:
            for owner in changed:
                worker = service.names.get(owner)
                if worker is not None:
                    worker.port.share(shares.of(owner))
        if not done:
            self._tracking.timers.set(self._settling[name], self._tracking.clock.now + PAUSE)

    def _settle_soon(self, name: bytes) -> None:
        timer = self._settling.get(name)
        if timer is None:
            timer = self._settling[name] = CallTimer(self._settle, name)
        self._tracking.timers.set(timer, self._tracking.clock.now)

    def _moved(self, name: bytes, resource: bytes) -> None:
        """Queue the jobs that wait for a resource for its new holder."""
        if name not in self._tracking.services:
            return
        for job in self._wanted.pop((name, resource), {}):
            if job.state == WAITING and job.queue is not None:
                self._tracking.scheduler.unqueue(job)
                self._tracking.scheduler.place(job, False)

    def _forget(self, job: TrackedJob) -> None:
        waiting = self._wanted.get((job.service.name, job.resource))
        if waiting is not None:
            waiting.pop(job, None)
            if not waiting:
                del self._wanted[job.service.name, job.resource]

    def _add(self, worker: Worker, service: Service) -> None:
        declared = self.declared.setdefault(service.name, {})
        for resource in worker.resources:
            declared.setdefault(resource, {})[worker] = None
        for resource in worker.resources:
            self._moved(service.name, resource)

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
            self._moved(service.name, resource)
