"""A worker as the core sees it: services it offers, jobs it holds, signs of life."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polydomo.core.policy import FOREVER, Heartbeat
from polydomo.core.timers import NEVER, Timer

if TYPE_CHECKING:
    from polydomo.core.broker import Broker
    from polydomo.core.job import Job
    from polydomo.core.ports import WorkerPort
    from polydomo.core.service import Service


class Worker(Timer):
    """`running` maps the token of each attempt it holds to the job.

    Liveness: any command is a sign of life. An idle worker that shows none for `beat.liveness` intervals is expired.
    A busy one is only held to that if it has shown that it beats while busy; a worker whose implementation cannot
    (many have one thread) is given its job's own time instead, unless the service asks for more
    (`Policy.liveness_busy`).
    """

    def __init__(self, broker: Broker, name: bytes, dialect: str, port: WorkerPort, beat: Heartbeat) -> None:
        super().__init__()
        self.broker = broker
        self.name = name
        self.dialect = dialect
        self.port = port
        self.beat = beat
        self.services: list[Service] = []
        self.turn = 0  # which of several services is looked at first when it becomes free
        self.base_credit = 1  # how many jobs it may hold at once without asking
        self.credit = 1  # how many it may hold now; asking for more raises it until the worker is idle again
        self.parallel = False  # one job that takes too long does not keep it from others
        self.running: dict[bytes, Job] = {}
        self.late: dict[bytes, float] = {}  # tokens of attempts taken from it that it may still answer
        self.since = broker.now
        self.last_seen = broker.now
        self.last_sent = broker.now
        self.steady = False  # wants heartbeats also while other things are sent to it
        self.last_beat = broker.now
        self.beats_busy = False  # it has been heard while it held a job for longer than an interval
        self.must_beat = True  # its protocol has heartbeats for workers that hold jobs
        self.beats_sent = 0
        self.beats_seen = 0
        self.reading_paused = (
            False  # its connection is not being read (back-pressure): silence proves nothing
        )
        self.done = 0
        self.internal = False  # part of the broker itself: no liveness
        self.relay = False  # another broker: it has jobs of our own clients only, never another broker's
        self.anonymous = False  # its name is made up: it cannot come back under it
        self.own_turn = (
            True  # a job for it alone comes before one for anybody, if both wait; then the other way
        )
        self.resources: list[bytes] = []  # what it declared to have
        self.mark = -1  # its place in the ledger's rows (`core.job_columns`)

    def free(self) -> int:
        """How many more jobs it may be given now. With a late answer outstanding it gets none, unless its jobs do not
        hinder each other: then the late one only keeps its place."""
        if self.late:
            return self.credit - len(self.running) - len(self.late) if self.parallel else 0
        return self.credit - len(self.running)

    def set_deaf(self, reading_paused: bool) -> None:
        """Its connection is (not) being read. Silence counts from when it is read again."""
        self.reading_paused = reading_paused
        self.last_seen = self.broker.now

    def silence_allowed(self) -> float:
        """Return for how many intervals it may be silent now."""
        if not self.running:
            return self.beat.liveness
        if self.must_beat or self.beats_busy:
            policies = [job.service.policy for job in self.running.values()]
            strict = [policy.liveness_busy for policy in policies if policy.liveness_busy]
            if strict:
                return min(strict)
        return self.beat.liveness if self.beats_busy else FOREVER

    def held_longest(self) -> float:
        """When the oldest job it holds was dispatched; NEVER if it holds none."""
        for job in self.running.values():
            return job.dispatched
        return NEVER

    def fire(self, now: float) -> None:
        """Time for a heartbeat, or a sign of life is overdue, or a job has run for too long."""
        self.broker.check_worker(self)
