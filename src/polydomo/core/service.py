"""A service: its waiting jobs, fair between clients, and its workers, least recently used first."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from polydomo.core.alarms import Timed
from polydomo.core.policy import FOREVER, Policy

if TYPE_CHECKING:
    from polydomo.core.client import Client
    from polydomo.core.job import Job
    from polydomo.core.registry import Registry
    from polydomo.core.worker import Worker


class Lane:
    """The waiting jobs of one client at one service, oldest first."""

    __slots__ = ("client", "jobs")

    def __init__(self, client: Client) -> None:
        self.client = client
        self.jobs: deque[Job] = deque()


class Service(Timed):
    """Exists while it has workers, jobs or a configuration of its own.

    The queue is a ring of lanes: each turn takes one job of the next client, so one client's 10,000 waiting requests
    do not starve another's one (MDP §Overall Topology: fairness SHOULD be).
    """

    def __init__(self, broker: Registry, name: bytes, policy: Policy) -> None:
        super().__init__()
        self.broker = broker
        self.name = name
        self.policy = policy
        self.workers: dict[Worker, None] = {}
        self.idle: OrderedDict[Worker, None] = OrderedDict()
        self.lanes: dict[Client, Lane] = {}
        self.ring_of_lanes: deque[Lane] = deque()
        self.waiting = 0
        self.running = 0
        self.elsewhere = (
            0  # being stored, recorded or delayed: no job of any queue, but the service is needed
        )
        self.paused = False
        self.done = 0
        self.failed = 0
        self.retried = 0

    def add(self, job: Job) -> None:
        """Queue a job behind its client's others."""
        client = job.client
        lane = self.lanes.get(client)
        if lane is None:
            lane = self._open_lane(client)
            self.ring_of_lanes.append(lane)
        lane.jobs.append(job)
        self.waiting += 1

    def add_first(self, job: Job) -> None:
        """Queue a job that lost its worker: it has waited already, so it is next."""
        lane = self.lanes.get(job.client)
        if lane is None:
            lane = self._open_lane(job.client)
        else:
            self.ring_of_lanes.remove(lane)
        self.ring_of_lanes.appendleft(lane)
        lane.jobs.appendleft(job)
        self.waiting += 1

    def next(self) -> Job:
        """The job whose turn it is. Only when `waiting` is not 0."""
        ring = self.ring_of_lanes
        lane = ring[0]
        job = lane.jobs.popleft()
        if lane.jobs:
            ring.rotate(-1)
        else:
            ring.popleft()
            self._close_lane(lane)
        self.waiting -= 1
        return job

    def drop_lane(self, client: Client) -> deque[Job]:
        """Take out everything a client has waiting here."""
        lane = self.lanes[client]
        self.ring_of_lanes.remove(lane)
        self._close_lane(lane)
        self.waiting -= len(lane.jobs)
        return lane.jobs

    def remove(self, job: Job) -> None:
        """Take out one job that waits."""
        lane = self.lanes[job.client]
        lane.jobs.remove(job)
        self.waiting -= 1
        if not lane.jobs:
            self.ring_of_lanes.remove(lane)
            self._close_lane(lane)

    def take_expired(self, now: float) -> list[Job]:
        """Take out what has waited too long."""
        expired: list[Job] = []
        for lane in list(self.ring_of_lanes):
            jobs = lane.jobs
            kept: list[Job] = []
            # In order of arrival, so the first that has time left ends the search; but jobs that came back to the
            # front after a lost attempt wait anew, and durable ones for ever: they may have more time left than
            # those behind them.
            while jobs:
                if jobs[0].expires <= now:
                    expired.append(jobs.popleft())
                    self.waiting -= 1
                elif jobs[0].attempt or jobs[0].extra is not None:
                    kept.append(jobs.popleft())
                else:
                    break
            jobs.extendleft(reversed(kept))
            if not jobs:
                self.ring_of_lanes.remove(lane)
                self._close_lane(lane)
        return expired

    def next_expiry(self) -> float:
        """When the first waiting job expires. Only when `waiting` is not 0."""
        earliest = FOREVER
        for lane in self.ring_of_lanes:
            for job in lane.jobs:
                earliest = min(earliest, job.expires)
                if not job.attempt and job.extra is None:
                    break
        return earliest

    def shorten(self, latest: float) -> None:
        """Nobody here waits beyond `latest`. So jobs stay in the order of their expiry if the wait gets shorter."""
        for lane in self.ring_of_lanes:
            for job in lane.jobs:
                if job.extra is None:
                    job.expires = min(job.expires, latest)

    def ring(self, now: float) -> None:
        """The oldest waiting job may have expired."""
        self.broker.look_at_service(self)

    def _open_lane(self, client: Client) -> Lane:
        lane = Lane(client)
        self.lanes[client] = lane
        client.lanes[self] = lane
        return lane

    def _close_lane(self, lane: Lane) -> None:
        del self.lanes[lane.client]
        del lane.client.lanes[self]
