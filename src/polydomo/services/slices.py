"""Long looks through the broker's books, cut into slices: between two of them the loop serves everybody else.

A look is a generator that yields when it has done a slice's worth of work and returns its answer. What it goes through
may change meanwhile, so it takes copies of parts, and promises no more than that each row was true at its moment.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any, Final, TypeVar

from polydomo.services.builtin import Later

T = TypeVar("T")

Look = Generator[None, None, T]

# Has a function called in a later turn of the loop.
Turn = Callable[[Callable[[], None]], object]

# Things that are looked at in one slice: a millisecond or two.
SLICE: Final = 500

# Slices that are done at once: most brokers' books need no more.
AT_ONCE: Final = 4


def take_slices(look: Look[Any], turn: Turn | None) -> Any:
    """Return the answer of a look that takes a few slices at most, and a `Later` for others. Without `turn` nobody is
    kept waiting."""
    try:
        for _ in range(AT_ONCE):
            next(look)
        while turn is None:
            next(look)
    except StopIteration as end:
        return end.value
    later = Later()

    def go_on() -> None:
        try:
            next(look)
        except StopIteration as end:
            later.settle(end.value)
        except Exception as error:
            later.fail(error)
        else:
            turn(go_on)

    turn(go_on)
    return later


def chunks(things: Iterable[T], size: int = SLICE) -> Iterator[list[T]]:
    """Cut what there is into lists of this size."""
    rest = iter(things)
    while chunk := list(islice(rest, size)):
        yield chunk
