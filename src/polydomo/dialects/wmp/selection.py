"""Rules for which worker is woken next (WMP §Load-balancing).

Whatever the rule, adding, removing and picking a worker cost the same for ten workers and for ten thousand.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from polydomo.core.broker import Broker
from polydomo.core.model import Service
from polydomo.dialects.wmp.wakeup import Pool as Pool  # public here
from polydomo.dialects.wmp.wakeup import WakeableWorker, WakeScheduler

# The label with a worker's share of the work, relative to others; 1 without it.
WEIGHT: Final = "weight"

# Attempts of ByWeight to draw a worker before it takes one regardless of its weight.
DRAWS: Final = 64


def weight_of(labels: dict[str, str]) -> float:
    """Return the weight among a worker's labels; 1 if there is none, or no number above 0."""
    try:
        weight = float(labels.get(WEIGHT, "1"))
    except ValueError:
        return 1.0
    return weight if 0.0 < weight < math.inf else 1.0


@mypyc_attr(allow_interpreted_subclasses=True)
class LongestIdle(Pool):
    """The worker that has waited longest for a job."""

    def __init__(self, random: Callable[[], float]) -> None:
        super().__init__(random)
        self._order: OrderedDict[WakeableWorker, None] = OrderedDict()

    def add(self, worker: WakeableWorker) -> None:
        self._order[worker] = None

    def remove(self, worker: WakeableWorker) -> None:
        self._order.pop(worker, None)

    def pick(self) -> WakeableWorker | None:
        return self._order.popitem(False)[0] if self._order else None

    def size(self) -> int:
        return len(self._order)


@mypyc_attr(allow_interpreted_subclasses=True)
class RandomPool(Pool):
    """Base of the rules that draw workers at random."""

    def __init__(self, random: Callable[[], float]) -> None:
        super().__init__(random)
        self._workers: list[WakeableWorker] = []
        self._index: dict[WakeableWorker, int] = {}

    def add(self, worker: WakeableWorker) -> None:
        if worker not in self._index:
            self._index[worker] = len(self._workers)
            self._workers.append(worker)

    def remove(self, worker: WakeableWorker) -> None:
        index = self._index.pop(worker, -1)
        if index >= 0:
            last = self._workers.pop()
            if last is not worker:  # the last one takes its place
                self._workers[index] = last
                self._index[last] = index

    def size(self) -> int:
        return len(self._workers)

    def draw(self) -> WakeableWorker:
        """Return a random worker without removing it."""
        return self._workers[min(int(self.random() * len(self._workers)), len(self._workers) - 1)]


@mypyc_attr(allow_interpreted_subclasses=True)
class LeastLoaded(RandomPool):
    """The less loaded of two random workers: nearly as even as the least loaded of all, at constant cost."""

    def pick(self) -> WakeableWorker | None:
        if not self._workers:
            return None
        one, other = self.draw(), self.draw()
        best = other if other.load() < one.load() else one
        self.remove(best)
        return best


@mypyc_attr(allow_interpreted_subclasses=True)
class ByWeight(RandomPool):
    """A random worker, with a probability in proportion to its label `weight`."""

    def __init__(self, random: Callable[[], float]) -> None:
        super().__init__(random)
        self._heaviest = 1.0

    def add(self, worker: WakeableWorker) -> None:
        super().add(worker)
        self._heaviest = max(self._heaviest, worker.weight)

    def pick(self) -> WakeableWorker | None:
        if not self._workers:
            return None
        for _ in range(DRAWS):
            worker = self.draw()
            if self.random() * self._heaviest < worker.weight:
                break
        self.remove(worker)
        return worker


# By name, as in the configuration. A program that embeds a broker may add its own.
RULES: Final[dict[str, Callable[[Callable[[], float]], Pool]]] = {
    "idle": LongestIdle,
    "least-loaded": LeastLoaded,
    "weighted": ByWeight,
}


def scheduler_of(broker: Broker, service: Service) -> WakeScheduler:
    """Return the scheduler of a service; make one with the rule of the service's policy if it has none."""
    wakeup = service.wakeup
    if isinstance(wakeup, WakeScheduler):
        return wakeup
    rule = RULES[service.policy.waking.rule]
    scheduler = WakeScheduler(broker, service, rule(broker.random), rule(broker.random))
    service.wakeup = scheduler
    return scheduler
