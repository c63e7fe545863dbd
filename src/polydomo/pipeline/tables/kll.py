"""KLL sketches of numbers that are all there, as bytes that Spark's own functions read and merge.

Spark makes a sketch by offering it one value after the other, each through an interpreted expression. Who has all
values of a group side by side, and sorted, need not: up to k of them are kept as they are; of more, every 2^h
neighbours are represented by the one in their middle, on level h of the sketch, where an item stands for 2^h; and what
is left at the end by some on the levels below. h is as small as the sketch's capacity allows. So an item stands for at
most two in k values, and a rank is off by half of that at most: with k = 400 by a quarter of a percent, which is less
than what a sketch is off by that saw the values one by one. There is no chance in it: the same values give the same
bytes.

The layout is the compact one of Apache DataSketches, in words of four bytes, little-endian::

    5 | 1 | 15 | flags    k | k | m | 0    n    n    least k | least k | levels | 0
    where each level begins, a word each; minimum; maximum; items from the lowest level up, a word each

Without a value, only the first two words are there (with 2 for 5); with one, they and the value (with 2 and 2 for 5
and 1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Ints = NDArray[np.int64]
    Words = NDArray[np.uint32]

_LEAST: Final = 8  # m: no level has a smaller capacity

# The first word: of no value, of one, of several. Level 0 is sorted.
_NONE: Final = 0x010F0102
_ONE: Final = 0x060F0202
_SEVERAL: Final = 0x020F0105

# Words before the items, if there is one level.
_SHORT_HEAD: Final = 2
_HEAD: Final = 8


def sketches(values: Floats, ends: Ints, k: int) -> pa.Array:
    """Of the groups that stand one after the other in `values`, each sorted; `ends` is where each of them ends."""
    counts = np.diff(ends, prepend=0)
    starts = ends - counts
    many = np.flatnonzero(counts > k).tolist()
    compacted = [_compacted(values[starts[group] : ends[group]], k) for group in many]
    head = np.where(counts > 1, _HEAD, _SHORT_HEAD)
    sizes = head + counts
    sizes[many] = [len(words) for words in compacted]
    bounds = np.concatenate(([0], np.cumsum(sizes)))
    at = bounds[:-1]
    words = np.empty(bounds[-1], np.uint32)
    words[at] = np.array((_NONE, _ONE, _SEVERAL), np.uint32)[np.minimum(counts, 2)]
    words[at + 1] = _LEAST << 16 | k
    bits = values.view(np.uint32)
    several = np.flatnonzero((counts > 1) & (counts <= k))
    here, number = at[several], counts[several]
    for place, word in enumerate(
        (number, 0, 1 << 16 | k, k - number, bits[starts[several]], bits[ends[several] - 1]), 2
    ):
        words[here + place] = word
    kept = np.repeat(counts <= k, counts)
    words[(np.arange(len(values)) + np.repeat(at + head - starts, counts))[kept]] = bits[kept]
    for group, found in zip(many, compacted, strict=True):
        words[at[group] : at[group] + len(found)] = found
    offsets = (bounds * words.itemsize).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(words)])


def _compacted(values: Floats, k: int) -> Words:
    """The words of more than k sorted values."""
    n, ends = len(values), values[[0, -1]]
    height = 0
    while n >> height > k:
        height += 1
    items = []
    for level in range(height, -1, -1):  # all but the highest have one item, or none
        size = 1 << level
        used = len(values) >> level << level
        items.append(np.ascontiguousarray(values[size >> 1 : used : size]))
        values = values[used:]
    items.reverse()
    begins, begin = [], _capacity(height + 1, k) - sum(map(len, items))
    for found in items:
        begins.append(begin)
        begin += len(found)
    head = (_SEVERAL, _LEAST << 16 | k, n & 0xFFFFFFFF, n >> 32, (height + 1) << 16 | k, *begins)
    return np.concatenate((np.array(head, np.uint32), *(part.view(np.uint32) for part in (ends, *items))))


def _capacity(levels: int, k: int) -> int:
    """Of all of them: the highest has k, each one below two thirds of that, rounded."""
    return sum(max(_LEAST, ((2 * k << depth) // 3**depth + 1) >> 1) for depth in range(levels))
