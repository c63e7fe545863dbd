"""The plain records that go into the store and come out of it.

All times are wall time in microseconds since 1970 (or durations in microseconds); None means "not yet" or "no
limit". The store understands states, attempts and times. Bodies, envelopes and options are bytes of somebody
else's matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

WAITING: Final = "waiting"  # for a worker
DELAYED: Final = "delayed"  # not before a certain time
RUNNING: Final = "running"  # a worker has it
DONE: Final = "done"  # there is a result
FAILED: Final = "failed"  # there is an error instead
CANCELLED: Final = "cancelled"  # somebody did not want it any more
DEAD: Final = "dead"  # a dead letter: kept until somebody removes it or sends it again

OPEN: Final = (WAITING, DELAYED, RUNNING)
ENDED: Final = (DONE, FAILED, CANCELLED, DEAD)


class JobProgress(msgspec.Struct):
    """The part of a job that changes during its life, and what identifies it."""

    id: str  # a UUID's text, or what its dialect calls it
    service: bytes  # the one that has to do it now; passing a job on changes it
    seq: int = 0  # the order of arrival over the whole store, given by `Store.add`
    state: str = WAITING
    attempt: int = 0  # the number of the latest one; only ever grows
    worker: bytes = b""  # who has it, or who finished it
    queued: int = 0  # since when it waits
    not_before: int | None = None  # not to be dispatched earlier
    dispatched: int | None = None  # when the latest attempt began; None again if that attempt was lost
    finished: int | None = None
    code: str = ""  # why there is no result: a stable word
    message: str = ""  # and for people
    size_out: int = 0  # bytes of partials and result
    token: bytes = b""  # of the latest attempt, for recovery; empty again if that attempt was lost
    ending: int | None = None  # the order of ends over the whole store, given by `Store.finish`; None before


class JobRecord(JobProgress):
    """All of a job. The fields stand in the order of the table's columns; those after `size_in` are the
    request's."""

    client: bytes = b""
    dialect: str = ""
    key: str | None = None  # idempotency key: one job per key and service it was submitted to
    parent: str | None = None  # the job that asked for this one
    target: str = "any"
    priority: int = 0
    max_attempts: int = 1
    timeout: int | None = None  # for one attempt, from its dispatch
    deadline: int | None = None  # for the whole job
    submitted: int = 0
    size_in: int = 0  # set by `Store.add`
    body: bytes = b""
    envelope: bytes = b""  # what the client's dialect needs for its answer
    options: bytes = b""  # JSON of the core's


class AttemptRecord(msgspec.Struct):
    """One dispatch of a job to a worker."""

    number: int
    worker: bytes
    started: int
    ended: int | None  # None while it runs
    outcome: str  # the job's final state, or why the attempt was lost; empty while it runs
    token: bytes = b""  # what its worker must show with an answer


class PartialRecord(msgspec.Struct):
    """One of several answers."""

    number: int  # grows within a job; not without gaps
    attempt: int
    at: int
    body: bytes


class EventRecord(msgspec.Struct):
    """Something a worker, or the broker, had to say about a job."""

    number: int  # grows within a job; not without gaps
    at: int
    worker: bytes
    kind: str
    body: bytes


class ResultRecord(msgspec.Struct):
    """How a job ended. `body` is None if it ended without one."""

    id: str
    service: bytes
    state: str
    attempt: int
    worker: bytes
    code: str
    message: str
    finished: int
    body: bytes | None


class JobChange(msgspec.Struct, kw_only=True):
    """What `Store.update` changes; None leaves it as it is."""

    state: str | None = None  # WAITING or DELAYED
    queued: int | None = None
    not_before: int | None = None
    service: bytes | None = None
    target: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    timeout: int | None = None
    deadline: int | None = None
    body: bytes | None = None
    options: bytes | None = None
    release_key: bool = False  # the next job with its idempotency key counts as new


class JobFilter(msgspec.Struct, kw_only=True):
    """Which jobs `Store.find` shows; None does not ask. Times are those of submission, `before` excluded."""

    state: str | None = None
    service: bytes | None = None
    client: bytes | None = None
    key: str | None = None
    parent: str | None = None
    since: int | None = None
    before: int | None = None
    oldest_first: bool = False
    page: str | None = None  # `JobPage.next` of the page before
    limit: int = 100


class JobPage(msgspec.Struct):
    """Some of the jobs that were asked for, without their bodies. Jobs that arrive meanwhile shift
    nothing."""

    jobs: list[JobRecord]
    next: str | None  # None: this was the last page


class KvItem(msgspec.Struct, frozen=True):
    """Something on the shelf, by name within its space."""

    space: str
    name: bytes
    value: bytes
    at: int  # when it was put there
    until: int | None  # whoever reads it looks at this; the store only does so in `Store.trim`


class JobCount(msgspec.Struct):
    """How many jobs of one service are in one state."""

    service: bytes
    state: str
    jobs: int


class Retention(msgspec.Struct):
    """How long finished jobs are kept, by service; None keeps them for ever. Dead letters always stay."""

    default: int | None
    services: Mapping[bytes, int | None] = {}

    def cutoff(self, service: bytes, now: int) -> int | None:
        """Jobs of `service` that finished at this time or earlier may go."""
        keep = self.services.get(service, self.default)
        return None if keep is None else now - keep
