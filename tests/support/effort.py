"""Effort of the random tests.

The suite runs the same small set of examples each time. `POLYDOMO_EFFORT=50 pytest tests/core` tries fifty
times as many, different ones each time.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

EFFORT = int(os.environ.get("POLYDOMO_EFFORT", "1"))


def examples(number: int) -> settings:
    """Return Hypothesis settings for a test that needs `number` examples to be useful."""
    return settings(
        max_examples=number * EFFORT,
        derandomize=EFFORT == 1,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
