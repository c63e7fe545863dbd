"""`worker_minute`: how busy each worker was in each minute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from polydomo.pipeline.tables import columns
from polydomo.pipeline.tables.columns import Words
from polydomo.pipeline.tables.counting import MINUTE_US, US
from polydomo.pipeline.tables.silver import ATTEMPTS
from polydomo.pipeline.tables.spec import Objective, TableColumn, TableSpec
from polydomo.pipeline.tables.spreading import spread
from polydomo.pipeline.tables.sums import Sums

if TYPE_CHECKING:
    from numpy.typing import NDArray

SPEC: Final = TableSpec(
    "worker_minute",
    "gold",
    "How busy each worker was in each minute, from all attempts dispatched to it, including parts and lost "
    "attempts. A minute without any has no row.",
    ("worker", "service", "minute"),
    "day",
    (
        TableColumn("day", "date", "of the minute, in UTC"),
        TableColumn("worker", "string", "its name, or identity"),
        TableColumn("service", "string", "the service it worked for"),
        TableColumn("minute", "timestamp", "its beginning"),
        TableColumn("jobs", "bigint", "that it finished in this minute, with or without a result"),
        TableColumn("lost", "bigint", "attempts that it lost in this minute"),
        TableColumn(
            "busy_s",
            "double",
            "seconds that its attempts ran within this minute, whenever they ended: one over several minutes is spread "
            "over them; two at the same time count twice",
        ),
        TableColumn("utilisation", "double", "busy_s / 60: more than 1 if it ran several jobs at once"),
    ),
)


def _derived(found: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    return {"utilisation": np.rint(found["busy_s"] * US) / MINUTE_US}


_SUMS: Final = Sums(SPEC, ("jobs", "lost"), ("busy_s",), _derived)


def _parts(attempts: pa.Table, _: tuple[Objective, ...]) -> pa.Table:
    attempts = attempts.filter(attempts["worker"].is_valid())
    workers, services = Words.of(attempts["worker"]), Words.of(attempts["service"])
    number = len(services.names)
    codes = workers.codes * number + services.codes
    ended = columns.ints(attempts["ended"])
    begin = columns.ints(attempts["dispatched"], -1)
    ran = columns.micros(attempts["run_s"], -1)
    end = np.where(ran < 0, ended, begin + ran)
    took = (begin >= 0) & (end > begin)
    busy, minutes, spent = spread(codes[took], begin[took], end[took]) if took.any() else [codes[:0]] * 3
    at = np.concatenate((ended // MINUTE_US, minutes)) * MINUTE_US
    whose = np.concatenate((codes, busy))
    lost, nothing = attempts["lost"], np.zeros(len(busy), np.int64)
    found = {
        "jobs": np.concatenate((columns.flags(pc.invert(lost)), nothing)),
        "lost": np.concatenate((columns.flags(lost), nothing)),
        "busy_s": np.concatenate((np.zeros(len(codes), np.int64), spent)),
    }
    minute = pa.array(at).cast(pa.timestamp("us", tz="UTC"))
    keys = {
        "day": minute.cast(pa.timestamp("us")).cast(pa.date32()),
        "worker": workers.said(whose // number),
        "service": services.said(whose % number),
        "minute": minute,
    }
    return _SUMS.summed(keys, found)


WORKER_MINUTE: Final = _SUMS.table(
    ATTEMPTS, ("worker", "service", "dispatched", "ended", "run_s", "lost"), _parts
)
