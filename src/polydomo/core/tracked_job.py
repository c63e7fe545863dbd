"""Jobs that features apply to: durable, with options, or with several clients that hear of them.

Most jobs are plain and have none of this, so they cost nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from polydomo.core.failure import Failure
from polydomo.core.model import Client, Job, Service
from polydomo.core.policy import FOREVER
from polydomo.core.queue import FairQueue
from polydomo.core.targets import Assignment, Target
from polydomo.core.timers import Timer

# Bytes that a tracked job takes beyond `JOB_COST`, its id among it. The two together: 920 compiled, 1,121 not; 1,290
# with a key, 1,340 with a deadline. Each further durable job over MDP: 1,058, beside some 90 MB for the database's
# caches and the writes under way (100,000 against 250,000 jobs).
TRACKED_COST: Final = 750


class Options:
    """The options of a job, as far as its client's dialect has words for them. Times are seconds from now."""

    __slots__ = ("deadline", "delay", "durable", "key", "priority", "target", "timeout", "uid", "wait")

    def __init__(
        self,
        key: bytes = b"",
        delay: float = 0.0,
        deadline: float = FOREVER,
        durable: bool = False,
        uid: str = "",
        target: Target | None = None,
        priority: int = 0,
        timeout: float = 0.0,
        wait: float = -1.0,
    ) -> None:
        self.key = key  # same key, same service: one execution, and all who asked get the result
        self.delay = delay  # not before
        self.deadline = deadline  # for its whole life
        self.durable = durable  # also where the service is not, unless it is configured not to be
        self.uid = uid  # the client's own name for the job; the same again is the same job
        self.target = target  # None: any worker of the service
        self.priority = priority  # higher ones first; -9 to 9
        self.timeout = timeout  # of one attempt, from dispatch; 0: the service's
        self.wait = wait  # how long it may wait for a worker; below 0: the service's, durable: for ever


NO_OPTIONS: Final = Options()


class TrackedJob(Job):
    """A job with an id, options, a record on disk, or followers."""

    __slots__ = (
        "accepted",
        "added",
        "aliases",
        "answered",
        "assignments",
        "began",
        "cache_key",
        "cancelled",
        "deadline",
        "deadline_timer",
        "durable",
        "ended",
        "ending",
        "followers",
        "hit",
        "holder",
        "holder_principal",
        "key",
        "leader",
        "names",
        "number",
        "own_wait",
        "parent",
        "part",
        "pinned_worker",
        "priority",
        "queue",
        "ready",
        "repeats",
        "request",
        "resource",
        "restored",
        "result",
        "stage",
        "submitted_wall",
        "target",
        "timeout",
        "uid",
        "unsafe",
        "user_named",
        "waiters",
        "watchers",
    )

    def __init__(
        self,
        id: int,
        client: Client,
        service: Service,
        body: bytes,
        envelope: bytes,
        submitted: float,
        options: Options,
        uid: str,
        wall: int,
    ) -> None:
        super().__init__(id, client, service, body, envelope, submitted, True)
        self.uid = uid  # by which the job is known outside, and after a restart
        self.user_named = bool(options.uid)  # its client gave it this id, and will ask for it by that
        self.key = options.key
        self.request = b""  # a digest of what was asked, if it has a key: forwarding changes the body
        self.ready = submitted + options.delay
        self.deadline = submitted + options.deadline
        self.priority = options.priority
        self.timeout = options.timeout
        self.own_wait = options.wait
        self.durable = False  # it has, or will have, a record on disk
        self.submitted_wall = wall  # microseconds of wall time, for records
        self.stage = 0  # the next feature that it passes
        self.accepted = False  # its client was told, or may be
        self.cancelled: Failure | None = None  # it was cancelled while it was written to disk: why
        self.queue: FairQueue[Any] | None = None  # the ring that it waits in
        # Others that asked for the same
        self.repeats = False  # it has the end of another job with its key or id
        self.leader: TrackedJob | None = None  # the job that is run in its place
        self.followers: list[TrackedJob] = []  # jobs that have this one as their leader
        self.unsafe = False  # it follows a durable job, and that is not yet on disk
        # Few jobs have any of these, and an empty list takes as much as nine fields.
        self.watchers: list[TrackedJob] | None = (
            None  # stand for clients that hear of it, though it is not theirs
        )
        self.waiters: list[Callable[[], None]] | None = None  # called when it has ended, and that is on disk
        self.aliases: list[str] | None = None  # ids under which it was asked for before the restart
        # Who does it
        self.target: Target | None = options.target
        self.pinned_worker = b""  # the only worker that may do it; empty: any
        self.resource = b""  # only the holder of this may do it
        self.names: list[bytes] | None = None  # which workers do it, once that is known
        self.assignments: list[Assignment] = []  # where its parts are done
        self.parent: TrackedJob | None = None  # it is one part of this
        self.part = 0  # which
        self.holder = b""  # the worker that had it when the broker was stopped
        self.holder_principal = ""  # and that worker's principal
        # Features
        self.cache_key = b""  # by which the same request is known again
        self.deadline_timer: Timer | None = None
        self.hit = False  # its result was in the cache, or came for another job that asked the same
        self.restored = False  # it comes from before the broker's start
        # Records
        self.result: bytes | None = None  # waits for its commit
        self.number = 0  # of its latest attempt, over all services and restarts: only ever grows
        self.added = False  # the store was told of it
        self.answered = 0.0  # when its end was known, and began to be recorded
        self.began = 0  # its latest attempt, in microseconds of wall time, as the store has it
        self.ended = 0  # the same of its end
        self.ending = 0  # the store's number for that

    def enter(self, queue: FairQueue[Any]) -> FairQueue[Any]:
        ring = queue.band(self.priority) if self.priority else queue
        self.queue = ring
        if self.own_wait >= 0:
            ring.uneven = True
        return ring

    def owner(self) -> str:
        """Return the name of the principal that submitted the job."""
        return self.client.principal.name

    def is_gathered(self) -> bool:
        """Return whether its result is gathered from several workers, however many there are."""
        return self.target is not None and not self.target.single

    def is_durable(self) -> bool:
        """Return whether the job, or the job that it is a part of, is on disk."""
        return self.durable or (self.parent is not None and self.parent.is_durable())

    def survives_client(self) -> bool:
        """Return whether the job is worth running although its client is gone."""
        if self.parent is not None:
            return not self.parent.client.gone or self.parent.survives_client()
        return self.durable or len(self.followers) > 0

    def subscribers(self) -> list[TrackedJob]:
        """Return the job, its followers and its watchers, as far as their clients are here."""
        if not (self.followers or self.watchers):
            return [] if self.client.gone else [self]
        return [one for one in [self, *self.followers, *(self.watchers or ())] if not one.client.gone]


def is_durable(job: Job) -> bool:
    """Return whether a job is on disk."""
    return isinstance(job, TrackedJob) and job.is_durable()


def survives_client(job: Job) -> bool:
    """Return whether a job is worth running although its client is gone."""
    return isinstance(job, TrackedJob) and job.survives_client()
