"""The workers that wait for jobs of one service, and how many of them one job wakes.

A job that nobody idle can take wakes `first` workers. If none of them has asked for it (GIVE) within `patience`, it
wakes twice as many, and so on up to `widest` at a time, with pauses that double as well: so what one job costs depends
on this rule and not on how many workers there are. Who was woken and said nothing is not woken again before everybody
else was, or it has said something.

Joined brokers (`far`) are woken when none of our own workers is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from polydomo.core.job import Job
from polydomo.core.policy import WakePolicy
from polydomo.core.ports import WakeupPort
from polydomo.core.service import Service
from polydomo.core.timers import Timer
from polydomo.dialects.wmp import messages
from polydomo.dialects.wmp.selection import RULES, Pool

if TYPE_CHECKING:
    from polydomo.core.broker import Broker
    from polydomo.dialects.wmp.broker_worker import WmpWorker

# Pauses between two rounds do not get longer, in units of `patience`.
LONGEST: Final = 8

# A worker that has taken so many times as long as others was busy.
SLOW: Final = 4.0


class Wake:
    """One WAKE. `open`: it is counted on to be answered soon."""

    __slots__ = ("at", "herd", "id", "open", "worker")

    def __init__(self, id: int, herd: WakeScheduler, worker: WmpWorker, at: float, open: bool) -> None:
        self.id = id
        self.herd = herd
        self.worker = worker
        self.at = at
        self.open = open


class WakeScheduler(WakeupPort):
    """See the module's text. It belongs to a service (`Service.wakeup`)."""

    def __init__(self, broker: Broker, service: Service, random: Callable[[], float]) -> None:
        rule = service.policy.waking
        pool = RULES[rule.rule]
        self.broker = broker
        self.service = service
        self.near = pool(random)
        self.far = pool(random)
        self.members: dict[WmpWorker, None] = {}  # everybody who offers the service over WMP
        self.names: dict[bytes, WmpWorker] = {}  # of two with one name the newer
        self.silent: dict[WmpWorker, None] = {}  # woken in vain, and not heard since
        self.open: dict[Wake, None] = {}  # oldest first
        self.width = rule.first
        self.pause = rule.patience
        self.barred = False  # what waits here is other brokers', and not for others
        self.woken = 0  # WAKEs so far
        self.widened = 0  # rounds in which more than the first were woken
        self._answers = rule.patience / SLOW  # how long a worker takes to answer, about
        self.call_tail = messages.wake_tail(service.name)
        self._timer = WidenTimer(self)
        self._doubted: dict[Wake, None] = {}  # open ones that may have come to a busy worker, oldest first
        self._doubts = BusyCheckTimer(self)

    @property
    def rule(self) -> WakePolicy:
        """As it is now: settings may be read again."""
        return self.service.policy.waking

    # The core's side

    def wanted(self, service: Service, job: Job) -> None:
        """A job waits."""
        extra = job.extra
        if not job.client.relay:
            self.barred = False
        if extra is not None and (extra.worker or extra.resource):
            worker = self.names.get(extra.worker)
            if worker is not None and worker.may_be_woken():
                self.call(worker)
        elif len(self.open) < service.waiting * self.rule.first and not service.paused:
            self._wake(self.rule.first)

    def ready(self) -> int:
        return self.near.size() + self.far.size()

    # The workers' side

    def join(self, worker: WmpWorker) -> None:
        """It offers this service."""
        self.members[worker] = None
        self.names[worker.core.name] = worker

    def leave(self, worker: WmpWorker) -> None:
        """No longer."""
        self.members.pop(worker, None)
        if self.names.get(worker.core.name) is worker:
            del self.names[worker.core.name]
        self.asleep(worker)
        self.silent.pop(worker, None)
        for wake in worker.wakes.values():
            if wake.herd is self:
                self.missed(wake)
        if not self.members:
            self.broker.timers.clear(self._timer)
            self.broker.timers.clear(self._doubts)
            self.service.wakeup = None
        elif self.service.waiting:
            # Not at once: many may be leaving, and each would be woken for the one before.
            self.broker.timers.set(self._timer, self.broker.now + self.rule.patience)

    def awake(self, worker: WmpWorker) -> None:
        """It could do something now."""
        if self.silent:
            self.silent.pop(worker, None)
        rule = self.service.policy.waking
        if not rule.labels or rule.suits(worker.labels):
            self._pool(worker).add(worker)

    def asleep(self, worker: WmpWorker) -> None:
        """It must not be woken for now."""
        self._pool(worker).remove(worker)

    def balance(self) -> None:
        """Are enough awake for what waits?"""
        service = self.service
        missing = service.waiting - len(self.open)
        if missing > 0 and not service.paused:
            self._wake(missing)

    def call(self, worker: WmpWorker) -> None:
        """There is something for this one alone."""
        self._pool(worker).remove(worker)
        self._call(worker, True)

    def answered(self, wake: Wake) -> None:
        """Somebody came: the first ones woken are enough again."""
        if wake in self.open:
            self.missed(wake)
            self._answers += (self.broker.now - wake.at - self._answers) / 8
        self.width = self.rule.first
        self.pause = self.rule.patience

    def missed(self, wake: Wake) -> None:
        """It is not counted on any more."""
        self.open.pop(wake, None)
        if self._doubted:
            self._doubted.pop(wake, None)

    def ignored(self, wake: Wake) -> bool:
        """Its worker says READY behind it. Was it too busy then, or has it not seen the WAKE yet? By how long others
        take to answer. If it was busy, it can be woken again; as long as that is in doubt it will be looked at soon."""
        until = wake.at + SLOW * self._answers
        if self.broker.now < until:
            self._doubted[wake] = None
            self.broker.timers.set(self._doubts, until)
            return False
        self.missed(wake)
        return True

    def resolve(self, now: float) -> None:
        """Whoever was in doubt and has had its time was too busy."""
        for wake in list(self._doubted):
            until = wake.at + SLOW * self._answers
            if (
                until > now
            ):  # the very number that the alarm is set to, or it could ring at this moment for ever
                self.broker.timers.set(self._doubts, until)
                break
            self.missed(wake)
            worker = wake.worker
            worker.overslept(wake)
            if worker.may_be_woken():
                self.awake(worker)
        self.balance()

    def refused(self, worker: WmpWorker) -> None:
        """There was nothing for it."""
        service = self.service
        if worker.core.relay and service.waiting and not service.paused and worker.core in service.workers:
            self.barred = True

    def look(self, now: float) -> None:
        """The time of those woken first is over: wake more, if there is still something to be done."""
        ripe = now - self.rule.patience * 0.999
        for wake in list(self.open):
            if wake.at > ripe:
                break
            self.missed(wake)
            worker = wake.worker
            worker.overslept(wake)
            if worker.last_ready > wake.at and worker.may_be_woken():
                self.awake(worker)  # it was busy, and is not any more
            else:
                self.silent[worker] = None
        service = self.service
        if service.waiting and not service.paused:
            self.width = min(self.width * 2, self.rule.widest)
            self.pause = min(self.pause * 2, self.rule.patience * LONGEST)
            if self._wake(max(self.width - len(self.open), 1), len(self.silent)):
                self.widened += 1
        if self.open:  # otherwise nobody is left; who is ready next is woken at once
            self.broker.timers.set(self._timer, now + self.pause)

    # Inside

    def _pool(self, worker: WmpWorker) -> Pool:
        return self.far if worker.core.relay else self.near

    def _wake(self, count: int, again: int = 0) -> int:
        """So many more, and up to `again` of those that were silent; how many there were."""
        woken = 0
        while woken < count:
            worker = self.near.pick()
            if worker is None and not self.barred:
                worker = self.far.pick()
            if worker is not None:
                self._call(worker, True)
            elif again > 0:
                again -= 1
                woken += self._again()
                continue
            else:
                break
            woken += 1
        return woken

    def _call(self, worker: WmpWorker, hopeful: bool) -> None:
        """`hopeful`: it should answer, and is counted on until its time is over."""
        now = self.broker.now
        self.woken += 1
        wake = worker.wake(self, now, hopeful)
        if hopeful:
            self.open[wake] = None
            if worker.may_be_woken():
                self._pool(worker).add(worker)
        else:
            self.silent[worker] = None
        self.broker.timers.set(self._timer, now + self.pause)

    def _again(self) -> int:
        """Everybody was woken: once more the one that has been silent for longest. 0: it cannot be woken."""
        worker = next(iter(self.silent))
        del self.silent[worker]
        if not worker.may_be_woken() or (worker.core.relay and self.barred):
            return 0
        self._call(worker, False)
        return 1


class WidenTimer(Timer):
    """Rings when the time of those woken is over."""

    def __init__(self, herd: WakeScheduler) -> None:
        super().__init__()
        self.herd = herd

    def fire(self, now: float) -> None:
        self.herd.look(now)


class BusyCheckTimer(Timer):
    """Rings when those in doubt have had their time."""

    def __init__(self, herd: WakeScheduler) -> None:
        super().__init__()
        self.herd = herd

    def fire(self, now: float) -> None:
        self.herd.resolve(now)
