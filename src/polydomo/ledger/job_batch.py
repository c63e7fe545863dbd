"""Batches of ended jobs: immutable data that the event loop passes to the writer's thread.

This part runs in the event loop, so it does as little as possible. The numbers that every job has are passed on as they
were recorded (`core.job_columns`); optional values (a key, a deadline, parts) are collected only for jobs that have
them.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from functools import lru_cache
from typing import Final, NamedTuple

from polydomo.core.job_columns import ColumnBuffer
from polydomo.core.model import Job
from polydomo.core.names import printable
from polydomo.core.policy import FOREVER
from polydomo.core.states import STATES
from polydomo.core.targets import KINDS, Target
from polydomo.core.tracked_job import TrackedJob
from polydomo.safe_text import safe_line

_MICROS: Final = 1_000_000

# Longest text of a target, in characters.
LONGEST: Final = 1000

# Stands for an unknown number.
UNKNOWN: Final = -(1 << 63)


class PeerName(NamedTuple):
    """Client or worker."""

    name: str
    dialect: str


class Texts(NamedTuple):
    """Text values of some rows of a column."""

    rows: array[int]
    values: list[str]


class Numbers(NamedTuple):
    """Numbers, times or truth values of some rows of a column."""

    rows: array[int]
    values: array[int]


class Overrides:
    """Values by column that replace the column's default in some rows.

    They are kept in arrays, because there may be millions of them while nothing can be written.
    """

    def __init__(self) -> None:
        self.texts: dict[str, Texts] = defaultdict(lambda: Texts(array("i"), []))
        self.numbers: dict[str, Numbers] = defaultdict(lambda: Numbers(array("i"), array("q")))

    def text(self, column: str, row: int, value: str) -> None:
        rows, values = self.texts[column]
        rows.append(row)
        values.append(value)

    def number(self, column: str, row: int, value: int) -> None:
        rows, values = self.numbers[column]
        rows.append(row)
        values.append(value)


class JobBatch(NamedTuple):
    """Ended jobs by column."""

    num_rows: int  # named as in Arrow
    fields: dict[str, bytes]  # `core.job_columns.FIELDS`
    epoch: float  # the wall time at the core's time 0
    services: list[str]
    clients: list[PeerName]
    workers: list[PeerName]
    overrides: Overrides


def job_batch(buffer: ColumnBuffer, epoch: float) -> JobBatch:
    """Return the batch of the jobs in a buffer of the core's journal."""
    overrides = Overrides()
    for row, name in buffer.aliases.items():
        overrides.text("asked", row, text(name))
    for row, at in buffer.first_partials.items():
        overrides.number("first_partial", row, int((at + epoch) * _MICROS))
    for row, job in buffer.failed.items():
        if job.failure is not None:
            overrides.text("outcome", row, STATES[job.state])
            overrides.text("error", row, job.failure.reason)
    for row, job in buffer.special.items():
        _add_tracked(overrides, row, job, epoch)
    return JobBatch(
        buffer.count,
        buffer.fields(),
        epoch,
        [text(service.name) for service in buffer.services],
        [PeerName(text(client.name), client.dialect) for client in buffer.clients],
        [PeerName(text(worker.name), worker.dialect) for worker in buffer.workers],
        overrides,
    )


def _add_tracked(overrides: Overrides, row: int, job: Job, epoch: float) -> None:
    """Add the values of a job that is durable or has options."""
    tracked = job if isinstance(job, TrackedJob) else None
    assert tracked is not None
    number, word = overrides.number, overrides.text
    word("job_id", row, job_id(job, ""))
    if tracked.parent is None:
        number("submitted", row, tracked.submitted_wall)
    elif isinstance(tracked.parent, TrackedJob):
        word("parent", row, tracked.parent.uid)
        number("part", row, tracked.part)
    if tracked.key:
        word("key", row, text(tracked.key))
    if tracked.target is not None:
        word("target", row, target_text(tracked.target))
    if tracked.deadline < FOREVER:
        number("deadline", row, int((tracked.deadline + epoch) * _MICROS))
    if tracked.priority:
        number("priority", row, tracked.priority)
    if tracked.hit:
        number("memo_hit", row, True)
    if tracked.repeats:
        number("repeat", row, True)
    if is_durable(job):
        number("durable", row, True)
        number("attempts", row, tracked.number)
        number("finished", row, tracked.ended)
        if tracked.began:
            number("dispatched", row, tracked.began)
    if tracked.restored:  # the core's clock has no times from before the restart
        number("waited_us", row, UNKNOWN)
        number("took_us", row, UNKNOWN)


text = lru_cache(maxsize=65536)(printable)  # names repeat


def job_id(job: Job, run: str) -> str:
    """Return the job's own id, or the broker's run and a number; a part has the id of the whole and its index."""
    tracked = job if isinstance(job, TrackedJob) else None
    if tracked is None:
        return f"{run}-{job.id}"
    return tracked.uid if tracked.parent is None else f"{tracked.uid}/{tracked.part}"


def is_durable(job: Job) -> bool:
    """Return whether the store has a record of the job."""
    tracked = job if isinstance(job, TrackedJob) else None
    return tracked is not None and tracked.durable and tracked.added


def target_text(target: Target) -> str:
    """Return a target as text: its kind and names, truncated."""
    names = ",".join(text(name) for name in target.names[:LONGEST])
    kind = KINDS[target.kind]
    return safe_line(f"{kind}:{names}", LONGEST) if names else kind
