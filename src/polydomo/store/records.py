"""Records that go into the store and come out of it.

All times are wall time in microseconds since 1970, durations are in microseconds; None means "not yet" or "no limit".
The store interprets states, attempts and times. Bodies, envelopes and options are opaque bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

WAITING: Final = "waiting"  # for a worker
DELAYED: Final = "delayed"  # until `not_before`
RUNNING: Final = "running"  # dispatched to a worker
DONE: Final = "done"  # finished with a result
FAILED: Final = "failed"  # finished with an error
CANCELLED: Final = "cancelled"
DEAD: Final = "dead"  # a dead letter: kept until it is removed or sent again

# Bytes that a job takes in the store beside its request and result: rows, and entries of indexes.
ROW: Final = 1024

OPEN: Final = (WAITING, DELAYED, RUNNING)
ENDED: Final = (DONE, FAILED, CANCELLED, DEAD)


class JobProgress(msgspec.Struct):
    """A job's identity and the fields that change during its life."""

    id: str  # a UUID, or the client's own id where the dialect has one
    service: bytes
    seq: int = 0  # order of arrival in this store, assigned by `Store.add`
    state: str = WAITING
    attempt: int = 0  # number of the latest attempt; only grows
    worker: bytes = b""  # the worker that runs or finished the job
    queued: int = 0  # waiting since
    not_before: int | None = None  # earliest dispatch
    dispatched: int | None = None  # start of the latest attempt; None again when that attempt is lost
    finished: int | None = None
    code: str = ""  # stable reason why there is no result
    message: str = ""  # the same for people
    size_out: int = 0  # bytes of partial replies and result
    token: bytes = b""  # of the latest attempt, for recovery; empty again when that attempt is lost
    ending: int | None = None  # order of completion in this store, assigned by `Store.finish`
    holder: str = ""  # principal of `worker`
    # These two never change.
    principal: str = "anonymous"  # owner
    size_kept: int = 0  # bytes of body, envelope and options, set by `Store.add`

    def footprint(self) -> int:
        """Return about how many bytes the job takes in the store; its events do not count."""
        return ROW + self.size_kept + self.size_out


class JobRecord(JobProgress):
    """A complete job. Fields are in the order of the table's columns; those after `size_in` are the request."""

    client: bytes = b""
    dialect: str = ""
    key: str | None = None  # idempotency key, unique per principal and service
    parent: str | None = None  # id of the job that submitted this one
    target: str = "any"
    priority: int = 0
    max_attempts: int = 1
    timeout: int | None = None  # of one attempt, from its dispatch
    deadline: int | None = None  # of the whole job
    submitted: int = 0
    size_in: int = 0  # set by `Store.add`
    body: bytes = b""
    envelope: bytes = b""  # reply address in the client's dialect
    options: bytes = b""  # the core's job options, as JSON


class AttemptRecord(msgspec.Struct):
    """One dispatch of a job to a worker."""

    number: int
    worker: bytes
    started: int
    ended: int | None  # None while the attempt runs
    outcome: str  # the job's final state, or why the attempt was lost; empty while the attempt runs
    token: bytes = b""  # a reply to this attempt must carry the token


class PartialRecord(msgspec.Struct):
    """A partial reply."""

    number: int  # grows within a job, with gaps
    attempt: int
    at: int
    body: bytes


class EventRecord(msgspec.Struct):
    """An event that a worker or the broker reported about a job."""

    number: int  # grows within a job, with gaps
    at: int
    worker: bytes
    kind: str
    body: bytes


class ResultRecord(msgspec.Struct):
    """The result of a finished job. `body` is None if the job finished without one."""

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
    """Fields that `Store.update` changes; None leaves a field as it is."""

    max_attempts: int | None = None
    options: bytes | None = None
    release_key: bool = False  # the next job with the same idempotency key counts as new

    def apply_to(self, job: JobRecord) -> None:
        """Change the fields of the record."""
        if self.max_attempts is not None:
            job.max_attempts = self.max_attempts
        if self.options is not None:
            job.options = self.options
        if self.release_key:
            job.key = None

    def merge(self, later: JobChange) -> None:
        """Add a later change of the same job to this one."""
        if later.max_attempts is not None:
            self.max_attempts = later.max_attempts
        if later.options is not None:
            self.options = later.options
        self.release_key = self.release_key or later.release_key


class JobFilter(msgspec.Struct, kw_only=True):
    """Conditions of `Store.find`; None matches all jobs. `since` and `before` are times of submission, `before`
    excluded."""

    state: str | None = None
    service: bytes | None = None
    client: bytes | None = None
    principal: str | None = None
    key: str | None = None
    parent: str | None = None
    since: int | None = None
    before: int | None = None
    oldest_first: bool = False
    page: str | None = None  # `JobPage.next` of the previous page
    limit: int = 100


class JobPage(msgspec.Struct):
    """A page of jobs, without their requests. Jobs that arrive between two pages shift nothing."""

    jobs: list[JobRecord]
    next: str | None  # None on the last page


class KvItem(msgspec.Struct, frozen=True):
    """An item of the key-value store, named within its space."""

    space: str
    name: bytes
    value: bytes
    at: int  # time of writing
    until: int | None  # expiry; readers check it, the store removes expired items in `Store.trim` only


class JobCount(msgspec.Struct):
    """The number of jobs of one service in one state."""

    service: bytes
    state: str
    jobs: int


class Holding(msgspec.Struct):
    """What the jobs of one principal take in the store: the sum of their footprints."""

    principal: str
    jobs: int
    size: int


class EndedJob(msgspec.Struct):
    """A finished job that may be removed to make room."""

    id: str
    state: str
    size: int


class Retention(msgspec.Struct):
    """How long finished jobs are kept, by service; None keeps them forever. Dead letters are always kept."""

    default: int | None
    services: Mapping[bytes, int | None] = {}

    def cutoff(self, service: bytes, now: int) -> int | None:
        """Return the time at or before which a job of `service` must have finished to be removed."""
        keep = self.services.get(service, self.default)
        return None if keep is None else now - keep
