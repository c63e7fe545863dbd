"""KLL sketches computed from complete groups of numbers, as bytes that Spark's own functions read and merge.

Spark builds a sketch value by value, each through an interpreted expression. With all values of a group at hand and
sorted, that is not necessary: up to k values are stored unchanged; of more, every 2^h neighbours are represented by the
middle one, on level h of the sketch, where an item stands for 2^h; and the remainder by items on the levels below. h is
as small as the sketch's capacity allows. So an item stands for at most two in k values, and a rank is off by half of
that at most: with k = 400 by a quarter of a percent, which is less than the error of a sketch built value by value. The
result is deterministic: the same values give the same bytes.

The layout is the compact one of Apache DataSketches, in words of four bytes, little-endian::

    5 | 1 | 15 | flags    k | k | m | 0    n    n    least k | least k | levels | 0
    where each level begins, a word each; minimum; maximum; items from the lowest level up, a word each

Without values, only the first two words exist (with 2 for 5); with one, these and the value (with 2 and 2 for 5 and 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]
    Floats = NDArray[np.float32]
    Ints = NDArray[np.int64]
    Words = NDArray[np.uint32]

_LEAST: Final = 8  # m: the minimum capacity of a level

# The first word of a sketch with no value, one, and several. Level 0 is sorted.
_NONE: Final = 0x010F0102
_ONE: Final = 0x060F0202
_SEVERAL: Final = 0x020F0105

# Flags, in the fourth byte.
_IS_EMPTY: Final = 1
_IS_SORTED: Final = 2  # level 0; the others always are
_IS_SINGLE: Final = 4

# Words before the items, with one level.
_SHORT_HEAD: Final = 2
_HEAD: Final = 8


def sketches(values: Floats, ends: Ints, k: int) -> pa.Array:
    """Return sketches of consecutive sorted groups in `values`; `ends` has the end of each group."""
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


def joined(several: pa.Array, counts: Ints, k: int) -> pa.Array:
    """Merge consecutive sketches, `counts` of them each time."""
    found = _whole_ones(several)
    ends = np.cumsum(counts)
    starts = ends - counts
    exact = np.logical_and.reduceat(found.are, starts)  # groups whose sketches all have their values
    numbers = np.where(exact, np.add.reduceat(found.counts, starts), 0)
    values = sort_groups(found.values[np.repeat(np.repeat(exact, counts), found.counts)], numbers)
    made = sketches(values, np.cumsum(numbers), k)
    if exact.all():
        return made
    others = [
        _joined([one for one in several[start:end].to_pylist() if not one[3] & _IS_EMPTY], k)
        for start, end in zip(starts[~exact].tolist(), ends[~exact].tolist(), strict=True)
    ]
    return pc.replace_with_mask(made, pa.array(~exact), pa.array(others, pa.binary()))


def quantiles(several: pa.Array, ranks: Sequence[float]) -> Floats:
    """Return a row per sketch with the least values that the given shares do not exceed. No sketch may be empty."""
    found = _whole_ones(several)
    values = sort_groups(found.values, found.counts)
    said = np.zeros((len(several), len(ranks)), np.float32)
    for place, rank in enumerate(ranks):
        said[found.are, place] = values[places(found.counts, rank)[found.are]]
    others = np.flatnonzero(~found.are)
    for number, sketch in zip(others.tolist(), several.take(pa.array(others)).to_pylist(), strict=True):
        said[number] = _quantiles(_read(sketch), np.array(ranks))
    return said


def sort_groups(values: Floats, counts: Ints) -> Floats:
    """Sort each group. The values are not negative, so their bits have the same order."""
    keys = np.repeat(np.arange(len(counts), dtype=np.uint64) << np.uint64(32), counts)
    keys |= np.abs(values).view(np.uint32)
    keys.sort()
    return keys.astype(np.uint32).view(np.float32)


def places(counts: Ints, rank: float) -> Ints:
    """Return the positions of a quantile in consecutive sorted groups."""
    found: Ints = np.cumsum(counts) - counts + np.maximum(_natural(rank, counts), 1) - 1
    return found


def _natural(rank: Any, n: Any) -> Any:
    """Return how many values a share is. Rounding prevents a float error from adding one."""
    return np.ceil(np.round(rank * n, 7)).astype(np.int64)


class _Whole(NamedTuple):
    """Sketches that store all their values (`are`), and these values; none for the others."""

    are: Flags
    values: Floats
    counts: Ints


def _whole_ones(several: pa.Array) -> _Whole:
    """Decode complete sketches from Arrow's offset and data buffers."""
    _, places_of, data = several.buffers()
    begins = np.frombuffer(places_of, np.int32, len(several) + 1, 4 * several.offset).astype(np.int64) // 4
    words = np.frombuffer(data or b"", np.uint32)
    starts, sizes = begins[:-1], np.diff(begins)
    flags = words[starts] >> 24
    short = (flags & (_IS_EMPTY | _IS_SINGLE)) != 0
    levels = words[np.where(short, 0, starts + 4)] >> 16 & 0xFF
    are = short | (levels == 1)
    head = np.where(short, _SHORT_HEAD, _HEAD)
    counts = np.where(are, sizes - head, 0)
    inner = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return _Whole(are, words.view(np.float32)[np.repeat(starts + head, counts) + inner], counts)


def _joined(some: Sequence[bytes], k: int) -> bytes:
    """Merge sketches that are not empty."""
    if len(some) == 1:
        return some[0]
    kept = [_read(sketch) for sketch in some]
    ends = _in_order(*(one.ends for one in kept))[[0, -1]]
    levels = [_in_order(*found) for found in zip_longest(*(one.levels for one in kept), fillvalue=_NO_ITEMS)]
    _compress(levels, k)
    n, least_k = sum(one.n for one in kept), min(k, *(one.least_k for one in kept))
    return _words(n, ends, levels, k, least_k).tobytes()


def _quantiles(kept: _Kept, ranks: Any) -> Floats:
    items = np.concatenate(kept.levels)
    weights = np.repeat(1 << np.arange(len(kept.levels)), [len(found) for found in kept.levels])
    order = np.argsort(items, kind="stable")
    wanted = _natural(ranks, kept.n)
    there = np.searchsorted(np.cumsum(weights[order]), wanted)
    found: Floats = np.where(wanted < kept.n, items[order][np.minimum(there, len(items) - 1)], kept.ends[1])
    return found


class _Kept(NamedTuple):
    """A decoded sketch. Items of a level are sorted."""

    n: int
    least_k: int
    ends: Floats  # the least and the greatest value
    levels: list[Floats]


_NO_ITEMS: Final = np.empty(0, np.float32)


def _read(sketch: bytes) -> _Kept:
    """Decode a sketch that is not empty."""
    words, flags = np.frombuffer(sketch, np.uint32), sketch[3]
    floats = words.view(np.float32)
    if flags & _IS_SINGLE:
        return _Kept(1, int(words[1]) & 0xFFFF, floats[[2, 2]], [floats[2:]])
    number = sketch[18]
    begins, ends, items = words[5 : 5 + number].astype(np.int64), 5 + number, 7 + number
    levels = np.split(floats[items:], begins[1:] - begins[0])
    if not flags & _IS_SORTED:
        levels[0] = np.sort(levels[0])
    return _Kept(int(words[2]) | int(words[3]) << 32, int(words[4]) & 0xFFFF, floats[ends:items], levels)


def _in_order(*several: Floats) -> Floats:
    return np.sort(np.concatenate(several))


def _compress(levels: list[Floats], k: int) -> None:
    """Compact levels until the items fit the capacity."""
    while sum(map(len, levels)) > _capacity(len(levels), k):
        top = len(levels) - 1
        height = next(at for at, items in enumerate(levels) if len(items) >= _room(top - at, k))
        odd = len(levels[height]) % 2  # an item without a partner stays on its level
        levels[height], pairs = levels[height][:odd], levels[height][odd:]
        if height == top:
            levels.append(_NO_ITEMS)
        levels[height + 1] = _in_order(levels[height + 1], pairs[crc32(pairs.tobytes()) & 1 :: 2])


def _compacted(values: Floats, k: int) -> Words:
    """Encode more than k sorted values."""
    n, ends = len(values), values[[0, -1]]
    height = 0
    while n >> height > k:
        height += 1
    items = []
    for level in range(height, -1, -1):  # all but the highest have at most one item
        size = 1 << level
        used = len(values) >> level << level
        items.append(np.ascontiguousarray(values[size >> 1 : used : size]))
        values = values[used:]
    items.reverse()
    return _words(n, ends, items, k, k)


def _words(n: int, ends: Floats, levels: list[Floats], k: int, least_k: int) -> Words:
    """Encode a sketch of several values."""
    begins, begin = [], _capacity(len(levels), k) - sum(map(len, levels))
    for found in levels:
        begins.append(begin)
        begin += len(found)
    head = (_SEVERAL, _LEAST << 16 | k, n & 0xFFFFFFFF, n >> 32, len(levels) << 16 | least_k, *begins)
    return np.concatenate((np.array(head, np.uint32), *(part.view(np.uint32) for part in (ends, *levels))))


def _capacity(levels: int, k: int) -> int:
    """Return the capacity of all levels."""
    return sum(_room(depth, k) for depth in range(levels))


def _room(depth: int, k: int) -> int:
    """Return the capacity of a level: k for the highest, two thirds of the next higher for the others, rounded."""
    exact: int = ((2 * k << depth) // 3**depth + 1) >> 1
    return max(_LEAST, exact)
