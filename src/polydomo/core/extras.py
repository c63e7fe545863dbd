"""What only some jobs carry. Most have none of it, and cost nothing for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polydomo.core.policy import FOREVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from polydomo.core.gather import Gather
    from polydomo.core.job import Failure, Job
    from polydomo.core.queue import FairQueue
    from polydomo.core.targets import Assignment, Target
    from polydomo.core.timers import Timer


class Options:
    """What a client may say about a job, in a dialect that has words for it. Times are seconds from now."""

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
        self.key = key  # same key, same service: one execution, everybody gets the answer
        self.delay = delay  # not before
        self.deadline = deadline  # for its whole life
        self.durable = durable  # also where the service is not, unless it is configured not to be
        self.uid = uid  # the client's own name for the job; the same again is the same job
        self.target = target  # None: any worker of the service
        self.priority = priority  # higher ones first; -9 to 9
        self.timeout = timeout  # of one attempt, from dispatch; 0: the service's
        self.wait = wait  # how long it may wait for a worker; below 0: the service's, durable: for ever


class Extra:
    """Belongs to one job that is durable or came with options."""

    __slots__ = (
        "accepted",
        "added",
        "aliases",
        "answered",
        "began",
        "convene",
        "deadline",
        "durable",
        "ended",
        "ending",
        "followers",
        "gather",
        "hit",
        "holder",
        "key",
        "leader",
        "line",
        "memo",
        "named",
        "names",
        "number",
        "parent",
        "part",
        "patience",
        "places",
        "priority",
        "ready",
        "repeats",
        "resource",
        "restored",
        "result",
        "submitted",
        "target",
        "timeout",
        "timer",
        "uid",
        "unsafe",
        "unwanted",
        "wait",
        "waiters",
        "watchers",
        "worker",
    )

    def __init__(self, uid: str, options: Options, durable: bool, now: float, wall: int) -> None:
        self.uid = uid  # by which a durable job is known outside, and after a restart
        self.named = bool(options.uid)  # its client gave it this id, and will ask for it by that
        self.repeats = False  # it has the end of another job with its key or id
        self.key = options.key
        self.ready = now + options.delay
        self.deadline = now + options.deadline
        self.durable = durable
        self.priority = options.priority
        self.timeout = options.timeout
        self.wait = options.wait
        self.number = 0  # of its latest attempt, over all services and restarts: only ever grows
        self.submitted = wall  # microseconds of wall time, for records
        self.result: bytes | None = None  # waits for its commit
        self.followers: list[Job] = []  # asked for the same thing under the same key or id
        # Few jobs have any of these, and an empty list takes as much as nine fields.
        self.watchers: list[Job] | None = None  # stand for clients that hear of it, though it is not theirs
        self.memo = b""  # by which the same request is known again, at a memoised service
        self.waiters: list[Callable[[], None]] | None = None  # called when it has ended, and that is on disk
        self.added = False  # its keeper was told of it
        self.accepted = False  # its client was told, or may be
        self.unwanted: Failure | None = None  # it was cancelled before it was on disk: why
        self.unsafe = False  # it follows a durable one, and that is not yet on disk
        self.aliases: list[str] | None = None  # ids under which it was asked for before the restart
        self.leader: Job | None = None  # it follows this one itself
        self.timer: Timer | None = None  # rings at its deadline
        self.line: FairQueue | None = None  # where it waits
        # Whom it is for
        self.target: Target | None = options.target
        self.worker = b""  # the only one that may do it; empty: any
        self.resource = b""  # whoever has this may do it
        self.names: list[bytes] | None = None  # who will do it, once that is known
        self.places: list[Assignment] = []  # where its parts are done
        self.gather: Gather | None = None  # of those parts
        self.patience: Timer | None = None  # rings if no worker ever came
        self.convene: Timer | None = None  # rings a moment after the first has come
        self.parent: Job | None = None  # it is one part of this
        self.part = 0  # which
        self.holder = b""  # who had it when the broker was stopped
        # For records
        self.answered = 0.0  # when its end was known, and began to be recorded
        self.began = 0  # its latest attempt, in microseconds of wall time, as its keeper has it
        self.ended = 0  # the same of its end
        self.ending = 0  # its keeper's number for that
        self.hit = False  # its answer was known, or came for another who asked the same
        self.restored = False  # it comes from before the broker's start

    def several(self) -> bool:
        """Is its result gathered from several workers, however many there are?"""
        return self.target is not None and not self.target.single
