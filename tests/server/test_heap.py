"""Freed memory goes back to the system when there is much of it."""

from __future__ import annotations

from polydomo.server.heap import GAPS_MAX, GAPS_MIN, Heap
from polydomo.services.process import resident_size

MIB = 1024 * 1024


class Process:
    """A process of `size` bytes, of which `gaps` can be given back."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.gaps = 0
        self.trims = 0

    def heap(self) -> Heap:
        return Heap(lambda: self.size, self.trim)

    def trim(self) -> None:
        self.trims += 1
        self.size -= self.gaps
        self.gaps = 0


def test_what_is_held_is_no_gap() -> None:
    process = Process(50 * MIB)
    heap = process.heap()
    process.size += 500 * MIB
    heap.inspect(held=500 * MIB, limit=2048 * MIB)
    assert process.trims == 0


def test_gaps_are_given_back_once() -> None:
    process = Process(50 * MIB)
    heap = process.heap()
    process.size += 100 * MIB
    process.gaps = 100 * MIB
    for _ in range(3):
        heap.inspect(held=0, limit=2048 * MIB)
    assert (process.trims, process.size) == (1, 50 * MIB)


def test_growth_that_cannot_be_given_back_is_not_tried_again_and_again() -> None:
    process = Process(50 * MIB)
    heap = process.heap()
    process.size += 100 * MIB
    for _ in range(3):
        heap.inspect(held=0, limit=2048 * MIB)
    assert process.trims == 1


def test_small_limits_trim_sooner_and_large_ones_not_later_than_the_most() -> None:
    for limit, gaps in ((1 * MIB, GAPS_MIN), (1 << 40, GAPS_MAX)):
        process = Process(50 * MIB)
        heap = process.heap()
        process.size += gaps - 1
        heap.inspect(held=0, limit=limit)
        assert process.trims == 0
        process.size += 1
        heap.inspect(held=0, limit=limit)
        assert process.trims == 1


def test_the_size_of_this_process_is_known() -> None:
    assert resident_size() > MIB
