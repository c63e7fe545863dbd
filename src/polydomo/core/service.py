"""A service: its waiting jobs, and its workers, least recently used first."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from polydomo.core.counts import Counts
from polydomo.core.policy import Policy
from polydomo.core.queue import FairQueue

if TYPE_CHECKING:
    from polydomo.core.job import Job
    from polydomo.core.ports import WakeupPort
    from polydomo.core.registry import Registry
    from polydomo.core.worker import Worker


class Service(FairQueue):
    """Exists while it has workers, jobs or a configuration of its own. As a line, it has the jobs that any of its
    workers may do; those for one worker only wait in `named`."""

    def __init__(
        self, broker: Registry, name: bytes, policy: Policy, counts: Counts, internal: bool = False
    ) -> None:
        super().__init__(broker)
        self.name = name
        self.counts = counts
        self.internal = internal  # the broker's own: what is asked there is no job
        self.policy = policy
        self.workers: dict[Worker, None] = {}
        self.idle: OrderedDict[Worker, None] = OrderedDict()
        self.names: dict[bytes, Worker] = {}  # its workers; of two with one name the newer
        self.named: dict[bytes, PinnedQueue] = {}  # those that have jobs
        self.targeted = 0  # jobs in them
        self.wanted: dict[bytes, dict[Job, None]] = {}  # by resource: jobs that wait for whoever has it
        self.convening: dict[Job, None] = {}  # for all its workers, and there were none yet
        self.running = 0
        self.elsewhere = (
            0  # being stored, recorded or delayed: no job of any queue, but the service is needed
        )
        self.paused = False
        self.wakeup: WakeupPort | None = None  # tells workers that fetch their jobs when there are some
        self.mark = -1  # its place in the ledger's rows (`core.job_columns`)

    def service(self) -> Service:
        return self

    def next(self) -> Job:
        """The usual case of a line's `next`, without the calls."""
        if self.bands:
            return super().next()
        ring = self.rotation
        lane = ring[0]
        job = lane.jobs.popleft()
        if lane.jobs:
            ring.rotate(-1)
        else:
            ring.popleft()
            self._close_lane(lane)
            if not ring:
                self.uneven = False
        self.waiting -= 1
        return job

    def line_of(self, name: bytes) -> PinnedQueue:
        """Where jobs for this worker wait."""
        line = self.named.get(name)
        if line is None:
            line = self.named[name] = PinnedQueue(self, name)
        return line

    def unused(self) -> bool:
        """Does nothing need it?"""
        return not (self.workers or self.waiting or self.targeted or self.running or self.elsewhere)


class PinnedQueue(FairQueue):
    """Jobs that only one worker may do, whether it is here or not. It exists while it has jobs."""

    def __init__(self, home: Service, name: bytes) -> None:
        super().__init__(home.broker)
        self.home = home
        self.name = name

    def service(self) -> Service:
        return self.home

    def add(self, job: Job) -> None:
        super().add(job)
        self.home.targeted += 1

    def add_first(self, job: Job) -> None:
        super().add_first(job)
        self.home.targeted += 1

    def shrunk(self, count: int) -> None:
        self.home.targeted -= count
        if not self.waiting:
            self.home.named.pop(self.name, None)
            self.broker.timers.clear(self)
