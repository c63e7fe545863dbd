"""The workers of a broker: they come and offer services, show that they are there, and go or are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polydomo.core.dispatch import OVERRUN, WORKER_LOST, Dispatch
from polydomo.core.policy import BrokerLimits, Policy
from polydomo.core.registry import RESERVED
from polydomo.core.worker import Worker

if TYPE_CHECKING:
    from polydomo.core.service import Service


class Attendance(Dispatch):
    """The part of the broker that knows who is here."""

    def __init__(self, bounds: BrokerLimits, policy: Policy, first_token: int) -> None:
        super().__init__(bounds, policy, first_token)
        self.workers: dict[Worker, None] = {}

    def may_register(self, worker: Worker, name: bytes) -> bool:
        """May `worker` offer the service `name`? Not a reserved or impossible one, nor one too many."""
        if worker.internal:
            return True
        if not self._good_name(name) or name.startswith(RESERVED):
            return False
        return name in self.services or len(self.services) < self.bounds.services

    def register(self, worker: Worker, name: bytes) -> bool:
        """`worker` offers the service `name` from now on, and gets what waits there. False: it may not."""
        if not self.may_register(worker, name):
            return False
        service = self.services.get(name)
        if service is None:
            service = self._open(name)
        self.services[name] = service
        service.counts.served = True
        if worker in service.workers:
            worker.late.clear()  # registering again is a fresh start
            self._offer(worker)
            return True
        if worker not in self.workers:
            self.workers[worker] = None
            if not worker.internal:
                self.timers.set(worker, self.now + worker.beat.interval)
        service.workers[worker] = None
        if not worker.relay:
            service.names[worker.name] = worker
        worker.services.append(service)
        if self.journal is not None and not worker.internal:
            self.journal.event("joined", worker, "")
        if self.resources.shares or worker.resources:
            self.resources.joined(worker, service)
        if self.lifecycle.orphans:
            self.lifecycle.arrived(worker, service)
        if service.convening:
            self.lifecycle.gathers.someone_came(service)
        self._offer(worker)
        return True

    def withdraw(self, worker: Worker, service: Service) -> None:
        """It offers this service no longer, and stays. What it is at it may finish."""
        if worker in service.workers:
            self._part(worker, service)
            worker.services.remove(service)
            self._sweep(service)

    def leave(self, worker: Worker, reason: str) -> None:
        """It is gone: what it held goes to others."""
        if worker not in self.workers:
            return
        if self.journal is not None and not worker.internal:
            self.journal.event("left", worker, reason)
        del self.workers[worker]
        self.timers.clear(worker)
        services = worker.services
        worker.services = []
        for service in services:
            self._part(worker, service)
        held = list(worker.running.values())
        worker.running.clear()
        worker.late.clear()
        self._lost(held, WORKER_LOST)
        for service in services:
            if worker.anonymous and worker.name in service.named:
                self._fail_pinned(service, worker.name)
            self._sweep(service)

    def _part(self, worker: Worker, service: Service) -> None:
        del service.workers[worker]
        service.idle.pop(worker, None)
        if service.names.get(worker.name) is worker:
            del service.names[worker.name]
        if self.resources.shares or worker.resources:
            self.resources.left(worker, service)

    def seen(self, worker: Worker) -> None:
        """A sign of life that is no answer. One that comes while it has held a job for more than an interval proves
        that it beats while busy (an earlier one may have crossed the job on its way)."""
        worker.last_seen = self.now
        worker.beats_seen += 1
        if worker.running and self.now - worker.held_longest() > worker.beat.interval:
            worker.beats_busy = True

    def ask_for_more(self, worker: Worker, bound: int) -> None:
        """It can take one more job at once, up to `bound` in all."""
        if worker.credit < bound and worker.credit == len(worker.running):
            worker.credit += 1
            self._offer(worker)

    def set_credit(self, worker: Worker, credit: int) -> None:
        """It can hold so many jobs at once from now on; fewer than it has: it gets no more for now. For workers that
        say when they are ready for the next job."""
        worker.base_credit = worker.credit = credit
        if worker.free() > 0:
            self._offer(worker)
        else:
            self._not_idle(worker)

    def check_worker(self, worker: Worker) -> None:
        """Its alarm rang: jobs that ran too long, signs of life overdue, a heartbeat to send."""
        now = self.now
        beat = worker.beat
        overrun = [job for job in worker.running.values() if job.due <= now]
        if overrun:
            for job in overrun:
                del worker.running[job.token]
                worker.late[job.token] = now
            worker.last_seen = now  # it was allowed to be silent until now
            self._not_idle(worker)
            self._lost(overrun, OVERRUN)
        silent_until = worker.last_seen + beat.interval * worker.silence_allowed()
        if silent_until <= now and not worker.reading_paused:
            worker.port.dismiss("expired")
            if self.journal is not None:
                self.journal.event("expired", worker, "no sign of life")
            self.leave(worker, "expired")
            return
        sent = worker.last_beat if worker.steady else worker.last_sent
        if sent + beat.interval <= now:
            worker.port.beat()
            worker.beats_sent += 1
            worker.last_sent = worker.last_beat = sent = now
        wake = sent + beat.interval
        if now < silent_until < wake:
            wake = silent_until
        for job in worker.running.values():
            wake = min(wake, job.due)
        self.timers.set(worker, wake)
