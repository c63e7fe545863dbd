"""Waiting jobs: fair between clients, higher priorities first, and nobody waits for ever behind them.

A line is a ring of lanes, one lane per client: each turn takes one job of the next client, so one client's 10,000
waiting requests do not starve another's one (MDP §Overall Topology: fairness SHOULD be). Jobs of another priority than
0 have a ring of their own beside it, a `level`; whose turn it is then depends on priority and age: a job that has
waited for `ageing` seconds counts like one of the next higher priority. The age of a level is that of its first job.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from polydomo.core.policy import FOREVER
from polydomo.core.timers import Timer

if TYPE_CHECKING:
    from polydomo.core.client import Client
    from polydomo.core.job import Job
    from polydomo.core.registry import Registry
    from polydomo.core.service import Service


class ClientQueue:
    """The waiting jobs of one client in one line, oldest first."""

    __slots__ = ("client", "jobs")

    def __init__(self, client: Client) -> None:
        self.client = client
        self.jobs: deque[Job] = deque()


class FairQueue(Timer):
    """See the module's text. A service is a line itself (its jobs for any worker); `OneWorkersLine` is for jobs that
    only one worker may do."""

    def __init__(self, broker: Registry, priority: int = 0) -> None:
        super().__init__()
        self.broker = broker
        self.priority = priority
        self.lanes: dict[Client, ClientQueue] = {}
        self.rotation: deque[ClientQueue] = deque()
        self.waiting = 0  # with all levels
        self.bands: dict[int, PriorityBand] = {}  # those that have jobs
        self.uneven = False  # some here have a wait of their own, so a later one may expire earlier

    def top(self) -> FairQueue:
        """The line that counts these jobs."""
        return self

    def service(self) -> Service:
        """Whose jobs these are."""
        raise NotImplementedError

    def shrunk(self, count: int) -> None:
        """So many jobs wait here no longer."""

    def add(self, job: Job) -> None:
        """Queue a job behind its client's others."""
        line = self if job.extra is None else self._seat(job)
        client = job.client
        lane = line.lanes.get(client)
        if lane is None:
            lane = line._open_lane(client)
            line.rotation.append(lane)
        lane.jobs.append(job)
        self.waiting += 1

    def add_first(self, job: Job) -> None:
        """Queue a job that lost its worker: it has waited already, so it is next."""
        line = self if job.extra is None else self._seat(job)
        lane = line.lanes.get(job.client)
        if lane is None:
            lane = line._open_lane(job.client)
        else:
            line.rotation.remove(lane)
        line.rotation.appendleft(lane)
        lane.jobs.appendleft(job)
        self.waiting += 1

    def next(self) -> Job:
        """The job whose turn it is. Only when `waiting` is not 0."""
        line = self if not self.bands else self._first_level()
        ring = line.rotation
        lane = ring[0]
        job = lane.jobs.popleft()
        if lane.jobs:
            ring.rotate(-1)
        else:
            ring.popleft()
            line._close_lane(lane)
        line._less(1)
        return job

    def next_of_ours(self) -> Job | None:
        """The same among the jobs of our own clients: other brokers' keep their places. None: there are only those."""
        if not self.bands and self.rotation and not self.rotation[0].client.relay:
            return self.next()
        best: tuple[FairQueue, ClientQueue] | None = None
        most = -FOREVER
        for line in self.rings():
            for lane in line.rotation:
                if not lane.client.relay:
                    weight = line._weight(lane.jobs[0])
                    if weight > most:
                        best = line, lane
                        most = weight
                    break
        if best is None:
            return None
        line, lane = best
        job = lane.jobs.popleft()
        line.rotation.remove(lane)
        if lane.jobs:
            line.rotation.append(lane)
        else:
            line._close_lane(lane)
        line._less(1)
        return job

    def drop_lane(self, client: Client) -> deque[Job]:
        """Take out everything a client has waiting in this ring."""
        lane = self.lanes[client]
        self.rotation.remove(lane)
        self._close_lane(lane)
        self._less(len(lane.jobs))
        return lane.jobs

    def remove(self, job: Job) -> None:
        """Take out one job that waits in this ring."""
        lane = self.lanes[job.client]
        lane.jobs.remove(job)
        if not lane.jobs:
            self.rotation.remove(lane)
            self._close_lane(lane)
        self._less(1)

    def rings(self) -> list[FairQueue]:
        """This line and its levels."""
        return [self, *self.bands.values()]

    def take_expired(self, now: float) -> list[Job]:
        """Take out what has waited too long."""
        expired: list[Job] = []
        for ring in self.rings():
            found = ring._take_expired(now)
            if found:
                expired += found
                ring._less(len(found))
        return expired

    def next_expiry(self) -> float:
        """When the first waiting job expires. Only when `waiting` is not 0."""
        earliest = FOREVER
        for ring in self.rings():
            for lane in ring.rotation:
                for job in lane.jobs:
                    earliest = min(earliest, job.expires)
                    if not job.attempt and job.extra is None and not ring.uneven:
                        break
        return earliest

    def shorten(self, latest: float) -> None:
        """Nobody here waits beyond `latest`. So jobs stay in the order of their expiry if the wait gets shorter."""
        for lane in self.rotation:
            for job in lane.jobs:
                if job.extra is None:
                    job.expires = min(job.expires, latest)

    def jobs(self) -> list[Job]:
        """Everything that waits."""
        return [job for ring in self.rings() for lane in ring.rotation for job in lane.jobs]

    def fire(self, now: float) -> None:
        """The oldest waiting job may have expired."""
        self.broker.expire_queue(self)

    def _seat(self, job: Job) -> FairQueue:
        """The ring a job with options belongs into."""
        extra = job.extra
        if extra is None:
            return self
        line: FairQueue = self
        if extra.priority:
            level = self.bands.get(extra.priority)
            if level is None:
                level = self.bands[extra.priority] = PriorityBand(self, extra.priority)
            line = level
        extra.line = line
        if extra.wait >= 0:
            line.uneven = True
        return line

    def _first_level(self) -> FairQueue:
        best: FairQueue | None = None
        most = -FOREVER
        for ring in self.rings():
            if ring.rotation:
                weight = ring._weight(ring.rotation[0].jobs[0])
                if weight > most:
                    best = ring
                    most = weight
        assert best is not None
        return best

    def _weight(self, job: Job) -> float:
        """Of a job in this ring: its priority, and its age."""
        return self.priority + (self.broker.now - job.submitted) / self.top().service().policy.ageing

    def _less(self, count: int) -> None:
        """So many jobs left this ring."""
        top = self.top()
        top.waiting -= count
        if not self.rotation:
            self.uneven = False
        if self is not top and not self.rotation:
            top.bands.pop(self.priority, None)
        top.shrunk(count)

    def _take_expired(self, now: float) -> list[Job]:
        expired: list[Job] = []
        for lane in list(self.rotation):
            jobs = lane.jobs
            kept: list[Job] = []
            # In order of arrival, so the first that has time left ends the search; but jobs that came back to the
            # front after a lost attempt wait anew, and durable ones for ever: they may have more time left than
            # those behind them.
            while jobs:
                if jobs[0].expires <= now:
                    expired.append(jobs.popleft())
                elif jobs[0].attempt or jobs[0].extra is not None or self.uneven:
                    kept.append(jobs.popleft())
                else:
                    break
            jobs.extendleft(reversed(kept))
            if not jobs:
                self.rotation.remove(lane)
                self._close_lane(lane)
        return expired

    def _open_lane(self, client: Client) -> ClientQueue:
        lane = ClientQueue(client)
        self.lanes[client] = lane
        client.lanes[self] = lane
        return lane

    def _close_lane(self, lane: ClientQueue) -> None:
        del self.lanes[lane.client]
        del lane.client.lanes[self]


class PriorityBand(FairQueue):
    """The jobs of one priority in a line."""

    def __init__(self, line: FairQueue, priority: int) -> None:
        super().__init__(line.broker, priority)
        self._line = line

    def top(self) -> FairQueue:
        return self._line
