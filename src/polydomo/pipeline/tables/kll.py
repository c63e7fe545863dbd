"""KLL sketches of numbers that are all there, as bytes that Spark's own functions read and merge.

Spark makes a sketch by offering it one value after the other, each through an interpreted expression. Who has all
values of a group side by side need not: up to k of them are kept as they are; of more, a block of 2^h sorted ones is
represented by the one in its middle, on level h of the sketch, where an item stands for 2^h. The blocks are as small
as the sketch's capacity allows. With k = 400 an item stands for at most one in 200 values, and a rank is off by half
of that at most, which is less than what a sketch is off by that saw the values one by one. There is no chance in it:
the same values in the same order give the same bytes.

The layout is the compact one of Apache DataSketches, numbers little-endian::

    5 | 1 | 15 | flags | k: 2 bytes | m | 0 | n: 8 bytes | least k: 2 bytes | levels | 0
    where each level begins: 4 bytes each | minimum | maximum | items from the lowest level up: 4 bytes each

Level 0 may be in any order, all others are sorted. Without a value, only the first eight bytes are there (with 2 for
5); with one, they and the value (with 2 and 2 for 5 and 1).
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

_FAMILY: Final = 15
_LEAST: Final = 8  # m: no level has a smaller capacity
_IS_EMPTY: Final = 1
_IS_SINGLE: Final = 4

_HEAD: Final = Struct("<BBBBHBx")
_COUNTS: Final = Struct("<QHBx")


def sketches(values: Floats, ends: NDArray[np.int64], k: int) -> list[bytes]:
    """Of the groups that stand one after the other in `values`; `ends` is where each of them ends."""
    found = []
    start = 0
    for end in ends.tolist():
        found.append(sketch(values[start:end], k))
        start = end
    return found


def sketch(values: Floats, k: int) -> bytes:
    """Of these values, none of which is NaN."""
    n = len(values)
    if n == 0:
        return _HEAD.pack(2, 1, _FAMILY, _IS_EMPTY, k, _LEAST)
    if n == 1:
        return _HEAD.pack(2, 2, _FAMILY, _IS_SINGLE, k, _LEAST) + values.tobytes()
    capacities = _capacities(n, k)
    items = [values] if len(capacities) == 1 else _levels(values, capacities)
    begins, begin = [], sum(capacities) - sum(map(len, items))
    for level in items:
        begins.append(begin)
        begin += len(level)
    ends = np.array((values.min(), values.max()), np.float32)
    return b"".join(
        (
            _HEAD.pack(5, 1, _FAMILY, 0, k, _LEAST),
            _COUNTS.pack(n, k, len(items)),
            np.array(begins, np.uint32).tobytes(),
            ends.tobytes(),
            *(level.tobytes() for level in items),
        )
    )


def _levels(values: Floats, capacities: tuple[int, ...]) -> list[Floats]:
    """The items of each level, the lowest first. As many values as the highest one can stand for go there, of what is
    left as many to the next one, and so on: on level 0, each stands for itself."""
    items = []
    for height in range(len(capacities) - 1, 0, -1):
        size = 1 << height
        used = min(capacities[height], len(values) // size) * size
        items.append(np.sort(values[:used])[size >> 1 :: size])
        values = values[used:]
    return [values, *reversed(items)]


def _capacities(n: int, k: int) -> tuple[int, ...]:
    """Of the levels of the smallest sketch that can stand for so many values."""
    levels = 1
    while sum(size << height for height, size in enumerate(_of(levels, k))) < n:
        levels += 1
    return _of(levels, k)


@lru_cache
def _of(levels: int, k: int) -> tuple[int, ...]:
    """The highest has k, each one below two thirds of that, rounded."""
    return tuple(max(_LEAST, ((2 * k << depth) // 3**depth + 1) >> 1) for depth in range(levels - 1, -1, -1))
