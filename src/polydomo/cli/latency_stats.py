"""Statistics of latencies: percentiles, and a histogram in one line of text."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

BLOCKS = "▁▂▃▄▅▆▇█"


class LatencySummary(msgspec.Struct):
    """The statistics of one measurement. Times are in seconds."""

    requests: int
    failed: int
    elapsed: float
    rate: float
    mean: float
    p50: float
    p90: float
    p99: float
    worst: float


def summarize(latencies: Sequence[float], elapsed: float, failed: int = 0) -> LatencySummary:
    """Return the statistics of all requests that had a reply."""
    ordered = sorted(latencies)
    return LatencySummary(
        requests=len(ordered),
        failed=failed,
        elapsed=elapsed,
        rate=len(ordered) / elapsed if elapsed else 0.0,
        mean=math.fsum(ordered) / len(ordered) if ordered else 0.0,
        p50=percentile(ordered, 50),
        p90=percentile(ordered, 90),
        p99=percentile(ordered, 99),
        worst=ordered[-1] if ordered else 0.0,
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return the smallest value that `percent` of all values do not exceed (nearest rank); 0 without values."""
    if not ordered:
        return 0.0
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Return a histogram from the least to the greatest value on a logarithmic scale. Empty cells are blank."""
    positive = [value for value in values if value > 0]
    if not positive:
        return ""
    low, high = math.log(min(positive)), math.log(max(positive))
    span = high - low or 1.0
    cells = [0] * width
    for value in positive:
        cells[min(int((math.log(value) - low) / span * width), width - 1)] += 1
    most = max(cells)
    return "".join(
        BLOCKS[min(cell * len(BLOCKS) // most, len(BLOCKS) - 1)] if cell else " " for cell in cells
    ).rstrip()
