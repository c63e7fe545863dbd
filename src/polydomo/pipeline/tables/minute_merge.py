"""Merge of `service_minute` rows with the same service and minute, by numpy: the equivalent of Spark's `merge`.

Most rows are the only ones of their service and minute. They and their sketches stay unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from polydomo.pipeline.tables import columns, kll, minute_parts
from polydomo.pipeline.tables.columns import Words
from polydomo.pipeline.tables.counting import MINUTE_US
from polydomo.pipeline.tables.sketches import EMPTY, RANKS, K

if TYPE_CHECKING:
    from polydomo.pipeline.tables.columns import Ints

_KEY: Final = [("minute", "ascending"), ("service", "ascending")]
_FIRST: Final = next(iter(RANKS))


def merged(rows: pa.Table) -> pa.Table:
    """Return one row per service and minute, in the table's order."""
    names = rows.schema.names
    rows = rows.take(pc.sort_indices(rows, _KEY)).select(minute_parts.SCHEMA.names)
    minutes, services = columns.ints(rows["minute"]), Words.of(rows["service"]).codes
    another = (minutes[1:] != minutes[:-1]) | (services[1:] != services[:-1])
    starts = np.flatnonzero(np.concatenate(([True] * (len(minutes) > 0), another)))
    counts = np.diff(starts, append=len(minutes))
    single = rows.take(starts[counts == 1])
    together = _together(rows.take(np.flatnonzero(np.repeat(counts, counts) > 1)), counts[counts > 1])
    found = _asked(pa.concat_tables([single, together]))
    return found.take(pc.sort_indices(found, _KEY)).select(names)


def _together(rows: pa.Table, counts: Ints) -> pa.Table:
    """Merge consecutive rows, `counts` of them each time."""
    if not len(counts):
        return rows
    starts = np.cumsum(counts) - counts
    longest = np.maximum.reduceat(columns.micros(rows["wait_max"], -1), starts)
    found: dict[str, Any] = {
        **{name: np.add.reduceat(columns.ints(rows[name]), starts) for name in minute_parts.COUNTS},
        **{name: np.add.reduceat(columns.micros(rows[name]), starts) for name in minute_parts.SUMS},
        "wait_max": longest,
        **{name: kll.joined(rows[name].combine_chunks(), counts, K) for name in minute_parts.SKETCHES},
        **dict.fromkeys(minute_parts.PERCENTILES, pa.nulls(len(starts))),
    }
    services = rows["service"].combine_chunks().take(pa.array(starts))
    minutes = columns.ints(rows["minute"])[starts] // MINUTE_US
    return pa.Table.from_batches([minute_parts.whole(services, minutes, found)])


def _asked(rows: pa.Table) -> pa.Table:
    """Fill in percentiles that have not been computed from their sketches yet."""
    for sketch in minute_parts.SKETCHES:
        of = sketch.removesuffix("_sketch")
        some = pc.greater(pc.binary_length(rows[sketch]), EMPTY)
        unknown = pc.and_(pc.is_null(rows[f"{of}_{_FIRST}"]), some).combine_chunks()
        wanted = rows[sketch].filter(unknown).combine_chunks()
        if not len(wanted):
            continue
        said = kll.quantiles(wanted, tuple(RANKS.values())).astype(np.float64)
        for number, label in enumerate(RANKS):
            place = rows.schema.get_field_index(f"{of}_{label}")
            filled = pc.replace_with_mask(
                rows.column(place).combine_chunks(),
                unknown,
                pa.array(minute_parts.in_micros(said[:, number])),
            )
            rows = rows.set_column(place, rows.field(place), filled)
    return rows
