"""Tests of `service_minute` from columns: the spreading of waits, and empty inputs. test_gold.py tests the meaning of
the columns with the table itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from polydomo.pipeline.tables import columns, minute_parts, spreading
from polydomo.pipeline.tables.counting import MINUTE_US
from polydomo.pipeline.tables.sketches import K
from tests.pipeline.tables.silver_rows import at, job

NOON_US = int(at(-30).timestamp() * 1e6)

_KINDS = {
    **dict.fromkeys(("service", "outcome"), pa.string()),
    **dict.fromkeys(("finished", "queued"), pa.timestamp("us", tz="UTC")),
    **dict.fromkeys(("attempts", "part"), pa.int32()),
    **dict.fromkeys(("durable", "memo_hit", "repeat"), pa.bool_()),
    **dict.fromkeys(("bytes_in", "bytes_out"), pa.int64()),
    **dict.fromkeys(minute_parts.TIMES, pa.float64()),
}


def table(*jobs: dict[str, Any]) -> pa.Table:
    rows = [{name: row[name] for name in minute_parts.COLUMNS} for row in jobs]
    return pa.Table.from_pylist(rows, pa.schema([(name, _KINDS[name]) for name in minute_parts.COLUMNS]))


def rows(jobs: pa.Table) -> list[dict[str, Any]]:
    return [row for batch in minute_parts.parts(jobs, K) for row in batch.to_pylist()]


intervals = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 20 * MINUTE_US), st.integers(1, 30 * MINUTE_US)), min_size=1
)


@given(intervals)
def test_every_microsecond_is_in_its_minute(given_ones: list[tuple[int, int, int]]) -> None:
    wanted: Counter[tuple[int, int]] = Counter()
    for code, begin, length in given_ones:
        for minute in range(begin // MINUTE_US, (begin + length - 1) // MINUTE_US + 1):
            inside = min(begin + length, (minute + 1) * MINUTE_US) - max(begin, minute * MINUTE_US)
            wanted[code, minute] += inside
    codes, begins, lengths = (np.array(column) for column in zip(*given_ones, strict=True))
    found = spreading.spread(codes, begins, begins + lengths)
    keys = list(zip(found[0].tolist(), found[1].tolist(), strict=True))
    assert dict(zip(keys, found[2].tolist(), strict=True)) == wanted
    assert len(set(keys)) == len(keys)


def test_a_million_long_waits_are_a_few_rows() -> None:
    number = 1_000_000
    begin = NOON_US + np.arange(number) * 50
    found = spreading.spread(np.zeros(number, np.int64), begin, begin + 60 * MINUTE_US)
    assert len(found[1]) == 61
    assert found[2].sum() == number * 60 * MINUTE_US


def test_words_of_several_dictionaries_go_together() -> None:
    """Dictionaries differ between files."""
    one = table(job(0, service="a"), job(0, service="b", outcome="failed"))
    other = table(job(0, service="c", outcome="failed"), job(0, service="a", outcome=None))
    coded = [
        part.set_column(0, "service", part["service"].dictionary_encode()).set_column(
            1, "outcome", part["outcome"].dictionary_encode()
        )
        for part in (one, other)
    ]
    found = rows(pa.concat_tables(coded))
    assert [(row["service"], row["jobs"], row["done"], row["failed"]) for row in found] == [
        ("a", 2, 1, 0),
        ("b", 1, 0, 1),
        ("c", 1, 0, 1),
    ]


def test_a_service_without_a_name_is_one_of_its_own() -> None:
    found = rows(table(job(0, service=None), job(0), job(0, service=None)))
    assert sorted((row["service"] or "", row["jobs"]) for row in found) == [("", 2), ("echo", 1)]


def test_nothing_in_nothing_out() -> None:
    assert rows(table()) == []
    assert rows(table(job(0, repeat=True))) == []


def test_small_batches_are_put_together() -> None:
    batch = pa.RecordBatch.from_pydict({"n": list(range(columns.PORTION // 4))})
    sizes = [portion.num_rows for portion in columns.portions(iter([batch] * 9))]
    assert sizes == [columns.PORTION, columns.PORTION, columns.PORTION // 4]
    assert list(columns.portions(iter(()))) == []
