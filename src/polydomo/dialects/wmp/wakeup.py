"""Which workers are told that a job of one service waits, and how many.

A job that no idle worker can take wakes `first` workers. If none of them asks for it (GIVE) within `patience`, twice as
many are woken, and so on up to `widest` at a time, with pauses that double as well: so the cost of a job depends on
this rule and not on the number of workers. A worker that did not answer a WAKE is skipped until it sends something, or
until all others have been tried.

Joined brokers (`remote`) are woken when no worker of this broker is left.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from polydomo.core.broker import Broker
from polydomo.core.model import Job, Service, WakeupPort, Worker
from polydomo.core.policy import WakePolicy
from polydomo.core.timers import CallTimer
from polydomo.core.tracked_job import TrackedJob
from polydomo.dialects.wmp import messages

# The longest pause between two rounds, in units of `patience`.
LONGEST_PAUSE: Final = 8

# A worker that takes so many times as long as others to answer a WAKE was busy.
SLOW: Final = 4.0

# Seconds for which an unanswered WAKE is remembered. A later GIVE is answered with NO.
WAKE_MEMORY: Final = 30.0


class Wake:
    """One WAKE. `open`: its answer is expected soon."""

    __slots__ = ("at", "id", "open", "scheduler", "worker")

    def __init__(
        self, id: int, scheduler: WakeScheduler, worker: WakeableWorker, at: float, open: bool
    ) -> None:
        self.id = id
        self.scheduler = scheduler
        self.worker = worker
        self.at = at
        self.open = open


class WakeableWorker:
    """Readiness of one worker: what it has room for, and the WAKEs that it has not answered.

    `send_wake` sends a WAKE with this number and the rest of its headers.
    """

    def __init__(self, core: Worker, send_wake: Callable[[int, bytes], object]) -> None:
        self.core = core
        self.labels: dict[str, str] = {}  # as the policy compares them
        self.weight = 1.0
        self.slots = 1  # in all, as far as READYs have shown
        self.ready_slots = 0  # jobs that it has room for, by its last READY and what it got since
        self.last_ready = 0.0
        self.last_wake = 0  # number of the last WAKE
        self.schedulers: list[WakeScheduler] = []
        self.wakes: dict[int, Wake] = {}  # not answered, oldest first
        self._open: dict[int, Wake] = {}  # those of `wakes` that are open
        self._send_wake = send_wake

    def can_be_woken(self) -> bool:
        """Return whether the worker has room for more jobs than it has open WAKEs."""
        return self.ready_slots > len(self._open)

    def load(self) -> float:
        """Return the fraction of slots in use."""
        return (len(self.core.running) + len(self._open)) / self.slots

    def join(self, scheduler: WakeScheduler) -> None:
        """Offer the scheduler's service."""
        self.schedulers.append(scheduler)
        scheduler.add(self)

    def withdraw(self, scheduler: WakeScheduler) -> None:
        """Stop offering the scheduler's service."""
        self.schedulers.remove(scheduler)
        scheduler.remove(self)
        for wake in list(self._open.values()):
            if wake.scheduler is scheduler:
                self._close(wake)

    def withdraw_all(self) -> None:
        """Stop offering any service."""
        schedulers = self.schedulers
        self.schedulers = []
        self.ready_slots = 0
        for scheduler in schedulers:
            scheduler.remove(self)

    def set_ready(self, slots: int, now: float) -> None:
        """Handle a READY for so many jobs."""
        self.ready_slots = slots
        self.last_ready = now
        if self._open:
            for wake in list(self._open.values()):
                if wake.scheduler.is_ignored(wake):
                    self._close(wake)
        self.update()

    def update(self) -> None:
        """Make the worker available or not, and wake workers for waiting jobs. Called after a READY or a GIVE."""
        available = self.can_be_woken()
        for scheduler in self.schedulers:
            if available:
                scheduler.make_available(self)
            else:
                scheduler.make_unavailable(self)
        for scheduler in self.schedulers if len(self.schedulers) == 1 else list(self.schedulers):
            service = scheduler.service
            if service.pinned and self.core.name in service.pinned and self.can_be_woken():
                scheduler.wake_one(self)
            if service.queue.waiting > len(scheduler.open):
                scheduler.wake_missing()

    def wake(self, scheduler: WakeScheduler, now: float, expected: bool) -> Wake:
        """Send a WAKE; `expected`: its answer is counted on."""
        self.last_wake += 1
        wake = Wake(self.last_wake, scheduler, self, now, expected)
        if self.wakes:
            self._forget_old(now)
        self.wakes[wake.id] = wake
        if expected:
            self._open[wake.id] = wake
            if self.ready_slots <= len(self._open) and len(self.schedulers) > 1:
                for other in self.schedulers:
                    other.make_unavailable(self)
        self._send_wake(wake.id, scheduler.wake_tail)
        return wake

    def answer(self, id: int) -> Wake | None:
        """Close and return the WAKE that a GIVE answers, if it is known; close older ones as missed."""
        wake = self.wakes.pop(id, None)
        if wake is None:
            return None
        self._close(wake)
        while self._open and next(iter(self._open)) < id:
            # Messages arrive in order: the worker has seen the older WAKE and had no room.
            missed = next(iter(self._open.values()))
            self._close(missed)
            missed.scheduler.close(missed)
        wake.scheduler.answered(wake)
        return wake

    def expire(self, wake: Wake) -> None:
        """Close a WAKE that was not answered in time; other services may wake the worker."""
        self._close(wake)
        if self.can_be_woken():
            for other in self.schedulers:
                if other is not wake.scheduler and self not in other.silent:
                    other.make_available(self)

    def _close(self, wake: Wake) -> None:
        wake.open = False
        self._open.pop(wake.id, None)

    def _forget_old(self, now: float) -> None:
        while self.wakes:
            wake = next(iter(self.wakes.values()))
            if wake.open or wake.at > now - WAKE_MEMORY:
                return
            del self.wakes[wake.id]


@mypyc_attr(allow_interpreted_subclasses=True)
class Pool(ABC):
    """The workers that can be woken now, in the order of a rule. `random` returns numbers from 0 up to 1."""

    def __init__(self, random: Callable[[], float]) -> None:
        self.random = random

    @abstractmethod
    def add(self, worker: WakeableWorker) -> None:
        """Add a worker, unless it is in the pool."""

    @abstractmethod
    def remove(self, worker: WakeableWorker) -> None:
        """Remove a worker, if it is in the pool."""

    @abstractmethod
    def pick(self) -> WakeableWorker | None:
        """Remove and return the next worker; None if the pool is empty."""

    @abstractmethod
    def size(self) -> int:
        """Return the number of workers in the pool."""


class WakeScheduler(WakeupPort):
    """The WMP workers of one service (`Service.wakeup`), in a pool for our own and one for joined brokers."""

    def __init__(self, broker: Broker, service: Service, local: Pool, remote: Pool) -> None:
        policy = service.policy.waking
        self.broker = broker
        self.service = service
        self.local = local
        self.remote = remote
        self.members: dict[WakeableWorker, None] = {}  # all workers that offer the service over WMP
        self.names: dict[bytes, WakeableWorker] = {}  # the newer one of two with the same name
        self.silent: dict[WakeableWorker, None] = {}  # they have not answered a WAKE and sent nothing since
        self.open: dict[Wake, None] = {}  # oldest first
        self.wake_tail = messages.wake_tail(service.name)
        self._width = policy.first
        self._pause = policy.patience
        self._remote_barred = False  # all waiting jobs came from joined brokers, and are for our own workers
        self._answer_time = policy.patience / SLOW  # moving average
        self._widen_timer = CallTimer(self._widen)
        self._doubtful: dict[Wake, None] = {}  # open ones that may have reached a busy worker, oldest first
        self._busy_timer = CallTimer(self._check_doubtful)

    @property
    def policy(self) -> WakePolicy:
        """The current policy: settings may be reloaded."""
        return self.service.policy.waking

    # WakeupPort

    def wanted(self, service: Service, job: Job) -> None:
        if not job.client.relay:
            self._remote_barred = False
        if isinstance(job, TrackedJob) and (job.pinned_worker or job.resource):
            worker = self.names.get(job.pinned_worker)
            if worker is not None and worker.can_be_woken():
                self.wake_one(worker)
        elif len(self.open) < service.queue.waiting * self.policy.first and not service.paused:
            self._wake(self.policy.first)

    def ready(self) -> int:
        return self.local.size() + self.remote.size()

    # Workers

    def add(self, worker: WakeableWorker) -> None:
        """Add a worker that offers the service."""
        self.members[worker] = None
        self.names[worker.core.name] = worker

    def remove(self, worker: WakeableWorker) -> None:
        """Remove a worker that does not offer the service any more."""
        self.members.pop(worker, None)
        if self.names.get(worker.core.name) is worker:
            del self.names[worker.core.name]
        self.make_unavailable(worker)
        self.silent.pop(worker, None)
        for wake in worker.wakes.values():
            if wake.scheduler is self:
                self.close(wake)
        if not self.members:
            self.broker.timers.clear(self._widen_timer)
            self.broker.timers.clear(self._busy_timer)
            self.service.wakeup = None
        elif self.service.queue.waiting:
            # Not at once: if many leave together, each would be woken in place of the one before.
            self.broker.timers.set(self._widen_timer, self.broker.now + self.policy.patience)

    def make_available(self, worker: WakeableWorker) -> None:
        """Put a worker that has room into its pool, if the policy's labels allow it."""
        if self.silent:
            self.silent.pop(worker, None)
        policy = self.service.policy.waking
        if not policy.labels or policy.suits(worker.labels):
            self._pool(worker).add(worker)

    def make_unavailable(self, worker: WakeableWorker) -> None:
        """Take a worker out of its pool."""
        self._pool(worker).remove(worker)

    def wake_missing(self) -> None:
        """Wake a worker for each waiting job that has no open WAKE."""
        service = self.service
        missing = service.queue.waiting - len(self.open)
        if missing > 0 and not service.paused:
            self._wake(missing)

    def wake_one(self, worker: WakeableWorker) -> None:
        """Wake this worker for a job that is addressed to it."""
        self._pool(worker).remove(worker)
        self._send(worker, True)

    def answered(self, wake: Wake) -> None:
        """Handle a GIVE: start again with waking the first few."""
        if wake in self.open:
            self.close(wake)
            self._answer_time += (self.broker.now - wake.at - self._answer_time) / 8
        self._width = self.policy.first
        self._pause = self.policy.patience

    def close(self, wake: Wake) -> None:
        """Stop expecting the answer to a WAKE."""
        self.open.pop(wake, None)
        if self._doubtful:
            self._doubtful.pop(wake, None)

    def is_ignored(self, wake: Wake) -> bool:
        """Return whether a READY after this WAKE means that the worker was too busy for it.

        Either that, or the WAKE is still on its way: judged by how long others take to answer. As long as that is in
        doubt the WAKE stays open, and is checked again soon.
        """
        until = wake.at + SLOW * self._answer_time
        if self.broker.now < until:
            self._doubtful[wake] = None
            self.broker.timers.set(self._busy_timer, until)
            return False
        self.close(wake)
        return True

    def refused(self, worker: WakeableWorker) -> None:
        """Note that a GIVE was answered with NO: a joined broker may not have any of the waiting jobs."""
        service = self.service
        if (
            worker.core.relay
            and service.queue.waiting
            and not service.paused
            and worker.core in service.workers
        ):
            self._remote_barred = True

    # Inside

    def _check_doubtful(self) -> None:
        """Close doubtful WAKEs that have had their time: their workers were busy and can be woken again."""
        for wake in list(self._doubtful):
            until = wake.at + SLOW * self._answer_time
            # Compare with the very number that the timer is set to: otherwise it could fire at this moment for ever.
            if until > self.broker.now:
                self.broker.timers.set(self._busy_timer, until)
                break
            self._expire(wake)
            if wake.worker.can_be_woken():
                self.make_available(wake.worker)
        self.wake_missing()

    def _widen(self) -> None:
        """Close WAKEs that were not answered in time, and wake more workers if jobs still wait."""
        now = self.broker.now
        oldest = now - self.policy.patience * 0.999
        for wake in list(self.open):
            if wake.at > oldest:
                break
            self._expire(wake)
            worker = wake.worker
            if worker.last_ready > wake.at and worker.can_be_woken():
                self.make_available(worker)  # it was busy, and is not any more
            else:
                self.silent[worker] = None
        service = self.service
        if service.queue.waiting and not service.paused:
            self._width = min(self._width * 2, self.policy.widest)
            self._pause = min(self._pause * 2, self.policy.patience * LONGEST_PAUSE)
            self._wake(max(self._width - len(self.open), 1), len(self.silent))
        if self.open:  # otherwise all have been tried, and the next READY wakes its worker at once
            self.broker.timers.set(self._widen_timer, now + self._pause)

    def _expire(self, wake: Wake) -> None:
        self.close(wake)
        wake.worker.expire(wake)

    def _pool(self, worker: WakeableWorker) -> Pool:
        return self.remote if worker.core.relay else self.local

    def _wake(self, count: int, retries: int = 0) -> None:
        """Wake `count` workers, `retries` silent ones among them if there are no others."""
        woken = 0
        while woken < count:
            worker = self.local.pick()
            if worker is None and not self._remote_barred:
                worker = self.remote.pick()
            if worker is not None:
                self._send(worker, True)
                woken += 1
            elif retries > 0:
                retries -= 1
                woken += self._wake_silent()
            else:
                break

    def _wake_silent(self) -> int:
        """Wake the worker that has been silent for longest; return 0 if it cannot be woken."""
        worker = next(iter(self.silent))
        del self.silent[worker]
        if not worker.can_be_woken() or (worker.core.relay and self._remote_barred):
            return 0
        self._send(worker, False)
        return 1

    def _send(self, worker: WakeableWorker, expected: bool) -> None:
        """Send a WAKE; `expected`: its answer is counted on until its time is over."""
        now = self.broker.now
        wake = worker.wake(self, now, expected)
        if expected:
            self.open[wake] = None
            if worker.can_be_woken():
                self._pool(worker).add(worker)
        else:
            self.silent[worker] = None
        self.broker.timers.set(self._widen_timer, now + self._pause)
