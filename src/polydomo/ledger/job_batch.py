"""Ended jobs on their way from the broker's loop to the thread that writes them: plain data, which nobody changes.

This side runs in the loop, so it does as little as it can. The numbers that every job has are handed on as they were
noted (`core.job_columns`); what only some jobs have (a key, a deadline, parts) is looked at only for those.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from functools import lru_cache
from typing import Final, NamedTuple

from polydomo.core.job import STATES, Job
from polydomo.core.job_columns import ColumnBuffer
from polydomo.core.names import printable
from polydomo.core.policy import FOREVER
from polydomo.core.targets import KINDS, Target
from polydomo.safe_text import safe_line

_MICROS: Final = 1_000_000

# Characters of a target.
LONGEST: Final = 1000

# Instead of a number that nobody knows.
UNKNOWN: Final = -(1 << 63)


class Peer(NamedTuple):
    """A client, or a worker."""

    name: str
    dialect: str


class Texts(NamedTuple):
    """Some texts of a column, and in which rows they stand."""

    places: array[int]
    values: list[str]


class Numbers(NamedTuple):
    """The same with numbers, times or truths."""

    places: array[int]
    values: array[int]


class Beside:
    """By column: what it holds in some places instead of the usual. In arrays, because there may be millions of them
    while nothing can be written."""

    def __init__(self) -> None:
        self.texts: dict[str, Texts] = defaultdict(lambda: Texts(array("i"), []))
        self.numbers: dict[str, Numbers] = defaultdict(lambda: Numbers(array("i"), array("q")))

    def text(self, column: str, place: int, value: str) -> None:
        places, values = self.texts[column]
        places.append(place)
        values.append(value)

    def number(self, column: str, place: int, value: int) -> None:
        places, values = self.numbers[column]
        places.append(place)
        values.append(value)


class JobBatch(NamedTuple):
    """So many ended jobs."""

    num_rows: int  # named as Arrow does it
    fields: dict[str, bytes]  # `core.job_columns.FIELDS`
    epoch: float  # the wall time at the core's time 0
    services: list[str]
    clients: list[Peer]
    workers: list[Peer]
    beside: Beside


def sheet_of(rows: ColumnBuffer, epoch: float) -> JobBatch:
    """What is to be known of these jobs."""
    beside = Beside()
    for place, name in rows.aliases.items():
        beside.text("asked", place, text(name))
    for place, at in rows.first_partials.items():
        beside.number("first_partial", place, int((at + epoch) * _MICROS))
    for place, job in rows.failed.items():
        if job.failure is not None:
            beside.text("outcome", place, STATES[job.state])
            beside.text("error", place, job.failure.reason)
    for place, job in rows.special.items():
        _note_extra(beside, place, job, epoch)
    return JobBatch(
        rows.count,
        rows.fields(),
        epoch,
        [text(service.name) for service in rows.services],
        [Peer(text(client.name), client.dialect) for client in rows.clients],
        [Peer(text(worker.name), worker.dialect) for worker in rows.workers],
        beside,
    )


def _note_extra(beside: Beside, place: int, job: Job, epoch: float) -> None:
    """What a job has that is durable or came with options."""
    extra = job.extra
    assert extra is not None
    number, word = beside.number, beside.text
    word("job_id", place, job_id(job, ""))
    if extra.parent is None:
        number("submitted", place, extra.submitted)
    elif extra.parent.extra is not None:
        word("parent", place, extra.parent.extra.uid)
        number("part", place, extra.part)
    if extra.key:
        word("key", place, text(extra.key))
    if extra.target is not None:
        word("target", place, target_text(extra.target))
    if extra.deadline < FOREVER:
        number("deadline", place, int((extra.deadline + epoch) * _MICROS))
    if extra.priority:
        number("priority", place, extra.priority)
    if extra.hit:
        number("memo_hit", place, True)
    if extra.repeats:
        number("repeat", place, True)
    if extra.durable and extra.added:
        number("durable", place, True)
        number("attempts", place, extra.number)
        number("finished", place, extra.ended)
        if extra.began:
            number("dispatched", place, extra.began)
    if extra.restored:  # the core's clock has only seen the part of its life behind the restart
        number("waited_us", place, UNKNOWN)
        number("took_us", place, UNKNOWN)


text = lru_cache(maxsize=65536)(printable)  # the same few names again and again


def job_id(job: Job, run: str) -> str:
    """Its own, or the broker's run and a number; a part's is the whole's and which part."""
    extra = job.extra
    if extra is None:
        return f"{run}-{job.id}"
    return extra.uid if extra.parent is None else f"{extra.uid}/{extra.part}"


def is_durable(job: Job) -> bool:
    """Has the store a record of its own for it?"""
    extra = job.extra
    return extra is not None and extra.durable and extra.added


def target_text(target: Target) -> str:
    """Whom a job is for: a word, and names if there are some. A long list of them is cut."""
    names = ",".join(text(name) for name in target.names[:LONGEST])
    kind = KINDS[target.kind]
    return safe_line(f"{kind}:{names}", LONGEST) if names else kind
