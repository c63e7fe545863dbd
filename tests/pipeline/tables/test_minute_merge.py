"""Tests of merging `service_minute` rows by numpy. The equivalence with Spark's merge is tested in test_gold.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from polydomo.pipeline.tables import kll, minute_merge, minute_parts
from polydomo.pipeline.tables.sketches import RANKS, K
from tests.pipeline.tables.silver_rows import job
from tests.pipeline.tables.test_minute_parts import table


def parts(*jobs: dict[str, Any]) -> pa.Table:
    return pa.Table.from_batches(minute_parts.parts(table(*jobs), K), minute_parts.SCHEMA)


def many(number: int, seed: int, **what: Any) -> tuple[pa.Table, np.ndarray]:
    """Return jobs that ended in one minute, and their run times."""
    ran = np.random.default_rng(seed).pareto(1.5, number) + 0.001
    return parts(*(job(0, run_s=float(took), wait_s=None, **what) for took in ran)), ran.astype(np.float32)


def rank(of: np.ndarray, at: float) -> float:
    return float((of <= at + 5e-7).mean())


def test_percentiles_of_many_come_from_the_joined_sketch() -> None:
    (one, ran), (other, later) = many(3000, 1), many(900, 2, outcome="failed")
    (row,) = minute_merge.merged(pa.concat_tables([one, other])).to_pylist()
    everything = np.concatenate((ran, later))
    assert (row["jobs"], row["done"], row["failed"], row["rate"]) == (3900, 3000, 900, 65.0)
    assert row["error_rate"] == 900 / 3900
    assert abs(row["run_s"] - everything.sum()) < 0.01
    for label, share in RANKS.items():
        assert abs(rank(everything, row[f"run_{label}"]) - share) < 0.01
    assert kll.quantiles(pa.array([row["run_sketch"]]), [1.0])[0, 0] == everything.max()


def test_a_single_row_s_sketch_is_asked_if_nobody_has_asked_it() -> None:
    rows, ran = many(3000, 3)
    assert rows["run_p50"].null_count == 1
    (row,) = minute_merge.merged(rows).to_pylist()
    assert row["run_sketch"] == rows["run_sketch"][0].as_py()
    assert abs(rank(ran, row["run_p95"]) - 0.95) < 0.003
    few = parts(job(0, run_s=0.5), job(0, run_s=1.5))
    assert minute_merge.merged(few).equals(few)


def test_each_service_and_minute_for_itself_in_their_order() -> None:
    """The rows include a service that only waited in a minute, and one without a name."""
    first = parts(job(70, wait_s=None), job(0, service="b"), job(0, service=None), job(130, wait_s=95.0))
    then = parts(job(0, service="a"), job(0, service=None), job(65, wait_s=None, bytes_in=7))
    found = minute_merge.merged(pa.concat_tables([first, then])).to_pylist()
    told = [(row["minute"].minute, row["service"], row["jobs"], row["wait_max"]) for row in found]
    minutes = [row["minute"] for row in found]
    assert minutes == sorted(minutes)
    noon = minutes[0].minute
    assert told[:3] == [(noon, "a", 1, 0.01), (noon, "b", 1, 0.01), (noon, None, 2, 0.01)]
    assert [(service, jobs, longest) for _, service, jobs, longest in told[3:]] == [
        ("echo", 2, None),
        ("echo", 1, 95.0),
    ]
    assert round(found[3]["waiting_s"]) == 55


def test_nothing_in_nothing_out() -> None:
    assert minute_merge.merged(minute_parts.SCHEMA.empty_table()).num_rows == 0
