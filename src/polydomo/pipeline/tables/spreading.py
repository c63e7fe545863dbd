"""Grouping of rows, and distribution of time spans over the minutes they cover, by numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from polydomo.pipeline.tables.counting import MINUTE_US

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from polydomo.pipeline.tables.columns import Ints


class Groups(NamedTuple):
    """Rows grouped by two numbers: `order` puts rows that agree in both next to each other, and each such run begins at
    one of `starts`. `major` and `minor`: the numbers of the runs, in ascending order."""

    order: Ints
    starts: Ints
    major: Ints
    minor: Ints

    @classmethod
    def of(cls, major: Ints, minor: Ints, width: int) -> Groups:
        """Group rows. `width`: upper bound of the minor numbers, exclusive."""
        first = major.min()
        keys = (major - first) * width + minor
        order = np.argsort(keys, kind="stable")
        there = keys[order]
        starts = np.flatnonzero(np.concatenate(([True], there[1:] != there[:-1])))
        return cls(order, starts, there[starts] // width + first, there[starts] % width)

    def ends(self) -> Ints:
        return np.append(self.starts[1:], len(self.order))

    def total(self, values: NDArray[Any]) -> Ints:
        """Return the sum over each run, of values in the rows' original order."""
        return np.add.reduceat(values[self.order].astype(np.int64), self.starts)


def spread(codes: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Distribute intervals (begin < end) over the minutes they cover, by code: return codes, minutes and microseconds.
    Whole minutes are counted by the begins and ends of intervals, not one by one: a million intervals of an hour within
    the same hour are a few hundred numbers."""
    first, last = begin // MINUTE_US, (end - 1) // MINUTE_US
    over = last > first
    # The first minute and, if it is a different one, the last. Between them, whole minutes.
    at = np.concatenate((first, last[over], first[over] + 1, last[over]))
    of = np.concatenate((codes, *[codes[over]] * 3))
    spent = np.concatenate(
        (
            np.minimum(end, (first + 1) * MINUTE_US) - begin,
            (end - last * MINUTE_US)[over],
            np.zeros(2 * over.sum(), np.int64),
        )
    )
    step = np.zeros(len(at), np.int64)
    number = over.sum()
    step[len(at) - 2 * number : len(at) - number] = 1
    step[len(at) - number :] = -1
    zero = at.min()
    groups = Groups.of(of, at - zero, int(at.max() - zero) + 1)
    minutes = groups.minor + zero
    # All intervals of a code end before the next code's first minute.
    under_way = np.cumsum(groups.total(step))
    # A minute where no interval begins or ends is like the one before it.
    until = np.append(minutes[1:], minutes[-1:] + 1)
    length = np.where(under_way > 0, until - minutes, 1)
    where = np.repeat(np.arange(len(minutes)), length)
    off = np.arange(len(where)) - np.repeat(np.cumsum(length) - length, length)
    whole = under_way[where] * MINUTE_US + np.where(off == 0, groups.total(spent)[where], 0)
    some = whole > 0
    return groups.major[where][some], (minutes[where] + off)[some], whole[some]
