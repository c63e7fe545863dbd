"""Tests of sketches computed from whole groups: Spark must accept them as its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F

from polydomo.pipeline.tables import kll
from polydomo.pipeline.tables.sketches import K

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Sizes just below and above each change of the number of levels, and far beyond.
SIZES = (0, 1, 2, 3, 399, 400, 401, 1067, 1068, 2312, 2313, 4743, 4744, 30_000, 250_003)
RANKS = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99]

# An item stands for at most one in 200 values, and is the middle one of them.
BOUND = 1 / 400


def values(size: int, seed: int = 1) -> np.ndarray:
    """Return unsorted values with a heavy tail."""
    return (np.random.default_rng(seed).pareto(1.5, size) + 0.001).astype(np.float32)


def sketch(of: np.ndarray, k: int = K) -> bytes:
    return kll.sketches(np.sort(of), np.array([len(of)]), k)[0].as_py()


def joined(several: list[bytes], k: int = K) -> bytes:
    return kll.joined(pa.array(several, pa.binary()), np.array([len(several)]), k)[0].as_py()


def quantiles(of: bytes) -> list[float]:
    return kll.quantiles(pa.array([of], pa.binary()), RANKS)[0].tolist()


def rank_error(of: np.ndarray, rank: float, found: float) -> float:
    there = np.sort(of)
    below, upto = np.searchsorted(there, np.float32(found), "left"), np.searchsorted(there, found, "right")
    return max(below / len(of) - rank, rank - upto / len(of), 0.0)


@pytest.mark.spark
def test_spark_reads_them(spark: SparkSession) -> None:
    groups = [values(size) for size in SIZES]
    rows = [(size, sketch(group)) for size, group in zip(SIZES, groups, strict=True)]
    frame = spark.createDataFrame(rows, "size long, sketch binary")
    ranks = F.array(*[F.lit(rank) for rank in (0.0, *RANKS, 1.0)])
    some = F.when(F.col("size") > 0, F.kll_sketch_get_quantile_float("sketch", ranks))
    found = frame.select("size", F.kll_sketch_get_n_float("sketch").alias("n"), some.alias("values"))
    for row, group in zip(sorted(found.collect()), groups, strict=True):
        assert row.n == row.size == len(group)
        if len(group):
            least, *between, most = row["values"]
            assert (least, most) == (group.min(), group.max())
            errors = [rank_error(group, rank, at) for rank, at in zip(RANKS, between, strict=True)]
            assert max(errors) <= (BOUND + 1 / len(group) if len(group) > K else 0)


@pytest.mark.spark
def test_spark_merges_them(spark: SparkSession) -> None:
    """Spark merges our sketches with each other and with its own."""
    groups = [values(size, seed) for seed, size in enumerate(SIZES)]
    everything = np.concatenate(groups)
    ours = spark.createDataFrame([(sketch(group),) for group in groups], "sketch binary")
    theirs = (
        spark.createDataFrame([(float(value),) for value in groups[-2]], "value float")
        .agg(F.kll_sketch_agg_float("value", F.lit(K)).alias("sketch"))
        .unionAll(ours)
    )
    for frame, wanted in ((ours, everything), (theirs, np.concatenate((everything, groups[-2])))):
        merged = frame.agg(F.kll_merge_agg_float("sketch", F.lit(K)).alias("sketch"))
        found = merged.select(
            F.kll_sketch_get_n_float("sketch"),
            F.kll_sketch_get_quantile_float("sketch", F.array(*[F.lit(rank) for rank in RANKS])),
        ).collect()[0]
        assert found[0] == len(wanted)
        assert max(rank_error(wanted, rank, at) for rank, at in zip(RANKS, found[1], strict=True)) < 0.01


def test_a_few_values_are_kept_as_they_are() -> None:
    assert sketch(np.array([3, 1, 2], np.float32)).hex() == (
        "05010f0290010800"  # five words of preamble, format 1, KLL, level 0 is sorted, k = 400, m = 8
        "0300000000000000"  # n = 3
        "9001" "01" "00"  # the least k merged, one level
        "8d010000"  # which begins at 397 of 400
        "0000803f" "00004040"  # minimum 1, maximum 3
        "0000803f" "00000040" "00004040"  # 1, 2, 3
    )  # fmt: skip
    assert sketch(np.empty(0, np.float32)).hex() == "02010f0190010800"
    assert sketch(np.ones(1, np.float32)).hex() == "02020f06900108000000803f"


@given(st.integers(2, 20_000), st.sampled_from((8, 20, 200, 400)))
def test_every_value_is_stood_for(size: int, k: int) -> None:
    must_be_whole(sketch(np.arange(size, dtype=np.float32), k), size, k)


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=12), st.sampled_from((8, 20, 400)))
def test_every_value_is_stood_for_in_a_joined_one(sizes: list[int], k: int) -> None:
    dice = np.random.default_rng(sum(sizes))
    shuffled = dice.permutation(np.arange(sum(sizes), dtype=np.float32))
    parts = np.split(shuffled, np.cumsum(sizes)[:-1])
    made = joined([sketch(part, k) for part in parts], k)
    assert made == joined([sketch(part, k) for part in parts], k)
    if sum(sizes) < 2:
        assert made == sketch(shuffled, k)
    else:
        must_be_whole(made, sum(sizes), k)


def must_be_whole(made: bytes, size: int, k: int) -> None:
    """Check a sketch of 0, 1, 2, …: the weights of the items add up to the number of values, and the items fit the
    capacity."""
    levels = made[18]
    begins = np.frombuffer(made, np.uint32, levels, 20).astype(int).tolist()
    ends = np.frombuffer(made, np.float32, 2, 20 + 4 * levels).tolist()
    items = np.frombuffer(made, np.float32, -1, 20 + 4 * levels + 8)
    assert ends == [0, size - 1]
    capacity = sum(max(8, round(k * (2 / 3) ** (levels - 1 - height))) for height in range(levels))
    sizes = [end - begin for begin, end in zip(begins, [*begins[1:], capacity], strict=True)]
    assert sum(sizes) == len(items) <= capacity
    assert sum(count << height for height, count in enumerate(sizes)) == size
    start = 0
    for count in sizes:
        assert (np.diff(items[start : start + count]) > 0).all()
        start += count


@pytest.mark.parametrize("size", [50, 300, 5000])
def test_joined_again_and_again(size: int) -> None:
    """Repeated merges with new values, as in a stream, do not accumulate errors."""
    groups = [values(size, seed) for seed in range(300)]
    made = sketch(groups[0])
    for group in groups[1:]:
        made = joined([made, sketch(group)])
    everything = np.concatenate(groups)
    found = quantiles(made)
    assert max(rank_error(everything, rank, at) for rank, at in zip(RANKS, found, strict=True)) < 0.01


@pytest.mark.spark
def test_spark_reads_joined_ones(spark: SparkSession) -> None:
    """Spark reads merged sketches of ours and of its own, in any order, and returns our quantiles."""
    dice = np.random.default_rng(3)
    groups = [values(size, seed) for seed, size in enumerate((*SIZES, 700, 90))]
    numbered = [(number, float(value)) for number in (9, 12, 15, 16) for value in groups[number]]
    theirs = (
        spark.createDataFrame(numbered, "number int, value float")
        .groupBy("number")
        .agg(F.kll_sketch_agg_float("value", F.lit(K)).alias("sketch"))
    )
    made = [sketch(group) for group in groups]
    for row in theirs.collect():
        made[row.number] = bytes(row.sketch)
    mixes = [dice.permutation(len(groups))[:number].tolist() for number in (2, 2, 2, 3, 5, 9, 17, 17)]
    several = pa.array([made[number] for mix in mixes for number in mix], pa.binary())
    ours = kll.joined(several, np.array([len(mix) for mix in mixes]), K)
    ranks = F.array(*[F.lit(rank) for rank in RANKS])
    found = spark.createDataFrame(list(enumerate(ours.to_pylist())), "mix int, sketch binary").select(
        "mix",
        F.kll_sketch_get_n_float("sketch").alias("n"),
        F.kll_sketch_get_quantile_float("sketch", ranks).alias("said"),
        F.kll_sketch_get_quantile_float(F.kll_sketch_merge_float("sketch", "sketch"), ranks).alias("twice"),
    )
    for row in found.collect():
        wanted = np.concatenate([groups[number] for number in mixes[row.mix]])
        assert row.n == len(wanted)
        assert row.said == kll.quantiles(ours, RANKS)[row.mix].tolist()
        for said in (row.said, row.twice):
            errors = [rank_error(wanted, rank, at) for rank, at in zip(RANKS, said, strict=True)]
            assert max(errors) < 0.01


def test_groups_one_after_the_other() -> None:
    """Consecutive groups of no, one, several and many values, in any order."""
    groups = [np.sort(values(size)) for size in (0, 1, 300, 0, 1000, 400, 401, 1, 2, 0)]
    made = kll.sketches(np.concatenate(groups), np.cumsum([len(group) for group in groups]), K)
    assert made.to_pylist() == [sketch(group) for group in groups]
    assert kll.sketches(np.empty(0, np.float32), np.empty(0, np.int64), K).to_pylist() == []
