"""Anomalous days of a service: too many or too few jobs, too many errors, too slow.

The baseline of a day is the median of the same weekday, if there are at least SAME others of it, else of the working
days or of the weekends, else of all other days. The spread is the median of the distances from the baseline (MAD, times
1.4826, which makes it the standard deviation of a normal distribution). A day is an anomaly if it is THRESHOLD spreads
away and the difference is large enough to matter. Medians are used so that anomalies do not distort their own baseline:
up to half of the days may be anomalous.

Jobs and latencies are compared as ratios (logarithms): twice as much is as far away as half. Error counts are small on
a good day and vary by chance: the square roots of the observed and the expected number are compared (Anscombe
transform), where chance alone is a spread of one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Final, Literal, NamedTuple

import numpy as np

THRESHOLD: Final = 5.0
SAME: Final = 3  # minimum number of other days of the same weekday
FEWEST: Final = 4  # minimum number of other days of any kind

What = Literal["jobs", "errors", "p95"]

# Minimum differences: the ratio to the baseline (or its inverse), and the number of additional errors.
RATIO: Final = 1.5
ERRORS: Final = 10

# Lower bound of the spread: ten percent, and for errors the spread of chance.
_FLOOR: Final[dict[What, float]] = {"jobs": 0.1, "errors": 1.0, "p95": 0.1}


class Day(NamedTuple):
    """A service on one day. `p95`: of the time from submission to the end; None: no job was finished. `whole`: the rows
    cover the entire day, so its jobs may be counted."""

    service: str
    day: date
    jobs: int
    errors: int
    p95: float | None
    whole: bool = True


@dataclass(frozen=True)
class Anomaly:
    """A `value` that differs from the `usual` one: jobs, share of errors, or seconds."""

    service: str
    day: date
    what: What
    value: float
    usual: float
    score: float  # distance in spreads; negative: below


def anomalies(days: Iterable[Day], threshold: float = THRESHOLD) -> list[Anomaly]:
    """Return the anomalous days, the worst first."""
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
    """Return the number of jobs, the share of errors, or seconds; None if unknown."""
    if what == "jobs":
        return float(day.jobs) if day.whole else None
    if what == "errors":
        return day.errors / day.jobs if day.jobs else None
    return day.p95


def _usual(index: int, days: list[Day], values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Return the median of comparable other days."""
    weekday = days[index].day.weekday()
    others = [number for number in range(len(days)) if number != index]
    same = [number for number in others if days[number].day.weekday() == weekday]
    alike = [number for number in others if (days[number].day.weekday() >= 5) == (weekday >= 5)]
    chosen = same if len(same) >= SAME else alike if len(alike) >= FEWEST else others
    return float(np.median(values[chosen]))


def _matters(what: What, day: Day, value: float, usual: float) -> bool:
    if what == "jobs":
        return not 1 / RATIO < (value + 1) / (usual + 1) < RATIO
    # Fewer errors and shorter times are not reported.
    if what == "errors":
        return value > RATIO * usual and day.errors - usual * day.jobs >= ERRORS
    return value > RATIO * usual
