"""Who is woken next: rules of load balancing over the workers that wait for a job of one service (WMP §Load-balancing).

A pool has the workers that could be woken now. Whatever its rule, adding, removing and picking one cost the same for
ten workers and for ten thousand.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from polydomo.dialects.wmp.broker_worker import WmpWorker

# The label by which a worker says how much of the work it wants, beside others; 1 if it does not say.
WEIGHT: Final = "weight"

# By weight, a worker is drawn again so often at most before one is taken as it comes.
DRAWS: Final = 64


def weight_of(labels: dict[str, str]) -> float:
    """Return the weight among a worker's labels; 1 if there is none, or no number above 0."""
    try:
        weight = float(labels.get(WEIGHT, "1"))
    except ValueError:
        return 1.0
    return weight if 0.0 < weight < math.inf else 1.0


@mypyc_attr(allow_interpreted_subclasses=True)
class Pool(ABC):
    """A rule. `random` gives numbers from 0 up to 1."""

    def __init__(self, random: Callable[[], float]) -> None:
        self.random = random

    @abstractmethod
    def add(self, worker: WmpWorker) -> None:
        """It could be woken from now on; nothing happens if it is in here."""

    @abstractmethod
    def remove(self, worker: WmpWorker) -> None:
        """No longer; nothing happens if it is not in here."""

    @abstractmethod
    def pick(self) -> WmpWorker | None:
        """Take out the next; None: nobody is left."""

    @abstractmethod
    def size(self) -> int:
        """How many are in here."""


@mypyc_attr(allow_interpreted_subclasses=True)
class LongestIdle(Pool):
    """Who has waited longest for a job."""

    def __init__(self, random: Callable[[], float]) -> None:
        super().__init__(random)
        self._order: OrderedDict[WmpWorker, None] = OrderedDict()

    def add(self, worker: WmpWorker) -> None:
        self._order[worker] = None

    def remove(self, worker: WmpWorker) -> None:
        self._order.pop(worker, None)

    def pick(self) -> WmpWorker | None:
        return self._order.popitem(False)[0] if self._order else None

    def size(self) -> int:
        return len(self._order)


@mypyc_attr(allow_interpreted_subclasses=True)
class Drawn(Pool):
    """Workers of whom any can be drawn at random."""

    def __init__(self, random: Callable[[], float]) -> None:
        super().__init__(random)
        self._workers: list[WmpWorker] = []
        self._index: dict[WmpWorker, int] = {}

    def add(self, worker: WmpWorker) -> None:
        if worker not in self._index:
            self._index[worker] = len(self._workers)
            self._workers.append(worker)

    def remove(self, worker: WmpWorker) -> None:
        index = self._index.pop(worker, -1)
        if index >= 0:
            last = self._workers.pop()
            if last is not worker:  # the last one gets its place
                self._workers[index] = last
                self._index[last] = index

    def size(self) -> int:
        return len(self._workers)

    def draw(self) -> WmpWorker:
        """Any of them, who stays in."""
        return self._workers[min(int(self.random() * len(self._workers)), len(self._workers) - 1)]


@mypyc_attr(allow_interpreted_subclasses=True)
class LeastLoaded(Drawn):
    """Of two that are drawn, the one with the smaller part of its slots in use: nearly as even as the least loaded of
    all, without looking at all."""

    def pick(self) -> WmpWorker | None:
        if not self._workers:
            return None
        one, other = self.draw(), self.draw()
        best = other if other.load() < one.load() else one
        self.remove(best)
        return best


@mypyc_attr(allow_interpreted_subclasses=True)
class ByWeight(Drawn):
    """Drawn with a chance in proportion to the label `weight`."""

    def __init__(self, random: Callable[[], float]) -> None:
        super().__init__(random)
        self._heaviest = 1.0

    def add(self, worker: WmpWorker) -> None:
        super().add(worker)
        self._heaviest = max(self._heaviest, worker.weight)

    def pick(self) -> WmpWorker | None:
        if not self._workers:
            return None
        for _ in range(DRAWS):
            worker = self.draw()
            if self.random() * self._heaviest < worker.weight:
                break
        self.remove(worker)
        return worker


# By name, as the configuration has them. Whoever embeds a broker can add one of his own.
RULES: Final[dict[str, Callable[[Callable[[], float]], Pool]]] = {
    "idle": LongestIdle,
    "least-loaded": LeastLoaded,
    "weighted": ByWeight,
}
