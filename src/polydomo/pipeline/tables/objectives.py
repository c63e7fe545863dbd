"""`slo`: attainment of each service's objective by day."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from polydomo.ledger.schema import CANCELLED, DONE
from polydomo.pipeline.tables import columns
from polydomo.pipeline.tables.columns import Words
from polydomo.pipeline.tables.silver import JOBS
from polydomo.pipeline.tables.spec import Objective, TableColumn, TableSpec
from polydomo.pipeline.tables.sums import Sums, ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

SPEC: Final = TableSpec(
    "slo",
    "gold",
    "Attainment of each service's objective (setting spark.slo) on each day. Counts asked jobs, except "
    "cancelled ones. A day on which the objective was changed has a row for each; a service without one has none.",
    ("day", "service", "objective_s", "objective_share"),
    "day",
    (
        TableColumn("day", "date", "on which the jobs ended, in UTC"),
        TableColumn("service", "string", "the service"),
        TableColumn("objective_s", "double", "maximum time of a job from submitted to finished, in seconds"),
        TableColumn("objective_share", "double", "the share of jobs that must meet it: 0.99 for 99 %"),
        TableColumn("jobs", "bigint", "that ended, except cancelled ones"),
        TableColumn("good", "bigint", "of these, with a result, and in time"),
        TableColumn("attainment", "double", "good / jobs"),
        TableColumn("kept", "boolean", "attainment is at least objective_share"),
        TableColumn(
            "budget_used",
            "double",
            "jobs that missed / jobs that may miss: 1 if the error budget is just used up; null if there is none",
        ),
    ),
)


def _derived(found: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    jobs, good, share = found["jobs"], found["good"], found["objective_share"]
    return {
        "attainment": ratio(good, jobs),
        # Equivalent to attainment >= share, without the rounding error of a division.
        "kept": good >= share * jobs,
        "budget_used": ratio(jobs - good, (1.0 - share) * jobs),
    }


_SLO: Final = Sums(SPEC, ("jobs", "good"), (), _derived)


def _parts(jobs: pa.Table, objectives: tuple[Objective, ...]) -> pa.Table:
    # A job without an outcome is ignored, like a cancelled one.
    wanted = columns.are_asked(jobs) & columns.flags(pc.not_equal(jobs["outcome"], CANCELLED))
    services = Words.of(jobs["service"])
    limits = [limit(service, objectives) for service in services.names.to_pylist()]
    seconds = np.array([found.seconds if found else np.nan for found in limits])[services.codes]
    shares = np.array([found.share if found else np.nan for found in limits])[services.codes]
    wanted &= ~np.isnan(seconds)
    asked = jobs.filter(pa.array(wanted))
    took = asked["total_s"].to_numpy()  # NaN for null: never in time
    keys = {
        "day": asked["day"],
        "service": asked["service"],
        "objective_s": seconds[wanted],
        "objective_share": shares[wanted],
    }
    good = columns.equal(asked["outcome"], DONE) & (took <= seconds[wanted])
    return _SLO.summed(keys, {"jobs": np.ones(asked.num_rows, np.int64), "good": good})


def limit(service: str | None, objectives: tuple[Objective, ...]) -> Objective | None:
    """Return the objective of the most specific matching pattern; None if none matches.

    An exact name takes precedence over prefixes, a longer prefix over a shorter one; of two identical patterns the
    later one wins.
    """
    fitting = [objective for objective in objectives if _fits(objective.service, service)]
    return max(reversed(fitting), key=_specific, default=None)


def _specific(objective: Objective) -> tuple[bool, int]:
    return not objective.service.endswith("*"), len(objective.service)


def _fits(pattern: str, service: str | None) -> bool:
    return (service or "").startswith(pattern[:-1]) if pattern.endswith("*") else service == pattern


SLO: Final = _SLO.table(JOBS, ("day", "service", "outcome", "part", "repeat", "durable", "total_s"), _parts)
