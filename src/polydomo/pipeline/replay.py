"""One queue, several servers: what recorded jobs would have waited with another number of workers.

A service's jobs wait in one line, and whoever is free takes the first: a G/G/c queue. Given when each job came and how
long it took, its wait follows exactly: it begins when it is there and a server is free. That is the recursion of Kiefer
and Wolfowitz, kept as a heap of the times at which servers become free. For one server it is Lindley's, which numpy can
do for all jobs at once.

Everything here is pure: seconds in, seconds out.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapreplace
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Copies of a job, for a higher load, come that much later at most: so that they are no twins that come at once, and a
# burst stays the burst it is. Also at most this share of the whole time.
JITTER: Final = 60.0
JITTER_SHARE: Final = 0.01


@dataclass(frozen=True)
class Trace:
    """Jobs in the order in which they came. `counted`: those whose wait matters; attempts that were lost are work, too,
    but nobody waits for them in particular."""

    arrivals: Floats
    seconds: Floats
    counted: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.arrivals)

    @property
    def work(self) -> float:
        """Seconds of work in it."""
        return float(self.seconds.sum())


def trace(arrivals: Floats, seconds: Floats, counted: npt.NDArray[np.bool_] | None = None) -> Trace:
    """From jobs in any order. Times are counted from the first arrival; a negative duration is none."""
    arrivals = np.asarray(arrivals, dtype=np.float64)
    seconds = np.maximum(np.asarray(seconds, dtype=np.float64), 0.0)
    counted = (
        np.ones(len(arrivals), dtype=np.bool_) if counted is None else np.asarray(counted, dtype=np.bool_)
    )
    order = np.argsort(arrivals, kind="stable")
    arrivals = arrivals[order]
    if len(arrivals):
        arrivals = arrivals - arrivals[0]
    return Trace(arrivals, seconds[order], counted[order])


def waits(arrivals: Floats, seconds: Floats, servers: int) -> Floats:
    """What each job waits. `arrivals` must not decrease."""
    if servers < 1:
        raise ValueError(f"{servers} servers never begin")
    if servers == 1:
        return _one(arrivals, seconds)
    free = [-np.inf] * servers  # when each server is free again; the earliest first
    found: list[float] = []
    note = found.append
    for came, takes in zip(arrivals.tolist(), seconds.tolist(), strict=True):
        at = free[0]
        if at > came:
            note(at - came)
            heapreplace(free, at + takes)
        else:
            note(0.0)
            heapreplace(free, came + takes)
    return np.array(found, dtype=np.float64)


def _one(arrivals: Floats, seconds: Floats) -> Floats:
    """A job begins when all the work before it is done: the sum of it since the server was last idle."""
    if not len(arrivals):
        return np.zeros(0)
    done = np.cumsum(seconds) - seconds  # work that came before each
    idle = np.maximum.accumulate(arrivals - done)
    found = done + idle - arrivals
    # What sums of many numbers leave behind is not a wait.
    return np.where(found > 1e-9, found, 0.0)


def loaded(jobs: Trace, factor: float, seed: int = 0) -> Trace:
    """The same day with more jobs, or fewer.

    Twice the load is every job twice: the copy comes somewhat later (see JITTER) and takes as long as some other job of
    the trace. So mornings, bursts and nights stay where they are, and each is twice as high. (To play the trace at
    twice the speed would halve a burst's length instead, which hides how far a queue grows in it.) A fraction copies,
    or drops, that share of the jobs.
    """
    if not factor > 0:
        raise ValueError(f"a load of {factor} is none")
    if factor == 1.0 or not len(jobs):
        return jobs
    random = np.random.RandomState(seed)
    whole = int(factor)
    kept = random.random_sample(len(jobs)) < factor - whole
    span = float(jobs.arrivals[-1] - jobs.arrivals[0])
    jitter = min(JITTER, JITTER_SHARE * span)
    came, takes, counts = [], [], []
    for copy in range(whole + 1):
        some = np.ones(len(jobs), dtype=np.bool_) if copy < whole else kept
        late = random.uniform(0, jitter, len(jobs)) if copy else np.zeros(len(jobs))
        other = random.permutation(len(jobs)) if copy else np.arange(len(jobs))
        # A copy is of one kind with the job whose duration it has.
        came.append((jobs.arrivals + late)[some])
        takes.append(jobs.seconds[other][some])
        counts.append(jobs.counted[other][some])
    return trace(np.concatenate(came), np.concatenate(takes), np.concatenate(counts))


def busiest(jobs: Trace, length: float) -> tuple[float, float]:
    """The stretch of that many seconds with the most work in it, begin and end. It begins with a job."""
    if not len(jobs) or jobs.arrivals[-1] - jobs.arrivals[0] <= length:
        return 0.0, np.inf
    total = np.concatenate([[0.0], np.cumsum(jobs.seconds)])
    until = np.searchsorted(jobs.arrivals, jobs.arrivals + length, side="left")
    work = total[until] - total[:-1]
    first = int(np.argmax(work))
    begin = float(jobs.arrivals[first])
    return begin, begin + length


def load_within(jobs: Trace, begin: float, end: float) -> float:
    """How many servers the work that comes between these times keeps busy."""
    some = (jobs.arrivals >= begin) & (jobs.arrivals < end)
    span = min(end, float(jobs.arrivals[-1])) - max(begin, 0.0) if len(jobs) else 0.0
    work = float(jobs.seconds[some].sum())
    # A trace that ends with its last arrival still has that job's work to do.
    return work / max(span, float(jobs.seconds.max()) if len(jobs) else 0.0, 1e-9)
