"""Simulation of one queue with several servers: how long recorded jobs would have waited with other numbers of workers.

A service's jobs wait in one queue, and a free worker takes the first: a G/G/c queue. Given arrival and run times, the
waits follow exactly: a job starts when it has arrived and a server is free. That is the recursion of Kiefer and
Wolfowitz, kept as a heap of the times at which servers become free. For one server it is Lindley's, which numpy
computes for all jobs at once.

The functions are pure: seconds in, seconds out.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapreplace
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Maximum delay of a job's copies at a higher load, in seconds, and as a share of the whole time: copies do not arrive
# at the same instant, and bursts keep their shape.
JITTER: Final = 60.0
JITTER_SHARE: Final = 0.01


@dataclass(frozen=True)
class Trace:
    """Jobs in the order of arrival. `counted`: jobs whose wait matters; lost attempts are work, too, but their waits
    are not measured."""

    arrivals: Floats
    seconds: Floats
    counted: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.arrivals)


def trace(arrivals: Floats, seconds: Floats, counted: npt.NDArray[np.bool_] | None = None) -> Trace:
    """Make a trace from jobs in any order. Times start at the first arrival; negative durations become 0."""
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
    """Return the wait of each job. `arrivals` must not decrease."""
    if servers < 1:
        raise ValueError(f"the number of servers is {servers}: it must be 1 or more")
    if servers == 1:
        return _one(arrivals, seconds)
    free = [-np.inf] * servers  # when each server becomes free; the earliest first
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
    """Return the waits with one server: a job starts when all work since the server was last idle is done."""
    if not len(arrivals):
        return np.zeros(0)
    done = np.cumsum(seconds) - seconds  # work that arrived before each
    idle = np.maximum.accumulate(arrivals - done)
    found = done + idle - arrivals
    # Rounding errors of long sums are not waits.
    return np.where(found > 1e-9, found, 0.0)


def loaded(jobs: Trace, factor: float, seed: int = 0) -> Trace:
    """Return the trace with a multiple of its jobs.

    At twice the load every job is repeated: the copy arrives slightly later (see JITTER) and runs as long as some other
    job of the trace. So mornings, bursts and nights stay where they are, each twice as high. (Replaying the trace at
    twice the speed would halve the length of a burst instead, which hides how far the queue grows.) A fraction copies,
    or drops, that share of the jobs.
    """
    if not factor > 0:
        raise ValueError(f"the load factor is {factor}: it must be positive")
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
        # A copy takes both the duration and `counted` from the other job.
        came.append((jobs.arrivals + late)[some])
        takes.append(jobs.seconds[other][some])
        counts.append(jobs.counted[other][some])
    return trace(np.concatenate(came), np.concatenate(takes), np.concatenate(counts))


def busiest(jobs: Trace, length: float) -> tuple[float, float]:
    """Return begin and end of the interval of that length with the most work. It begins with a job."""
    if not len(jobs) or jobs.arrivals[-1] - jobs.arrivals[0] <= length:
        return 0.0, np.inf
    total = np.concatenate([[0.0], np.cumsum(jobs.seconds)])
    until = np.searchsorted(jobs.arrivals, jobs.arrivals + length, side="left")
    work = total[until] - total[:-1]
    first = int(np.argmax(work))
    begin = float(jobs.arrivals[first])
    return begin, begin + length


def load_within(jobs: Trace, begin: float, end: float) -> float:
    """Return how many servers the work arriving in an interval keeps busy."""
    some = (jobs.arrivals >= begin) & (jobs.arrivals < end)
    span = min(end, float(jobs.arrivals[-1])) - max(begin, 0.0) if len(jobs) else 0.0
    work = float(jobs.seconds[some].sum())
    # The last job's work extends beyond the last arrival.
    return work / max(span, float(jobs.seconds.max()) if len(jobs) else 0.0, 1e-9)
