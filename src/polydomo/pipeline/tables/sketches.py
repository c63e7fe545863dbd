"""Mergeable percentiles: a KLL sketch per group, and the percentiles read from it.

A sketch of up to K values stores them all and is exact. Beyond that it keeps a sample whose rank error is below 1 %
regardless of the number of values and merges. So sketches of minutes are merged to hours and days with the same bound.
Percentiles are never averaged.

Values are seconds as 4-byte floats: seven digits are enough for a percentile, at half of the bytes of `double` or
`bigint` in memory, in the shuffle and on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from polydomo.pipeline.tables.spec import TableColumn

if TYPE_CHECKING:
    from pyspark.sql import Column

# With this k the rank error is bounded by 0.7 % (99 times of 100, for one percentile). The worst of many thousand
# percentiles in bench/aggregate.py is half of that.
K: Final = 400

RANKS: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}

# Size in bytes of an empty sketch: its header.
EMPTY: Final = 8

# Percentiles are rounded to whole microseconds. The remaining digits of a float are noise.
_US: Final = 1e6


def merged(name: str) -> Column:
    """Merge any number of sketches."""
    return F.kll_merge_agg_float(F.col(name), F.lit(K))


def joined(name: str) -> Column:
    """Merge a few sketches: a single one is returned unchanged, without being decoded."""
    found = F.collect_list(name)
    return F.reduce(F.slice(found, F.lit(2), F.size(found)), F.get(found, F.lit(0)), F.kll_sketch_merge_float)


def values(name: str) -> Column:
    """Return the percentiles of RANKS as an array; null for an empty sketch."""
    ranks = F.array(*[F.lit(rank) for rank in RANKS.values()])
    return F.when(has_any(name), F.kll_sketch_get_quantile_float(name, ranks))


def has_any(name: str) -> Column:
    """Return whether a sketch has values, by its length, without decoding it."""
    return F.octet_length(name) > EMPTY


def percentile_columns(of: str, what: str) -> tuple[TableColumn, ...]:
    """Return the specs of percentile columns: `wait_p50` and so on."""
    return tuple(
        TableColumn(
            f"{of}_{label}", "double", f"seconds that {label[1:]} % {what} did not exceed, by the sketch"
        )
        for label in RANKS
    )


def percentiles(found: str) -> dict[str, Column]:
    """Return the columns of `percentile_columns` by label, from an array computed by `values`."""
    return {
        label: F.rint(F.col(found)[place].cast("double") * _US) / F.lit(_US)
        for place, label in enumerate(RANKS)
    }
