"""Tests of anomalous days."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np
import pytest

from polydomo.pipeline.anomalies import Anomaly, Day, anomalies

MONDAY = date(2026, 1, 5)


def weeks(number: int = 4, service: str = "s", seed: int = 0) -> list[Day]:
    """Return days of `number` weeks: busy working days, quiet weekends, random variation."""
    random = np.random.RandomState(seed)
    found = []
    for index in range(7 * number):
        jobs = int((10_000 if index % 7 < 5 else 2_000) * random.lognormal(0, 0.05))
        found.append(
            Day(
                service,
                MONDAY + timedelta(days=index),
                jobs,
                random.poisson(jobs * 0.002),
                random.lognormal(0, 0.08),
            )
        )
    return found


def seen(days: list[Day]) -> set[tuple[str, int]]:
    return {(found.what, (found.day - MONDAY).days) for found in anomalies(days)}


@pytest.mark.parametrize("seed", range(20))
def test_usual_weeks_have_none(seed: int) -> None:
    """Neither weekends nor random variation are anomalies."""
    assert anomalies(weeks(seed=seed)) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"jobs": 2_000}, "jobs"),  # usual on a Sunday, but this is a Wednesday
        ({"jobs": 30_000}, "jobs"),
        ({"errors": 300}, "errors"),
        ({"p95": 4.0}, "p95"),
    ],
)
def test_one_day_that_is_otherwise(change: dict[str, float], expected: str) -> None:
    days = weeks()
    days[9] = days[9]._replace(**change)
    assert seen(days) == {(expected, 9)}


def test_a_busy_sunday_is_one_though_a_monday_would_not_be() -> None:
    days = weeks()
    days[13] = days[13]._replace(jobs=10_000)
    assert seen(days) == {("jobs", 13)}


def test_what_is_better_than_usual_is_none() -> None:
    days = weeks()
    days[8] = days[8]._replace(errors=0, p95=0.01)
    assert seen(days) == set()


def test_a_few_errors_on_a_calm_day_are_chance() -> None:
    days = [day._replace(jobs=100, errors=0) for day in weeks()]
    days[5] = days[5]._replace(errors=9)
    assert seen(days) == set()
    days[5] = days[5]._replace(errors=30)
    assert seen(days) == {("errors", 5)}


def test_anomalies_do_not_hide_each_other() -> None:
    days = weeks()
    for index in (2, 3, 11, 19):
        days[index] = days[index]._replace(errors=1000)
    assert seen(days) == {("errors", index) for index in (2, 3, 11, 19)}


def test_half_a_day_is_not_a_calm_one() -> None:
    days = weeks()
    days[0] = days[0]._replace(jobs=3_000, errors=6, whole=False)
    assert seen(days) == set()


def test_little_is_known_in_the_first_days() -> None:
    assert (
        anomalies([day._replace(jobs=1 + 10_000 * (index == 2)) for index, day in enumerate(weeks()[:4])])
        == []
    )


def test_days_without_anything_that_ended() -> None:
    assert anomalies([day._replace(jobs=0, errors=0, p95=None) for day in weeks()]) == []


def test_the_worst_is_first_and_says_what_was_usual() -> None:
    days = weeks(service="a") + weeks(service="b", seed=1)
    days[10] = days[10]._replace(p95=3.0)
    days[40] = days[40]._replace(p95=30.0)
    first, second = anomalies(days)
    assert (first.service, second.service) == ("b", "a")
    assert isinstance(first, Anomaly)
    assert first.value == 30.0
    assert first.usual == pytest.approx(1.0, rel=0.2)
    assert first.score > second.score >= 5
