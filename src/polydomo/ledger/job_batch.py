"""Batches of ended jobs: immutable data that the event loop passes to the writer's thread.

This part runs in the event loop, so it does as little as possible. The numbers that every job has are passed on as they
were recorded (`core.job_columns`); optional values (a key, a deadline, parts) are collected only for jobs that have
them.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeGuard

from polydomo.core.job_columns import ColumnBuffer
from polydomo.core.model import Client, Job, Worker
from polydomo.core.names import printable
from polydomo.core.policy import FOREVER
from polydomo.core.principals import ANONYMOUS
from polydomo.core.states import STATES
from polydomo.core.targets import KINDS, Target
from polydomo.core.tracked_job import TrackedJob
from polydomo.safe_text import safe_line

MICROS: Final = 1_000_000

# Longest text of a target, in characters.
LONGEST: Final = 1000

# Stands for an unknown number.
UNKNOWN: Final = -(1 << 63)


class PeerName(NamedTuple):
    """Client or worker."""

    name: str
    dialect: str
    principal: str | None  # None: it did not authenticate


class Values(NamedTuple):
    """Values of some rows of a column: texts, or numbers, times and truth values.

    They are kept in arrays, because there may be millions of them while nothing can be written.
    """

    rows: array[int]
    values: Any  # list of texts, or array of numbers


class Overrides(dict[str, Values]):
    """Values by column that replace the column's default in some rows."""

    def add(self, column: str, row: int, value: str | int) -> None:
        found = self.get(column)
        if found is None:
            found = self[column] = Values(array("i"), [] if isinstance(value, str) else array("q"))
        found.rows.append(row)
        found.values.append(value)


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
        overrides.add("asked", row, text(name))
    for row, at in buffer.first_partials.items():
        overrides.add("first_partial", row, int((at + epoch) * MICROS))
    for row, job in buffer.failed.items():
        if job.failure is not None:
            overrides.add("outcome", row, STATES[job.state])
            overrides.add("error", row, job.failure.reason)
    for row, job in buffer.special.items():
        _add_tracked(overrides, row, job, epoch)
    return JobBatch(
        buffer.count,
        buffer.fields(),
        epoch,
        [text(service.name) for service in buffer.services],
        [_peer_name(client) for client in buffer.clients],
        [_peer_name(worker) for worker in buffer.workers],
        overrides,
    )


def _peer_name(peer: Client | Worker) -> PeerName:
    return PeerName(text(peer.name), peer.dialect, authenticated(peer.principal.name))


def _add_tracked(overrides: Overrides, row: int, tracked: TrackedJob, epoch: float) -> None:
    """Add the values of a job that is durable or has options."""
    add = overrides.add
    add("job_id", row, job_id(tracked, ""))
    if tracked.parent is None:
        add("submitted", row, tracked.submitted_wall)
    else:
        add("parent", row, tracked.parent.uid)
        add("part", row, tracked.part)
    if tracked.key:
        add("key", row, text(tracked.key))
    if tracked.target is not None:
        add("target", row, target_text(tracked.target))
    if tracked.deadline < FOREVER:
        add("deadline", row, int((tracked.deadline + epoch) * MICROS))
    if tracked.priority:
        add("priority", row, tracked.priority)
    if tracked.hit:
        add("memo_hit", row, True)
    if tracked.repeats:
        add("repeat", row, True)
    if is_durable(tracked):
        add("durable", row, True)
        add("attempts", row, tracked.number)
        add("finished", row, tracked.ended)
        if tracked.began:
            add("dispatched", row, tracked.began)
    if tracked.restored:  # the core's clock has no times from before the restart
        add("waited_us", row, UNKNOWN)
        add("took_us", row, UNKNOWN)


text = lru_cache(maxsize=65536)(printable)  # names repeat


def authenticated(principal: str) -> str | None:
    """Return the principal's name; None if nobody authenticated."""
    return None if principal == ANONYMOUS else principal


def job_id(job: Job, run: str) -> str:
    """Return the job's own id, or the broker's run and a number; a part has the id of the whole and its index."""
    if not isinstance(job, TrackedJob):
        return f"{run}-{job.id}"
    return job.uid if job.parent is None else f"{job.uid}/{job.part}"


def is_durable(job: Job) -> TypeGuard[TrackedJob]:
    """Return whether the store has a record of the job."""
    return isinstance(job, TrackedJob) and job.durable and job.added


def target_text(target: Target) -> str:
    """Return a target as text: its kind and names, truncated."""
    names = ",".join(text(name) for name in target.names[:LONGEST])
    kind = KINDS[target.kind]
    return safe_line(f"{kind}:{names}", LONGEST) if names else kind
