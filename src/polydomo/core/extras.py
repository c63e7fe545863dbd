"""What only some jobs carry. Most have none of it, and cost nothing for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polydomo.core.policy import FOREVER

if TYPE_CHECKING:
    from polydomo.core.alarms import Timed
    from polydomo.core.job import Job


class Options:
    """What a client may say about a job, in a dialect that has words for it. Times are seconds from now."""

    __slots__ = ("deadline", "delay", "durable", "key")

    def __init__(
        self,
        key: bytes = b"",
        delay: float = 0.0,
        deadline: float = FOREVER,
        durable: bool = False,
    ) -> None:
        self.key = key  # same key, same service: one execution, everybody gets the answer
        self.delay = delay  # not before
        self.deadline = deadline  # for its whole life
        self.durable = durable  # also where the service is not


class Extra:
    """Belongs to one job that is durable or came with options."""

    __slots__ = (
        "deadline",
        "durable",
        "followers",
        "key",
        "number",
        "ready",
        "result",
        "submitted",
        "timer",
        "uid",
    )

    def __init__(self, uid: str, options: Options, durable: bool, now: float, wall: int) -> None:
        self.uid = uid  # by which a durable job is known outside, and after a restart
        self.key = options.key
        self.ready = now + options.delay
        self.deadline = now + options.deadline
        self.durable = durable
        self.number = 0  # of its latest attempt, over all services and restarts: only ever grows
        self.submitted = wall  # microseconds of wall time, for records
        self.result: bytes | None = None  # waits for its commit
        self.followers: list[Job] = []  # asked for the same thing under the same key
        self.timer: Timed | None = None  # rings at its deadline
