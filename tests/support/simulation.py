"""A small world around the core: clients, workers and time, driven by dice. Same dice, same history.

Clients ask, go away, come back or vanish; workers register, answer in any order, answer late, twice or what
they were never given, pass jobs on, ask for more, freeze, crash; some jobs are durable, keyed, delayed or
have a deadline, the disk is slow and sometimes full; time creeps and jumps; services pause, settings change,
the broker drains. After every step `invariants.check` looks at everything. What the world itself watches over:

- every job of a living client ends exactly once, in an answer of its current attempt or in a failure;
- a durable job is dispatched only when it is on disk, and its client is told of its end only when that is;
- nobody is told anything about a job he did not ask for, or after he is gone;
- no worker is given a job it has no room for, or while it owes a late answer, or after it was dismissed;
- at the end, when everybody has left, nothing remains.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

from polydomo.core import failure as reasons
from polydomo.core import states
from polydomo.core.broker import ANSWERED, LATE, STRAY
from polydomo.core.failure import Failure
from polydomo.core.model import ClientPort, Job, Worker, WorkerPort
from polydomo.core.pieces import Piece, unpack
from polydomo.core.policy import FOREVER, BrokerLimits, Heartbeat, Policy
from polydomo.core.ports import Journal
from polydomo.core.principals import Authority, Quota
from polydomo.core.services import is_question
from polydomo.core.targets import ALL, NAMES, RESOURCES, Target
from polydomo.core.timers import NEVER
from polydomo.core.tracked_job import Options, TrackedJob, survives_client
from tests.support import invariants
from tests.support.core import QuietKeeper, make_broker

SERVICES = (b"a", b"b", b"once", b"forever", b"safe", b"patient")
ANYWHERE = (*SERVICES, b"made-up", b"mmi.service", b"mmi.unknown", b"", b"x" * 256)
REASONS = {
    reasons.EXPIRED,
    reasons.EXHAUSTED,
    reasons.WORKER_ERROR,
    reasons.QUEUE_FULL,
    reasons.NO_MEMORY,
    reasons.DRAINING,
    reasons.TOO_MANY_HOPS,
    reasons.BAD_SERVICE,
    reasons.TOO_MANY_SERVICES,
    reasons.CANCELLED,
    reasons.DEADLINE,
    reasons.STORE,
    reasons.DUPLICATE,
    reasons.BAD_TARGET,
    reasons.WORKER_GONE,
    reasons.QUOTA,
    reasons.KEY_REUSED,
}

PRINCIPALS = ("busy", "modest", "hasty")


class Ration(Authority):
    """Everything is allowed to everybody, but not any number of times."""

    quotas: ClassVar = {"modest": Quota(jobs=4, memory=6000), "hasty": Quota(rate=3.0)}

    def allows(self, principal: str, verb: str, service: bytes, name: bytes) -> bool:
        return True

    def quota(self, principal: str) -> Quota | None:
        return self.quotas.get(principal)


POLICIES = {
    b"once": Policy(wait=5, timeout=3, retries=0, queue=4),
    b"forever": Policy(wait=FOREVER, timeout=FOREVER, retries=1, queue=6),
    b"made-*": Policy(wait=2, timeout=3, retries=1, queue=2),
    b"safe": Policy(wait=4, timeout=4, retries=1, queue=8, durable=True),
    b"patient": Policy(wait=6, timeout=3, retries=3, queue=8, backoff=0.5),
}
RESOURCE_NAMES = (b"r1", b"r2", b"r3", b"r4")
BOUNDS = (
    BrokerLimits(client_jobs=6, client_bytes=300, client_grace=4.0, memory=20_000, hops=3, services=8),
    BrokerLimits(client_jobs=3, client_bytes=1000, client_grace=1.0, memory=6_000, hops=1, services=5),
)
DEFAULTS = (Policy(wait=8, timeout=5, retries=2, queue=10), Policy(wait=3, timeout=9, retries=1, queue=3))


class Dice:
    """Where choices come from: a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, number: int) -> int:
        return self._random.randrange(number)

    def spent(self) -> bool:
        return False


class BytesDice(Dice):
    """Or bytes, one per choice: what a fuzzer or a shrinker can work with."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._data = data
        self._pos = 0

    def below(self, number: int) -> int:
        if self.spent():
            return 0
        self._pos += 1
        return self._data[self._pos - 1] % number

    def spent(self) -> bool:
        return self._pos >= len(self._data)


class SimClient(ClientPort):
    """Remembers what it has asked and not been answered."""

    def __init__(self, world: World, name: bytes) -> None:
        self.world = world
        self.open: dict[int, bytes] = {}  # job → envelope
        self.away = False
        self.held = False
        principal = world.dice.below(len(PRINCIPALS))
        self.core = world.broker.join_client(name, "sim", self, PRINCIPALS[principal])

    def ask(self, service: bytes, size: int, options: Options | None = None) -> None:
        broker = self.world.broker
        number = broker.accounting.numbered + 1
        envelope = b"%d" % number
        self.open[number] = envelope
        job = broker.submit(self.core, service, bytes(size), envelope, options)
        if job is None:
            assert number not in self.open, "refused without a word"
        else:
            assert job.id == number

    def accepted(self, job: Job) -> None:
        assert job.id in self.open

    def assigned(self, job: Job, names: list[bytes]) -> None:
        assert job.id in self.open

    def partial(self, job: Job, body: bytes) -> None:
        assert job.id in self.open
        self._from_current_attempt(job, body)

    def final(self, job: Job, body: bytes) -> None:
        self._ends(job)
        if isinstance(job, TrackedJob) and job.is_gathered():
            pieces = unpack(body)
            assert all(piece.reason or piece.body in self.world.tokens for piece in pieces)
            assert len({piece.name for piece in pieces}) == len(pieces)
        else:
            self._from_current_attempt(job, body)

    def failed(self, job: Job, failure: Failure) -> None:
        self._ends(job)
        assert failure.reason in REASONS
        assert failure.message

    def hold(self) -> None:
        assert not self.core.gone
        self.held = True

    def release(self) -> None:
        assert self.held
        self.held = False

    def forget(self) -> None:
        assert self.away
        assert self.core.gone
        self.world.forget_client(self)

    def _ends(self, job: Job) -> None:
        assert not self.core.gone
        assert job.client is self.core
        assert self.open.pop(job.id) == job.envelope, "another job's envelope"
        if isinstance(job, TrackedJob) and job.durable and job.state != states.REFUSED:
            assert job.uid in self.world.disk.ended or self.world.disk.led(job), "told before it was on disk"

    def _from_current_attempt(self, job: Job, body: bytes) -> None:
        # Another's answer to the same question is as good, and of several workers any may speak.
        if isinstance(job, TrackedJob) and (job.key or job.user_named or job.is_gathered()):
            assert body in self.world.tokens
        else:
            assert self.world.attempts[job.id] == body, "an answer of a superseded attempt"


class SimWorker(WorkerPort):
    """Answers with the token it was given, so that an answer shows which attempt it belongs to."""

    def __init__(self, world: World, name: bytes, credit: int) -> None:
        self.world = world
        self.tokens: list[bytes] = []  # what it thinks it holds
        self.answered: list[bytes] = []
        self.frozen = False
        self.dismissed = False
        self.core = world.broker.make_worker(name, "sim", self, Heartbeat(1.0, 3))
        self.core.base_credit = self.core.credit = credit
        self.core.anonymous = world.dice.below(4) == 0
        self.core.parallel = world.dice.below(4) == 0

    def dispatch(self, job: Job) -> None:
        core = self.core
        assert not self.dismissed, "a job for a worker that was dismissed"
        assert len(core.running) + len(core.revoked) <= core.credit
        assert core.parallel or not core.revoked, "a job for a worker that owes a late answer"
        assert core.running[job.token] is job
        assert not job.client.gone or survives_client(job)
        if isinstance(job, TrackedJob) and job.durable:
            assert job.uid in self.world.disk.added, "dispatched before it was on disk"
            assert job.uid not in self.world.disk.ended
            assert not job.pinned_worker or job.pinned_worker == core.name, "a job for somebody else"
            assert job.deadline > self.world.broker.now or not self.world.ticked
        assert not job.service.paused
        assert job.attempt <= job.service.policy.retries + 1 or self.world.reconfigured
        assert job.token not in self.world.tokens, "a token given twice"
        self.world.tokens.add(job.token)
        self.world.attempts[job.id] = job.token
        self.tokens.append(job.token)

    def heartbeat(self) -> None:
        assert not self.dismissed

    def dismiss(self, reason: str) -> None:
        assert not self.dismissed
        self.dismissed = True


class Instant(WorkerPort):
    """Part of the broker: answers before `submit` returns."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.core = world.broker.make_worker(b"broker", "internal", self, Heartbeat())
        self.core.internal = True
        self.core.base_credit = self.core.credit = 1 << 30

    def dispatch(self, job: Job) -> None:
        self.world.tokens.add(job.token)
        self.world.attempts[job.id] = job.token
        if len(job.token) % 2:
            self.world.broker.fail(self.core, job.token, Failure(reasons.WORKER_ERROR, "no"))
        else:
            self.world.broker.final(self.core, job.token, job.token)


class Disk(QuietKeeper):
    """Slow: what it is told waits until `work`. In order, as a keeper must be; sometimes it cannot."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store_events = world.broker.store_events
        self.queue: list[tuple[str, Job]] = []
        self.added: set[str] = set()
        self.ended: set[str] = set()
        self.pieces: set[tuple[str, str]] = set()
        self.results: dict[tuple[str, bytes, bytes], tuple[bytes, bool]] = {}

    def add(self, job: Job) -> None:
        self.queue.append(("add", job))

    def attempt(self, job: Job) -> None:
        assert isinstance(job, TrackedJob)
        assert job.uid in self.added

    def partial(self, job: Job, body: bytes) -> None:
        assert isinstance(job, TrackedJob)
        assert job.uid in self.added

    def finish(self, job: Job) -> None:
        assert (job.result is not None) != (job.failure is not None)
        self.queue.append(("finish", job))

    def look_up(self, job: Job) -> None:
        self.queue.append(("look up", job))

    def gathered(self, job: Job, index: int, piece: Piece) -> None:
        self.queue.append((f"piece {index}", job))

    def convened(self, job: Job) -> None:
        assert isinstance(job, TrackedJob)
        assert job.uid in self.added

    def work(self, full: bool) -> None:
        """The oldest thing it was told is done, or cannot be."""
        if not self.queue:
            return
        what, job = self.queue.pop(0)
        failure = Failure(reasons.STORE, "the disk is full") if full else None
        if what == "add":
            assert job.uid not in self.added
            if not full:
                self.added.add(job.uid)
            self.store_events.stored(job, failure)
        elif what == "finish":
            assert job.uid not in self.ended, "recorded twice"
            if not full:
                self.ended.add(job.uid)
                if job.key and job.result is not None:
                    key = job.owner(), job.requested_service, job.key
                    self.results[key] = job.result, job.is_gathered()
            self.store_events.recorded(job, failure)
        elif what.startswith("piece"):
            assert (job.uid, what) not in self.pieces, "a piece recorded twice"
            if not full:
                self.pieces.add((job.uid, what))
            self.store_events.piece_stored(job, int(what.split()[1]), failure)
        else:
            found = None if full else self.results.get((job.owner(), job.requested_service, job.key))
            body, gathered = (None, False) if found is None else found
            self.store_events.looked_up(job, body, failure, b"", gathered)

    def led(self, job: Job) -> bool:
        """Does it only follow another with its key or id?"""
        assert isinstance(job, TrackedJob)
        leader = self.world.broker.jobs.known.get(job.uid)
        return (bool(job.key) or leader is not job) and job.uid not in self.added


class Chronicle(Journal):
    """Every job is noted once, and counted as the ledger would."""

    def __init__(self) -> None:
        self.ended: set[int] = set()
        self.counts: Counter[str] = Counter()

    def finished(self, job: Job) -> None:
        if isinstance(job, TrackedJob) and job.parent is not None:
            return  # one part of it
        assert job.id not in self.ended, "a job ended twice"
        assert job.state in states.ENDS
        assert (job.state != states.DONE) == (job.failure is not None)
        self.ended.add(job.id)
        if not is_question(job):
            repeat = isinstance(job, TrackedJob) and job.repeats and job.state != states.REFUSED
            self.counts["repeated" if repeat else states.STATES[job.state]] += 1

    def event(self, kind: str, worker: Worker, reason: str) -> None:
        assert kind in ("joined", "left", "expired")


class World:
    """See the module's text."""

    def __init__(self, dice: Dice) -> None:
        self.dice = dice
        self.broker = make_broker(BOUNDS[0], DEFAULTS[0])
        self.broker.services.policies = dict(POLICIES)
        self.broker.principals.use(Ration())
        self.broker.advance(1000.0)
        self.chronicle = Chronicle()
        self.broker.accounting.journal = self.chronicle
        self.clients: list[SimClient] = []
        self.workers: list[SimWorker] = []
        self.tokens: set[bytes] = set()
        self.attempts: dict[int, bytes] = {}
        self.reconfigured = False
        self.ticked = False
        self.disk = Disk(self)
        self.broker.use_store(self.disk)
        self.steps = 0
        self._names = 0
        instant = Instant(self)
        self.broker.register(instant.core, b"mmi.service")
        self.broker.services.fallback = instant.core
        deeds: list[tuple[int, Callable[[], None]]] = [
            (20, self._ask),
            (3, self._new_client),
            (1, self._client_vanishes),
            (2, self._client_away_or_back),
            (4, self._new_worker),
            (2, self._registers_again),
            (18, self._answers),
            (2, self._partial),
            (2, self._fails),
            (4, self._passes_on),
            (2, self._answers_nonsense),
            (6, self._beats),
            (4, self._asks_for_more),
            (2, self._crashes),
            (2, self._freezes_or_thaws),
            (1, self._deaf_or_not),
            (10, self._time_passes),
            (1, self._settings_change),
            (10, self._disk_works),
            (1, self._cancels),
            (1, self._pauses_or_resumes),
            (2, self._declares),
            (1, self._shares_out),
        ]
        self._deeds = [deed for weight, deed in deeds for _ in range(weight)]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            if self.dice.spent():
                break
            self.step()
        self.finish()

    def step(self) -> None:
        self.steps += 1
        self.ticked = False
        self._pick(self._deeds)()
        invariants.check(self.broker)

    def finish(self) -> None:
        """Everybody goes home; nothing is left."""
        broker = self.broker
        if self.dice.below(2):
            broker.control.drain()
        if self.dice.below(4) == 0:
            self._close()
            return
        if self.dice.below(2):
            for worker in self.workers:
                self._leave(worker)
        for service in list(broker.services.values()):
            broker.control.resume(service)
        broker.control.configure(BOUNDS[0], DEFAULTS[0], {})
        self.reconfigured = True
        for _ in range(30):
            self._tick(1.0)
            for worker in list(self.workers):
                if worker.tokens and not worker.frozen:
                    self._answer(worker, worker.tokens[0])
            self.disk.work(False)
        for worker in list(self.workers):  # one that froze with a job that may run for ever would keep it
            self._leave(worker)
        for _ in range(30):
            self._tick(1.0)
            self._empty_disk()
        for job in list(broker.jobs.known.values()):  # what would wait for ever, or for hours
            broker.cancel(job)
        self._tick(2.0)
        self._empty_disk()
        for client in self.clients:
            assert not client.open, "a client waits for ever"
            assert client.core.jobs == 0
        for client in list(self.clients):
            broker.client_gone(client.core)
        self._tick(10.0)
        assert not broker.jobs.known
        assert not broker._dedup.keys
        assert not broker._delay.held
        assert broker.accounting.active == broker.accounting.memory == broker._tracking.writing == 0
        assert list(broker.services) == [b"mmi.service"]
        assert not broker.clients
        assert all(worker.internal for worker in broker.workers)
        assert broker.timers.next() == NEVER
        assert self.disk.ended == self.disk.added, "a durable job was lost"
        assert self.chronicle.ended == set(range(1, broker.accounting.numbered + 1)), "a job vanished"
        for name in ("done", "failed", "cancelled", "dead", "refused", "repeated"):
            assert self.chronicle.counts[name] == getattr(broker.accounting.totals, name), name

    def _close(self) -> None:
        """The broker stops: whoever waits for something that is not safe on disk is told."""
        self.broker.close()
        self._empty_disk()
        unsafe = {number for client in self.clients for number in client.open}
        for job in self.broker.jobs.known.values():
            if job.is_durable():
                unsafe.discard(job.id)
        assert not unsafe, "not told, and not safe"
        assert all(worker.dismissed for worker in self.workers)

    def _empty_disk(self) -> None:
        while self.disk.queue:
            self.disk.work(False)

    def forget_client(self, client: SimClient) -> None:
        self.clients.remove(client)

    # What may happen

    def _ask(self) -> None:
        if self.clients:
            sizes = (0, 1, 40, 200)
            for _ in range(1 + self.dice.below(3)):
                client = self._pick(self.clients)
                if not client.away:
                    name = self._pick(SERVICES) if self.dice.below(4) else self._pick(ANYWHERE)
                    client.ask(name, self._pick(sizes), None if self.dice.below(3) else self._options())

    def _options(self) -> Options:
        return Options(
            key=self._pick((b"", b"k", b"l")),
            delay=self._pick((0.0, 0.0, 0.7, 5.0, 500.0)),
            deadline=self._pick((FOREVER, FOREVER, 1.0, 4.0, 700.0)),
            durable=self.dice.below(2) == 1,
            uid=self._pick(("", "", "", f"u{self.dice.below(200)}")),
            target=self._target(),
            priority=self._pick((0, 0, 0, 3, -2)),
            timeout=self._pick((0.0, 0.0, 2.0)),
            wait=self._pick((-1.0, -1.0, 1.5)),
        )

    def _target(self) -> Target | None:
        kind = self.dice.below(8)
        names = [worker.core.name for worker in self.workers] + [b"nobody"]
        if kind == 0:
            return Target(ALL, everywhere=self.dice.below(4) == 0)
        if kind == 1:
            return Target(NAMES, [self._pick(names)], single=True, everywhere=self.dice.below(4) == 0)
        if kind == 2:
            return Target(NAMES, [self._pick(names) for _ in range(self.dice.below(4))])
        if kind == 3:
            return Target(RESOURCES, [self._pick(RESOURCE_NAMES)], single=True)
        if kind == 4:
            return Target(RESOURCES, [self._pick(RESOURCE_NAMES) for _ in range(1 + self.dice.below(3))])
        return None

    def _declares(self) -> None:
        worker = self._some_worker()
        if worker is not None and not worker.dismissed:
            count = self.dice.below(3)
            self.broker.set_resources(worker.core, [self._pick(RESOURCE_NAMES) for _ in range(count)])

    def _shares_out(self) -> None:
        count = self.dice.below(5)
        self.broker.control.share_out(
            self._pick(SERVICES), [self._pick(RESOURCE_NAMES) for _ in range(count)]
        )

    def _disk_works(self) -> None:
        for _ in range(1 + self.dice.below(4)):
            self.disk.work(self.dice.below(10) == 0)

    def _cancels(self) -> None:
        alive = list(self.broker.jobs.known.values())
        if alive:
            job = self._pick(alive)
            state = job.state
            follows = job.leader is not None
            done = self.broker.cancel(job)
            at_once = (states.WAITING, states.RUNNING, states.DELAYED, states.GATHERING)
            assert done == (state in at_once or (state == states.STORING and not follows))

    def _pauses_or_resumes(self) -> None:
        own = [service for service in self.broker.services.values() if not service.name.startswith(b"mmi.")]
        if own:
            service = self._pick(own)
            if service.paused:
                self.broker.control.resume(service)
            else:
                self.broker.control.pause(service)

    def _new_client(self) -> None:
        if len(self.clients) < 6:
            self.clients.append(SimClient(self, self._name(b"client")))

    def _client_vanishes(self) -> None:
        if self.clients:
            client = self._pick(self.clients)
            self.clients.remove(client)
            self.broker.client_gone(client.core)

    def _client_away_or_back(self) -> None:
        if self.clients:
            client = self._pick(self.clients)
            if client.away:
                client.away = False
                self.broker.client_reconnected(client.core)
            else:
                client.away = True
                self.broker.client_disconnected(client.core)

    def _new_worker(self) -> None:
        if len(self.workers) < 8:
            worker = SimWorker(self, self._name(b"worker"), 1 + 2 * (self.dice.below(4) == 0))
            for _ in range(1 + self.dice.below(3)):
                self.broker.register(worker.core, self._pick(SERVICES))
            if worker.core in self.broker.workers:
                self.workers.append(worker)

    def _registers_again(self) -> None:
        worker = self._some_worker()
        if worker is not None and not worker.dismissed:
            name = self._pick(ANYWHERE)
            done = self.broker.register(worker.core, name)
            assert not done or (name and len(name) < 256 and not name.startswith(b"mmi."))

    def _answers(self) -> None:
        worker = self._some_worker()
        if worker is not None and worker.tokens:
            self._answer(worker, self._pick(worker.tokens))

    def _answer(self, worker: SimWorker, token: bytes) -> None:
        self._gave_up(worker, token)
        held = token in worker.core.running
        late = token in worker.core.revoked
        known = self.broker.final(worker.core, token, token)
        assert known == (ANSWERED if held else LATE if late else STRAY)

    def _partial(self) -> None:
        worker = self._some_worker()
        if worker is not None and worker.tokens:
            token = self._pick(worker.tokens)
            self.broker.partial(worker.core, token, token)

    def _fails(self) -> None:
        worker = self._some_worker()
        if worker is not None and worker.tokens:
            token = self._pick(worker.tokens)
            self._gave_up(worker, token)
            self.broker.fail(worker.core, token, Failure(reasons.WORKER_ERROR, "no", b"plain", b"{}"))

    def _passes_on(self) -> None:
        worker = self._some_worker()
        if worker is not None and worker.tokens:
            token = self._pick(worker.tokens)
            self._gave_up(worker, token)
            self.broker.forward(worker.core, token, self._pick(ANYWHERE), bytes(self._pick((0, 5, 300))))

    def _answers_nonsense(self) -> None:
        worker = self._some_worker()
        if worker is not None:
            strange = [b"", b"nonsense", *worker.answered[-3:]]
            strange += [token for other in self.workers if other is not worker for token in other.tokens[:1]]
            token = self._pick(strange)
            strays = self.broker.accounting.strays
            assert self.broker.final(worker.core, token, b"forged") == STRAY
            assert self.broker.partial(worker.core, token, b"forged") == STRAY
            assert self.broker.forward(worker.core, token, b"a", b"forged") == STRAY
            assert self.broker.accounting.strays == strays + 3

    def _beats(self) -> None:
        for worker in self.workers:
            if not worker.frozen and not worker.dismissed and self.dice.below(4):
                self.broker.seen(worker.core)

    def _asks_for_more(self) -> None:
        worker = self._some_worker()
        if worker is not None and not worker.dismissed:
            self.broker.seen(worker.core)
            self.broker.ask_for_more(worker.core, 4)

    def _crashes(self) -> None:
        if self.workers:
            self._leave(self._pick(self.workers))

    def _freezes_or_thaws(self) -> None:
        if self.workers:
            worker = self._pick(self.workers)
            worker.frozen = not worker.frozen

    def _deaf_or_not(self) -> None:
        if self.workers:
            worker = self._pick(self.workers)
            self.broker.set_reading_paused(worker.core, not worker.core.reading_paused)

    def _time_passes(self) -> None:
        step = self._pick((0.0, 0.1, 0.5, 1.0, 1.0, 2.5, 6.0, 40.0))
        if self.dice.below(4):
            self._tick(step)
        else:
            self.broker.advance(
                self.broker.now + step
            )  # the loop was busy: others come first, and the tick late

    def _settings_change(self) -> None:
        self.reconfigured = True
        policies = dict(POLICIES) if self.dice.below(2) else {}
        self.broker.control.configure(self._pick(BOUNDS), self._pick(DEFAULTS), policies)

    # Inside

    def _tick(self, step: float) -> None:
        self.broker.advance(self.broker.now + step)
        assert self.broker.tick() > self.broker.now
        self.ticked = True
        invariants.check(self.broker)
        invariants.check_time(self.broker)

    def _leave(self, worker: SimWorker) -> None:
        self.broker.leave(worker.core, "crashed")
        worker.dismissed = True
        self.workers = [other for other in self.workers if other is not worker]

    def _gave_up(self, worker: SimWorker, token: bytes) -> None:
        """The worker has answered it, whatever the broker thinks of that."""
        worker.tokens.remove(token)
        worker.answered.append(token)

    def _some_worker(self) -> SimWorker | None:
        awake = [worker for worker in self.workers if not worker.frozen]
        return self._pick(awake) if awake else None

    def _pick(self, things):  # type: ignore[no-untyped-def]
        return things[self.dice.below(len(things))]

    def _name(self, kind: bytes) -> bytes:
        self._names += 1
        return b"%b-%d" % (kind, self._names)
