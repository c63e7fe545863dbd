"""Counting rules and exact sums, shared by all gold tables.

A job for several workers is in the ledger as a parent and as parts. The parts are what workers ran; the parent is what
a client asked for. A repeat is a second request for a job that was answered with the first one's result: it is neither.
So there are two ways to count, and each table states which one it uses:

- *runs*: ordinary jobs and parts. A parent is a run only if it failed as a whole because no worker was available.
- *asked*: ordinary jobs and parents.

`columns` implements these rules.

Times are summed as whole microseconds, so that a sum does not depend on the order or grouping of the additions. The
tables store them in seconds; a double represents the microseconds of 140 years exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from polydomo.ledger.schema import CANCELLED, DEAD, DONE, FAILED, OUTCOMES, REFUSED
from polydomo.pipeline.tables.spec import TableColumn

if TYPE_CHECKING:
    from pyspark.sql import Column

US: Final = 1_000_000
MINUTE_US: Final = 60 * US

# Columns that count the outcomes of jobs.
ENDS: Final = (
    TableColumn(DONE, "bigint", "of these, with a result"),
    TableColumn(FAILED, "bigint", "with an error instead"),
    TableColumn(CANCELLED, "bigint", "that were cancelled"),
    TableColumn(DEAD, "bigint", "dead letters: all attempts were lost"),
    TableColumn(REFUSED, "bigint", "that were never accepted"),
)
assert tuple(column.name for column in ENDS) == OUTCOMES


def micros(column: Column | str) -> Column:
    """Convert a column of seconds to whole microseconds."""
    return F.rint((F.col(column) if isinstance(column, str) else column) * F.lit(float(US))).cast("bigint")


def seconds(us: Column) -> Column:
    """Convert microseconds to seconds."""
    return us / F.lit(float(US))


def total(column: Column | str) -> Column:
    """Return a sum that is 0 if there are no rows."""
    return F.coalesce(F.sum(column), F.lit(0).cast("bigint"))


def total_s(column: Column | str) -> Column:
    """Return the exact sum of seconds, in seconds."""
    return seconds(total(micros(column)))


def ratio(part: Column | str, whole: Column | str) -> Column:
    """Return the quotient; null if the divisor is 0."""
    return F.try_divide(part, whole)
