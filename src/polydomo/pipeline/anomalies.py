"""Days that were not like the others, per service: too many or too few jobs, too many errors, too slow.

What is usual for a day is the median of the same weekday, if there are at least SAME others of it, else of the working
days or of the weekends, else of all other days. How much days differ in general is the median of the distances from
that (MAD, times 1.4826, which makes it a standard deviation of normal ones). A day is an anomaly if it is THRESHOLD
times that away, and also far enough to matter. Medians, because the anomalies themselves must not move what they are
measured by: up to half of the days may be odd.

Jobs and latencies are compared as ratios (logarithms): twice as much is as far away as half. Errors are few on a good
day, and chance makes them more or fewer: they are compared by the square roots of their number and of what the usual
share of that day's jobs would have been (Anscombe), where chance alone is a spread of one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Final, Literal, NamedTuple

import numpy as np

THRESHOLD: Final = 5.0
SAME: Final = 3  # other days of the same weekday that make a median
FEWEST: Final = 4  # other days of any kind; with less nothing is usual

What = Literal["jobs", "errors", "p95"]

# What matters: so many times the usual (or as many times less), and so many errors more than usual.
RATIO: Final = 1.5
ERRORS: Final = 10

# The least spread that is believed: a tenth, and for errors chance.
_FLOOR: Final[dict[What, float]] = {"jobs": 0.1, "errors": 1.0, "p95": 0.1}


class Day(NamedTuple):
    """A service on one day. `p95` is of the time from submitted to finished; None: nothing was finished. `whole`: there
    are rows for the whole of it, so that its jobs may be counted."""

    service: str
    day: date
    jobs: int
    errors: int
    p95: float | None
    whole: bool = True


@dataclass(frozen=True)
class Anomaly:
    """`value` against what was `usual`: jobs, share of errors, or seconds."""

    service: str
    day: date
    what: What
    value: float
    usual: float
    score: float  # spreads away; negative: below


def anomalies(days: Iterable[Day], threshold: float = THRESHOLD) -> list[Anomaly]:
    """The worst first."""
    by_service: dict[str, list[Day]] = {}
    for day in days:
        by_service.setdefault(day.service, []).append(day)
    found: list[Anomaly] = []
    for some in by_service.values():
        for what in _FLOOR:
            found += _of_kind(what, some, threshold)
    return sorted(found, key=lambda anomaly: (-abs(anomaly.score), anomaly.day, anomaly.service))


def _of_kind(what: What, days: list[Day], threshold: float) -> list[Anomaly]:
    known = [day for day in days if _value(what, day) is not None]
    if len(known) <= FEWEST:
        return []
    values = np.array([_value(what, day) for day in known], dtype=np.float64)
    usual = np.array([_usual(index, known, values) for index in range(len(known))])
    if what == "errors":
        expected = usual * np.array([day.jobs for day in known])
        away = 2 * (np.sqrt([day.errors + 0.375 for day in known]) - np.sqrt(expected + 0.375))
    else:
        away = np.log(np.maximum(values, 1e-6)) - np.log(np.maximum(usual, 1e-6))
    spread = max(1.4826 * float(np.median(np.abs(away - np.median(away)))), _FLOOR[what])
    return [
        Anomaly(day.service, day.day, what, float(value), float(normal), round(float(distance) / spread, 1))
        for day, value, normal, distance in zip(known, values, usual, away, strict=True)
        if abs(distance) / spread >= threshold and _matters(what, day, float(value), float(normal))
    ]


def _value(what: What, day: Day) -> float | None:
    """Jobs, share of errors, or seconds; None: nothing can be said."""
    if what == "jobs":
        return float(day.jobs) if day.whole else None
    if what == "errors":
        return day.errors / day.jobs if day.jobs else None
    return day.p95


def _usual(index: int, days: list[Day], values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """The median of other days like this one."""
    weekday = days[index].day.weekday()
    others = [number for number in range(len(days)) if number != index]
    same = [number for number in others if days[number].day.weekday() == weekday]
    alike = [number for number in others if (days[number].day.weekday() >= 5) == (weekday >= 5)]
    chosen = same if len(same) >= SAME else alike if len(alike) >= FEWEST else others
    return float(np.median(values[chosen]))


def _matters(what: What, day: Day, value: float, usual: float) -> bool:
    if what == "jobs":
        return not 1 / RATIO < (value + 1) / (usual + 1) < RATIO
    # Fewer errors and faster answers are no reason to look.
    if what == "errors":
        return value > RATIO * usual and day.errors - usual * day.jobs >= ERRORS
    return value > RATIO * usual
