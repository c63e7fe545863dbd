"""Workers: they come and offer services, show that they are alive, and leave or are lost.

A name belongs to one worker at a time, at all services and in all dialects, because jobs can be targeted at it. Another
worker that claims it is refused while the first one lives, and for ever if it acts for another principal. Several
connections of one peer may share its name (`Worker.instance`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from polydomo.core import failure as reasons
from polydomo.core.failure import Failure
from polydomo.core.model import Service, Worker, WorkerPort
from polydomo.core.names import printable
from polydomo.core.policy import Heartbeat
from polydomo.core.principals import SERVE, Principal
from polydomo.core.scheduler import OVERRUN, WORKER_LOST
from polydomo.core.tracking import Tracking

# Reason given to a second worker with the name of another. The SDK looks for this text.
NAME_TAKEN: Final = "name-taken: another worker has this name"

# Why a worker had to leave.
REPLACED: Final = "another connection has this name now"
# Begins the reason of which a worker that is denied its service is told; the SDK looks for it.
DENIED_WORKER: Final = f"{reasons.DENIED}: "


class Workers:
    """All workers of a broker."""

    def __init__(self, tracking: Tracking) -> None:
        self.known: dict[Worker, None] = {}
        self._named: dict[bytes, dict[Worker, None]] = {}  # by name; without the broker's own
        self._clock = tracking.clock
        self._timers = tracking.timers
        self._services = tracking.services
        self._accounting = tracking.accounting
        self._scheduler = tracking.scheduler
        self._principals = tracking.principals
        self._tracking = tracking

    def __iter__(self) -> Iterator[Worker]:
        return iter(self.known)

    def __len__(self) -> int:
        return len(self.known)

    def __contains__(self, worker: Worker) -> bool:
        return worker in self.known

    def create(
        self, name: bytes, dialect: str, port: WorkerPort, heartbeat: Heartbeat, principal: Principal
    ) -> Worker:
        """Return a worker that may register."""
        return Worker(name, dialect, port, principal, heartbeat, self._clock.now, self.check)

    def may_register(self, worker: Worker, name: bytes) -> bool:
        """Return whether `worker` may offer the service `name`."""
        return worker.internal or (
            self._services.may_add(name)
            and self.rival(worker) is None
            and self._principals.may(worker.principal, SERVE, name, worker.name)
        )

    def has_name(self, name: bytes) -> bool:
        """Return whether a worker has this name."""
        return name in self._named

    def rival(self, worker: Worker) -> Worker | None:
        """Return the worker that keeps `worker` from its name: one of another principal, or one that is alive.

        A worker whose name was made up is given another one instead.
        """
        if worker.anonymous:
            return None
        for other in self._rivals(worker):
            if other.principal.name != worker.principal.name or other.port.is_alive():
                return other
        return None

    def why_refused(self, worker: Worker, name: bytes) -> str:
        """Return why `worker` may not offer a service: its name is another's, it is denied, or nobody may."""
        if self.rival(worker) is not None:
            return NAME_TAKEN
        if not self._services.may_add(name) or self._principals.allows(
            worker.principal, SERVE, name, worker.name
        ):
            return "a name that workers may not register"
        return f"{DENIED_WORKER}{worker.principal.name} may not serve {printable(name)}"

    def register(self, worker: Worker, name: bytes) -> bool:
        """Let `worker` offer the service `name`, and give it what waits there. False: it may not."""
        if not self.may_register(worker, name):
            return False
        if worker not in self.known and not worker.internal:
            self._take_name(worker)
        service = self._services.find(name)
        self._services.add(service)
        if worker in service.workers:
            worker.revoked.clear()  # registering again is a fresh start
            self._scheduler.offer(worker)
            return True
        if worker not in self.known:
            self.known[worker] = None
            worker.principal.peers += 1
            if not worker.internal:
                self._named.setdefault(worker.name, {})[worker] = None
                self._timers.set(worker, self._clock.now + worker.heartbeat.interval)
        service.workers[worker] = None
        if not worker.relay:
            service.names[worker.name] = worker
        worker.services.append(service)
        if self._accounting.journal is not None and not worker.internal:
            self._accounting.journal.event("joined", worker, "")
        for feature in self._tracking.features.all:
            feature.on_register(worker, service)
        self._scheduler.offer(worker)
        return True

    def withdraw(self, worker: Worker, service: Service) -> None:
        """Let `worker` offer a service no longer. It stays, and may finish what it holds."""
        if worker in service.workers:
            self._part(worker, service)
            worker.services.remove(service)
            self._services.drop_if_unused(service)

    def leave(self, worker: Worker, reason: str) -> None:
        """Remove a worker and requeue its jobs. Jobs that waited for it alone fail if it cannot come back."""
        if worker not in self.known:
            return
        if self._accounting.journal is not None and not worker.internal:
            self._accounting.journal.event("left", worker, reason)
        del self.known[worker]
        worker.principal.peers -= 1
        self._drop_name(worker)
        self._timers.clear(worker)
        services = worker.services
        worker.services = []
        for service in services:
            self._part(worker, service)
        held = list(worker.running.values())
        worker.running.clear()
        worker.revoked.clear()
        self._scheduler.requeue(held, WORKER_LOST)
        for service in services:
            if worker.anonymous:
                for job in self._scheduler.pinned_to(service, worker.name):
                    self._tracking.cancel(job, Failure(reasons.WORKER_GONE, "the worker it was for is gone"))
            self._services.drop_if_unused(service)

    def dismiss_denied(self) -> None:
        """Remove the workers that may no longer offer one of their services. They may register for the others again."""
        denied = [worker for worker in self.known if not all(self._may_still(worker))]
        for worker in denied:
            for service in worker.services:
                service.idle.pop(worker, None)  # requeued jobs must not go to a worker that leaves next
        for worker in denied:
            reason = f"{DENIED_WORKER}{worker.principal.name} may not serve this any more"
            worker.port.dismiss(reason)
            self.leave(worker, reason)

    def seen(self, worker: Worker) -> None:
        """Note a sign of life that is no reply.

        One that comes while the worker has held a job for more than an interval proves that it beats while busy (an
        earlier one may have crossed the job on its way).
        """
        now = self._clock.now
        worker.last_seen = now
        worker.beats_seen += 1
        if worker.running and now - worker.busy_since() > worker.heartbeat.interval:
            worker.beats_busy = True

    def set_reading_paused(self, worker: Worker, paused: bool) -> None:
        """Note whether the worker's connection is being read. Its silence counts from when it is read again."""
        worker.reading_paused = paused
        worker.last_seen = self._clock.now

    def ask_for_more(self, worker: Worker, bound: int) -> None:
        """Let `worker` hold one more job at once, up to `bound` in all."""
        if worker.credit < bound and worker.credit == len(worker.running):
            worker.credit += 1
            self._scheduler.offer(worker)

    def set_credit(self, worker: Worker, credit: int) -> None:
        """Let `worker` hold so many jobs at once. With fewer than it holds it gets no more for now."""
        worker.base_credit = worker.credit = credit
        if worker.free() > 0:
            self._scheduler.offer(worker)
        else:
            self._scheduler.set_busy(worker)

    def check(self, worker: Worker) -> None:
        """Look for jobs that ran too long, overdue signs of life, and a heartbeat to send."""
        now = self._clock.now
        heartbeat = worker.heartbeat
        overrun = [job for job in worker.running.values() if job.attempt_deadline <= now]
        if overrun:
            for job in overrun:
                del worker.running[job.token]
                worker.revoked[job.token] = now
            worker.last_seen = now  # it was allowed to be silent until now
            self._scheduler.set_busy(worker)
            self._scheduler.requeue(overrun, OVERRUN)
        silent_until = worker.silent_until()
        if silent_until <= now and not worker.reading_paused:
            worker.port.dismiss("expired")
            if self._accounting.journal is not None:
                self._accounting.journal.event("expired", worker, "no sign of life")
            self.leave(worker, "expired")
            return
        sent = worker.last_beat if worker.steady else worker.last_sent
        if sent + heartbeat.interval <= now:
            worker.port.heartbeat()
            worker.beats_sent += 1
            worker.last_sent = worker.last_beat = sent = now
        due = sent + heartbeat.interval
        if now < silent_until < due:
            due = silent_until
        for job in worker.running.values():
            due = min(due, job.attempt_deadline)
        self._timers.set(worker, due)

    def _rivals(self, worker: Worker) -> list[Worker]:
        """Return the other peers that have the name of `worker`."""
        namesakes = self._named.get(worker.name)
        if not namesakes or worker in namesakes:
            return []
        return [
            other
            for other in namesakes
            if not worker.instance
            or other.instance != worker.instance
            or other.principal.name != worker.principal.name
        ]

    def _take_name(self, worker: Worker) -> None:
        """Remove the workers that had the name and are gone; give a worker whose name was made up a free one."""
        if worker.anonymous:
            made_up, number = worker.name, 1
            while worker.name in self._named:
                number += 1
                worker.name = b"%b-%d" % (made_up, number)
            return
        for other in self._rivals(worker):
            other.port.dismiss(REPLACED)
            self.leave(other, REPLACED)

    def _drop_name(self, worker: Worker) -> None:
        namesakes = self._named.get(worker.name)
        if namesakes is not None:
            namesakes.pop(worker, None)
            if not namesakes:
                del self._named[worker.name]

    def _may_still(self, worker: Worker) -> list[bool]:
        """Return for each service of a worker whether the worker may offer it."""
        return [
            worker.internal or self._principals.may(worker.principal, SERVE, service.name, worker.name)
            for service in worker.services
        ]

    def _part(self, worker: Worker, service: Service) -> None:
        del service.workers[worker]
        service.idle.pop(worker, None)
        if service.names.get(worker.name) is worker:
            del service.names[worker.name]
        for feature in self._tracking.features.all:
            feature.on_withdraw(worker, service)
