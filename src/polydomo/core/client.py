"""A client as the core sees it: someone with unanswered jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polydomo.core.ports import ClientPort
from polydomo.core.timers import Timer

if TYPE_CHECKING:
    from polydomo.core.broker import Broker
    from polydomo.core.job import Failure, Job
    from polydomo.core.queue import ClientQueue, FairQueue


class Client(Timer):
    """Its `lanes` are where its jobs wait, one per line, so that all of them can be dropped at once."""

    def __init__(self, broker: Broker, name: bytes, dialect: str, port: ClientPort) -> None:
        super().__init__()
        self.broker = broker
        self.name = name  # its ZeroMQ identity, or what its dialect calls it
        self.dialect = dialect
        self.form = ""  # of its dialect, if that has several: what its answers look like after a restart
        self.port = port
        self.since = broker.now
        self.jobs = 0  # unanswered
        self.size = 0  # bytes of their bodies
        self.total = 0  # ever submitted
        self.questions = 0  # of these, answered by the broker itself
        self.wait = -1.0  # how long its jobs may wait for a worker; below 0: as their service says
        self.retries = -1  # further attempts after a worker was lost; below 0: as their service says
        self.held = False  # no longer read from until some jobs are answered
        self.stalled = False  # no longer read from until the keeper has caught up
        self.gone = False  # for good: answers are dropped
        self.relay = False  # another broker, whose jobs are not passed on to a third
        self.lanes: dict[FairQueue, ClientQueue] = {}
        self.shadow: Client | None = None  # has those of its jobs that it will not be told of unasked
        self.gathers: dict[Job, None] = {}  # its jobs for several workers
        self.mark = -1  # its place in the ledger's rows (`core.job_columns`)

    def fire(self, now: float) -> None:
        """Its grace time is over."""
        self.broker.client_gone(self)
        self.port.forget()


class NullClientPort(ClientPort):
    """The port of a client that is not here."""

    def partial(self, job: Job, body: bytes) -> None:
        pass

    def final(self, job: Job, body: bytes) -> None:
        pass

    def failed(self, job: Job, failure: Failure) -> None:
        pass
