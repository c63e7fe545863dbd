"""Percentiles that can be merged: a KLL sketch per group, and what is read from it.

A sketch of up to K values has them all, and is exact. Beyond that it keeps a sample whose rank error is below 1 %
however many values it has seen, and however often it was merged. So a minute's sketches make an hour's, and those a
day's, with the same bound. Percentiles are never averaged.

Values are seconds as 4-byte floats: seven digits are more than a percentile needs, and half of the bytes that
`double` or `bigint` would take in memory, in the shuffle and on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from polydomo.pipeline.tables.spec import TableColumn

if TYPE_CHECKING:
    from pyspark.sql import Column

# The bound on the rank error is 0.7 % with this (99 times of 100, for one percentile). What bench/aggregate.py sees as
# the worst of many thousand percentiles is half of that.
K: Final = 400

RANKS: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}

# The bytes of a sketch that has seen nothing: its head.
EMPTY: Final = 8

# Percentiles are in whole microseconds. What floats add behind them is noise.
_US: Final = 1e6


def merged(name: str) -> Column:
    """One sketch of many."""
    return F.kll_merge_agg_float(F.col(name), F.lit(K))


def joined(name: str) -> Column:
    """One sketch of a few: a single one stays as it is, and is not even read."""
    found = F.collect_list(name)
    return F.reduce(F.slice(found, F.lit(2), F.size(found)), F.get(found, F.lit(0)), F.kll_sketch_merge_float)


def values(name: str) -> Column:
    """All percentiles of RANKS at once, as an array; null of a sketch that has seen nothing."""
    ranks = F.array(*[F.lit(rank) for rank in RANKS.values()])
    return F.when(has_any(name), F.kll_sketch_get_quantile_float(name, ranks))


def has_any(name: str) -> Column:
    """Has it seen a value? Asked of its length: to ask itself it would have to be read."""
    return F.octet_length(name) > EMPTY


def percentile_columns(of: str, what: str) -> tuple[TableColumn, ...]:
    """Their specifications: `wait_p50` and so on."""
    return tuple(
        TableColumn(
            f"{of}_{label}", "double", f"seconds that {label[1:]} % {what} did not exceed, by the sketch"
        )
        for label in RANKS
    )


def percentiles(found: str) -> dict[str, Column]:
    """The columns of `percentile_columns` by their labels, from an array that `values` made."""
    return {
        label: F.rint(F.col(found)[place].cast("double") * _US) / F.lit(_US)
        for place, label in enumerate(RANKS)
    }
