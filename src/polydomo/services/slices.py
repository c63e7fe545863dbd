"""Long queries on the broker's state, cut into slices so that the event loop serves its peers in between.

A query is a generator that yields after each slice of work and returns its answer. The state may change between two
slices, so a query copies what it iterates over; each row is true at the moment it was read, the whole need not be.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeVar

from polydomo.deferred import Deferred

T = TypeVar("T")

SlicedQuery = Generator[None, None, T]

# Schedules a function for a later turn of the event loop.
CallLater = Callable[[Callable[[], None]], object]

# Items per slice: a millisecond or two.
SLICE: Final = 500

# Slices that are done in the first turn; enough for most brokers.
AT_ONCE: Final = 4


def run_sliced(query: SlicedQuery[Any], call_later: CallLater | None) -> Any:
    """Return the answer of a short query, and a `Deferred` for a long one.

    Without `call_later` every query is completed at once.
    """
    try:
        for _ in range(AT_ONCE):
            next(query)
        while call_later is None:
            next(query)
    except StopIteration as end:
        return end.value
    answer: Deferred[Any] = Deferred()

    def next_slice() -> None:
        try:
            next(query)
        except StopIteration as end:
            answer.settle(end.value)
        except Exception as error:
            answer.fail(error)
        else:
            call_later(next_slice)

    call_later(next_slice)
    return answer


def chunks(items: Iterable[T], size: int = SLICE) -> Iterator[list[T]]:
    """Yield the items in lists of at most `size`."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
