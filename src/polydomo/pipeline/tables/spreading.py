"""Rows in groups, and time that is spent over several minutes given to each minute that it falls into; by numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from polydomo.pipeline.tables.counting import MINUTE_US

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from polydomo.pipeline.tables.columns import Ints


class Groups(NamedTuple):
    """Rows by two numbers: `order` puts those that agree in both side by side, and each such run begins at one of
    `starts`. `major` and `minor`: the runs' numbers; they rise from run to run."""

    order: Ints
    starts: Ints
    major: Ints
    minor: Ints

    @classmethod
    def of(cls, major: Ints, minor: Ints, width: int) -> Groups:
        """`width`: the minor numbers are below."""
        first = major.min()
        keys = (major - first) * width + minor
        order = np.argsort(keys, kind="stable")
        there = keys[order]
        starts = np.flatnonzero(np.concatenate(([True], there[1:] != there[:-1])))
        return cls(order, starts, there[starts] // width + first, there[starts] % width)

    def ends(self) -> Ints:
        return np.append(self.starts[1:], len(self.order))

    def total(self, values: NDArray[Any]) -> Ints:
        """Of each run; of values that are in the rows' own order."""
        return np.add.reduceat(values[self.order].astype(np.int64), self.starts)


def spread(codes: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """The microseconds of intervals (begin < end), given to each minute that they fall into, by code: codes, minutes
    and microseconds. Minutes within are counted by where intervals begin and end, not one by one: a million intervals
    of an hour within the same hour are a few hundred numbers."""
    first, last = begin // MINUTE_US, (end - 1) // MINUTE_US
    over = last > first
    # In the first minute and, if it is another one, in the last. Between them, all of each.
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
    # All that begins for a code ends before the next code's first minute.
    under_way = np.cumsum(groups.total(step))
    # A minute where nothing begins or ends is like the one before it.
    until = np.append(minutes[1:], minutes[-1:] + 1)
    length = np.where(under_way > 0, until - minutes, 1)
    where = np.repeat(np.arange(len(minutes)), length)
    off = np.arange(len(where)) - np.repeat(np.cumsum(length) - length, length)
    whole = under_way[where] * MINUTE_US + np.where(off == 0, groups.total(spent)[where], 0)
    some = whole > 0
    return groups.major[where][some], (minutes[where] + off)[some], whole[some]
