"""A core with fakes of its ports around it: clients and workers that write down what they are told."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from polydomo.core.broker import Broker
from polydomo.core.failure import Failure
from polydomo.core.model import ClientPort, Job, Worker, WorkerPort
from polydomo.core.pieces import Piece
from polydomo.core.policy import BrokerLimits, Heartbeat, Policy
from polydomo.core.ports import JobStorePort, Journal
from polydomo.core.principals import ANONYMOUS
from polydomo.core.result_history import JobResult
from polydomo.core.store_events import StoreEvents
from polydomo.core.tracked_job import Options


def half() -> float:
    """Randomness without surprises."""
    return 0.5


def make_broker(
    bounds: BrokerLimits | None = None, policy: Policy | None = None, random: Callable[[], float] = half
) -> Broker:
    """A core that does the same each time: its jobs are job-1, job-2, …"""
    numbers = itertools.count(1)
    return Broker(bounds, policy, first_token=0, new_uid=lambda: f"job-{next(numbers)}", random=random)


class FakeClient(ClientPort):
    """`heard` is all it was told, as (what, job id, body or reason); bodies are plain bytes here."""

    def __init__(self, broker: Broker, name: bytes, principal: str = ANONYMOUS) -> None:
        self.broker = broker
        self.heard: list[tuple[str, int, object]] = []
        self.flow: list[str] = []  # hold, release, forget
        self.envelopes: list[bytes] = []
        self.core = broker.join_client(name, "fake", self, principal)

    def ask(
        self,
        service: bytes,
        body: bytes = b"body",
        envelope: bytes = b"",
        options: Options | None = None,
    ) -> Job | None:
        return self.broker.submit(self.core, service, body, envelope, options)

    def partial(self, job: Job, body: bytes) -> None:
        self.heard.append(("partial", job.id, body))

    def final(self, job: Job, body: bytes) -> None:
        self.heard.append(("final", job.id, body))
        self.envelopes.append(job.envelope)

    def failed(self, job: Job, failure: Failure) -> None:
        self.heard.append(("failed", job.id, failure.reason))
        self.envelopes.append(job.envelope)

    def hold(self) -> None:
        self.flow.append("hold")

    def release(self) -> None:
        self.flow.append("release")

    def forget(self) -> None:
        self.flow.append("forget")

    def finals(self) -> list[object]:
        return [what for kind, _, what in self.heard if kind == "final"]

    def reasons(self) -> list[object]:
        return [what for kind, _, what in self.heard if kind == "failed"]


class FakeWorker(WorkerPort):
    """`given` is every job it ever got with the token it got it by; `holds` those it has not answered."""

    def __init__(self, broker: Broker, name: bytes, beat: Heartbeat, principal: str = ANONYMOUS) -> None:
        self.broker = broker
        self.given: list[tuple[bytes, int]] = []
        self.bodies: list[bytes] = []
        self.holds: list[bytes] = []
        self.beats: list[float] = []
        self.dismissals: list[str] = []
        self.core = broker.make_worker(name, "fake", self, beat, principal)

    def dispatch(self, job: Job) -> None:
        self.given.append((job.token, job.id))
        self.bodies.append(job.body)
        self.holds.append(job.token)

    def heartbeat(self) -> None:
        self.beats.append(self.broker.now)

    def dismiss(self, reason: str) -> None:
        self.dismissals.append(reason)

    @property
    def jobs(self) -> list[int]:
        """The ids of all jobs it was given, in order."""
        return [job for _, job in self.given]

    def register(self, service: bytes) -> bool:
        return self.broker.register(self.core, service)

    def answer(self, body: bytes = b"answer", token: bytes | None = None) -> int:
        """The oldest job it holds, unless another is named."""
        return self.broker.final(self.core, self._take(token), body)

    def partial(self, body: bytes = b"part") -> int:
        return self.broker.partial(self.core, self.holds[0], body)

    def fail(self, token: bytes | None = None) -> int:
        failure = Failure("worker-error", "it could not", b"plain", b"{}")
        return self.broker.fail(self.core, self._take(token), failure)

    def forward(self, service: bytes, body: bytes = b"passed on", token: bytes | None = None) -> int:
        return self.broker.forward(self.core, self._take(token), service, body)

    def leave(self) -> None:
        self.broker.leave(self.core, "test")

    def seen(self) -> None:
        self.broker.seen(self.core)

    def ask_for_more(self, bound: int = 64) -> None:
        self.broker.ask_for_more(self.core, bound)

    def _take(self, token: bytes | None) -> bytes:
        if token is None:
            return self.holds.pop(0)
        if token in self.holds:
            self.holds.remove(token)
        return token


class Ledger(Journal):
    """All that happened."""

    def __init__(self) -> None:
        self.finished_ids: list[int] = []
        self.events: list[tuple[str, bytes, str]] = []

    def finished(self, job: Job) -> None:
        self.finished_ids.append(job.id)

    def event(self, kind: str, worker: Worker, reason: str) -> None:
        self.events.append((kind, worker.name, reason))


class QuietKeeper(JobStorePort):
    """A disk that forgets what fakes are not interested in."""

    store_events: StoreEvents

    def event(self, job: Job, name: bytes, kind: str, body: bytes) -> None:
        pass

    def alias(self, leader: Job, job: Job) -> None:
        self.store_events.aliased(job, None)

    def convened(self, job: Job) -> None:
        pass

    def gathered(self, job: Job, index: int, piece: Piece) -> None:
        pass

    def read(self, uid: str, then: Callable[[JobResult | None], None]) -> None:
        then(None)


class Bench:
    """A broker whose time is moved by hand. Its workers beat each second and are given up after three."""

    def __init__(
        self,
        *,
        wait: float = 60.0,
        timeout: float = 60.0,
        retries: int = 2,
        queue: int = 100_000,
        beat: Heartbeat | None = None,
        bounds: BrokerLimits | None = None,
    ) -> None:
        self.broker = make_broker(bounds, Policy(wait, timeout, retries, queue))
        self.ledger = Ledger()
        self.broker.accounting.journal = self.ledger
        self.beat = beat or Heartbeat(1.0, 3)
        self._names = 0

    def client(self, name: bytes = b"", principal: str = ANONYMOUS) -> FakeClient:
        return FakeClient(self.broker, name or self._name(b"client"), principal)

    def worker(
        self,
        *services: bytes,
        name: bytes = b"",
        beat: Heartbeat | None = None,
        principal: str = ANONYMOUS,
    ) -> FakeWorker:
        worker = FakeWorker(self.broker, name or self._name(b"worker"), beat or self.beat, principal)
        for service in services:
            assert worker.register(service)
        return worker

    def at(self, now: float, *alive: FakeWorker) -> float:
        """Go to this time, ringing every alarm when it is due. `alive` workers show signs of life then."""
        while True:
            due = self.broker.timers.next()
            if due > now:
                break
            self.broker.advance(max(due, self.broker.now))
            for worker in alive:
                worker.seen()
            self.broker.tick()
        self.broker.advance(now)
        for worker in alive:
            worker.seen()
        return self.broker.tick()

    def jump(self, now: float) -> float:
        """Go to this time at once, as a loop does that was busy until then."""
        self.broker.advance(now)
        return self.broker.tick()

    def _name(self, kind: bytes) -> bytes:
        self._names += 1
        return b"%b-%d" % (kind, self._names)


def check_empty(broker: Broker) -> None:
    """Nothing is left of what happened but the counters."""
    assert broker.accounting.active == broker.accounting.memory == 0
    assert not broker.workers
    assert not broker.services
    assert not broker.busy()
    for client in broker.clients:
        assert client.jobs == client.size == 0
        assert not client.queues
        assert not client.held


def internal(broker: Broker) -> FakeWorker:
    """A worker that is part of the broker, as services/ makes them."""
    worker = FakeWorker(broker, b"broker", Heartbeat())
    worker.core.internal = True
    worker.core.base_credit = worker.core.credit = 1 << 30
    return worker
