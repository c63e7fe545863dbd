"""Who is counted, and how sums stay exact: what all gold tables share.

A job for several workers is in the ledger as a whole and in parts. The parts are what workers did; the whole is what a
client asked for. A repeat is a job that was asked for once more and answered with the first one's answer: it is
neither. So there are two ways to count, and each table says which is its own:

- *runs*: ordinary jobs and parts. A whole is among them only if it failed as a whole: nobody was there for it.
- *asked*: ordinary jobs and wholes.

`columns` tells them apart.

Times are added up as whole microseconds, so that a sum is the same in whatever order it was made, and in one go or in
two. The tables have them in seconds; a double keeps the microseconds of 140 years.
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

# The columns that count how jobs ended.
ENDS: Final = (
    TableColumn(DONE, "bigint", "of these, with a result"),
    TableColumn(FAILED, "bigint", "with an error instead"),
    TableColumn(CANCELLED, "bigint", "that nobody wanted any more"),
    TableColumn(DEAD, "bigint", "dead letters: all attempts were lost"),
    TableColumn(REFUSED, "bigint", "that were never accepted"),
)
assert tuple(column.name for column in ENDS) == OUTCOMES


def micros(column: Column | str) -> Column:
    """Whole microseconds of a column of seconds."""
    return F.rint((F.col(column) if isinstance(column, str) else column) * F.lit(float(US))).cast("bigint")


def seconds(us: Column) -> Column:
    """The way back."""
    return us / F.lit(float(US))


def total(column: Column | str) -> Column:
    """A sum that is 0 if there is nothing."""
    return F.coalesce(F.sum(column), F.lit(0).cast("bigint"))


def total_s(column: Column | str) -> Column:
    """The exact sum of seconds, in seconds."""
    return seconds(total(micros(column)))


def ratio(part: Column | str, whole: Column | str) -> Column:
    """Null if there is nothing to divide by."""
    return F.try_divide(part, whole)
