"""Room in the store: a principal's oldest results are removed before their time, then its oldest dead letters."""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from polydomo.deferred import confirmed
from polydomo.store.records import DEAD
from polydomo.store.store import Store

# Jobs that one transaction removes, as in a sweep.
BATCH: Final = 500

# Dead letters that are named to whoever asks what was removed.
NAMED: Final = 10


class Evicted(NamedTuple):
    """What was removed. `letters` has the ids of the first dead letters."""

    results: int
    dead: int
    size: int
    letters: list[str]


async def evict(store: Store, principal: str, size: int) -> Evicted:
    """Remove finished jobs of a principal that take `size` bytes, or all that it has."""
    results = dead = freed = 0
    letters: list[str] = []
    for look_for_dead in (False, True):
        while freed < size:
            found = await store.oldest_ended(principal, dead=look_for_dead, limit=BATCH)
            chosen: list[str] = []
            for job in found:
                if freed >= size:
                    break
                freed += job.size
                chosen.append(job.id)
                if job.state == DEAD and len(letters) < NAMED:
                    letters.append(job.id)
            if not chosen:
                break
            await confirmed(partial(store.discard, chosen))
            if look_for_dead:
                dead += len(chosen)
            else:
                results += len(chosen)
    return Evicted(results, dead, freed, letters)
