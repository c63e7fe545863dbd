"""WMP without sockets: managers (real cores and sessions), devices and workers on one simulated network.

Time is virtual, latencies are random by seed, and each link keeps its order unless configured otherwise. Everything is
counted, so that tests can check the cost of a job.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable

import cbor2

from polydomo.core.failure import Failure
from polydomo.core.model import ClientPort, Job
from polydomo.core.policy import Heartbeat, Policy
from polydomo.dialects.registry import SESSION_FACTORIES
from polydomo.dialects.session import Outbox, PeerConnection, SessionContext, Transport
from polydomo.dialects.wmp import messages
from polydomo.dialects.wmp.device import Device
from polydomo.dialects.wmp.worker import WmpRequest, WmpWorkerProtocol
from polydomo.errors import ProtocolError
from polydomo.wire.frames import Message, join, split
from polydomo.wire.zmtp.connection import PeerInfo
from tests.support.core import make_broker


def wmp(
    command: int,
    headers: dict[str, object] | None = None,
    *payload: bytes,
    to: tuple[bytes, ...] = (),
    source: tuple[bytes, ...] = (),
) -> list[bytes]:
    """Return a message as frames, encoded from docs/reference/wmp-framing.md alone."""
    return [*to, b"", b"WMP1", bytes((command,)), *source, b"", cbor2.dumps(headers or {}), *payload]


def understood(frames: list[bytes]) -> tuple[list[bytes], int, list[bytes], dict[str, object], list[bytes]]:
    """Return destination, command, source, headers, payload."""
    end = frames.index(b"")
    assert frames[end + 1] == b"WMP1"
    command = frames[end + 2]
    rest = frames[end + 3 :]
    middle = rest.index(b"")
    return frames[:end], command[0], rest[:middle], cbor2.loads(rest[middle + 1]), rest[middle + 2 :]


class World:
    """The clock and the network."""

    def __init__(self, seed: int = 1, latency: float = 0.001) -> None:
        self.dice = random.Random(seed)
        self.latency = latency
        self.now = 1000.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.sent: Counter[str] = Counter()  # messages on the network, by command
        self.duplicates = 0.0  # probability that a message arrives twice
        self.disorder = 0.0  # probability that a message overtakes earlier ones
        self.managers: list[Manager] = []
        self.devices: list[Box] = []
        self.workers: list[Hand] = []
        self._number = 0

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self.events, (self.now + seconds, self._number, do))

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Advance the time; return True as soon as `until` holds."""
        end = self.now + seconds
        while self.events and self.events[0][0] <= end:
            when, _, do = heapq.heappop(self.events)
            self.now = max(self.now, when)
            do()
            if until is not None and until():
                return True
        self.now = end
        return until is not None and until()


class Cable:
    """One direction of a connection."""

    def __init__(self, world: World, deliver: Callable[[Message], None]) -> None:
        self.world = world
        self.deliver = deliver
        self.cut = False
        self._last = 0.0

    def send(self, data: bytes) -> None:
        """Send one or more messages."""
        for frames in _messages(data):
            self._send(frames)

    def _send(self, data: bytes) -> None:
        world = self.world
        if self.cut:
            return
        world.sent[messages.NAMES[_command(data)]] += 1
        for _ in range(2 if world.dice.random() < world.duplicates else 1):
            due = world.now + world.latency * (0.5 + world.dice.random())
            if world.dice.random() < world.disorder:
                due += 10 * world.latency
            else:
                due = self._last = max(due, self._last)
            world.after(due - world.now, lambda: self._arrive(data))

    def _arrive(self, data: bytes) -> None:
        if not self.cut:
            self.deliver(Message(data, 0, len(data)))


class Manager(ClientPort):
    """A core with one client, and WMP sessions below."""

    def __init__(self, world: World, name: bytes, policy: Policy | None = None) -> None:
        self.world = world
        self.name = name
        self.broker = make_broker(None, policy, world.dice.random)
        self.broker.advance(world.now)
        self.context = SessionContext(self.broker, Outbox(), SESSION_FACTORIES, Heartbeat())
        self.context.broker_id = name
        self.client = self.broker.join_client(b"client", "test", self)
        self.finals: Counter[int] = Counter()
        self.failures: list[str] = []
        self.partials = 0
        self.links: list[PeerConnection] = []
        self._alarm = float("inf")
        self.broker.timers.on_sooner = self._arm
        world.managers.append(self)

    def ask(self, service: bytes = b"echo", body: bytes = b"x") -> Job | None:
        self.broker.advance(self.world.now)
        job = self.broker.submit(self.client, service, join([body]), b"")
        self.flush()
        return job

    def open(self, identity: bytes, down: Cable) -> PeerConnection:
        """Accept a connection from below."""
        link = PeerConnection(self.context, Silent(), down.send)
        link.identity = identity
        link.named = identity[:1] != b"\0"
        self.links.append(link)
        return link

    def close(self, link: PeerConnection) -> None:
        """Handle the loss of a connection."""
        self.broker.advance(self.world.now)
        for session in link.sessions():
            session.lost()
        self.links.remove(link)
        self.flush()

    def receive(self, link: PeerConnection, message: Message) -> None:
        if link in self.links:
            self.broker.advance(self.world.now)
            link.message(message)
            self.flush()

    def flush(self) -> None:
        outbox = self.context.outbox
        while outbox.dirty or outbox.deferrable:
            outbox.flush()

    def partial(self, job: Job, body: bytes) -> None:
        self.partials += 1

    def final(self, job: Job, body: bytes) -> None:
        self.finals[job.id] += 1

    def failed(self, job: Job, failure: Failure) -> None:
        self.failures.append(failure.reason)

    def _arm(self, when: float) -> None:
        if when < self._alarm:
            self._alarm = when
            self.world.after(max(when - self.world.now, 0.0), lambda: self._ring(when))

    def _ring(self, when: float) -> None:
        if when != self._alarm:
            return
        self._alarm = float("inf")
        self.broker.advance(self.world.now)
        following = self.broker.tick()
        self.flush()
        if following < float("inf"):
            self._arm(following)


class Silent(Transport):
    """A transport without a socket."""

    def transmit(self, data: bytes) -> None: ...
    def ready(self, peer: PeerInfo) -> None: ...
    def failed(self, error: ProtocolError) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def forget(self) -> None: ...
    def report_violation(self, reason: str) -> None: ...
    def is_alive(self) -> bool:
        return False  # nobody is there to answer a probe


class Box:
    """A device."""

    def __init__(self, world: World, name: bytes) -> None:
        self.world = world
        self.name = name
        self.device = Device(name)
        self.complaints: list[str] = []
        world.devices.append(self)

    def from_below(self, identity: bytes, message: Message) -> None:
        if identity in self.device.below:
            try:
                self.device.from_below(identity, message)
            except ProtocolError as error:
                self.complaints.append(error.message)

    def from_above(self, hop: bytes, message: Message) -> None:
        if hop in self.device.above:
            try:
                self.device.from_above(hop, message)
            except ProtocolError as error:
                self.complaints.append(error.message)


class Hand:
    """A worker that takes `seconds` for a job and counts its executions."""

    def __init__(
        self,
        world: World,
        name: bytes,
        slots: int = 1,
        seconds: float = 0.01,
        roles: tuple[bytes, ...] = (b"echo",),
        labels: dict[str, object] | None = None,
    ) -> None:
        self.world = world
        self.name = name
        self.seconds = seconds
        self.side = WmpWorkerProtocol(list(roles), world.dice.random, slots, labels)
        self.cables: dict[int, Cable] = {}
        self.runs: Counter[tuple[bytes, bytes]] = Counter()
        self.by_manager: Counter[bytes] = Counter()
        self.most = 0  # maximum number of jobs at once
        self.dead = False
        self._alarm = float("inf")
        world.workers.append(self)

    def receive(self, link: int, message: Message) -> None:
        if self.dead:
            return
        request = self.side.receive(link, message, self.world.now)
        if request is not None and not request.cancelled:
            self.runs[(request.manager, request.job)] += 1
            self.by_manager[request.manager] += 1
            self.most = max(self.most, len(self.side.held))
            self.world.after(self.seconds * (0.5 + self.world.dice.random()), lambda: self._done(request))
        self.pump()

    def pump(self) -> None:
        for link, data in self.side.take_output():
            if link in self.cables:
                self.cables[link].send(data)
        if self.side.due < self._alarm:
            self._alarm = due = self.side.due
            self.world.after(max(due - self.world.now, 0.0), lambda: self._ring(due))

    def _done(self, request: WmpRequest) -> None:
        if not self.dead:
            self.side.final(request, request.body, self.world.now)
            self.pump()

    def _ring(self, due: float) -> None:
        if self.dead or due != self._alarm:
            return
        self._alarm = float("inf")
        if self.side.due <= self.world.now:
            self.side.tick(self.world.now)
        self.pump()


def connect(lower: Hand | Box, upper: Manager | Box) -> Callable[[], None]:
    """Connect a lower peer to an upper one and return a function that cuts the connection."""
    world = lower.world
    number = 0
    if isinstance(lower, Hand):
        number = len(lower.cables)
        down = Cable(world, lambda message: lower.receive(number, message))
    else:
        hop = b"u%d" % len(lower.device.above)
        down = Cable(world, lambda message: lower.from_above(hop, message))
    if isinstance(upper, Manager):
        link = upper.open(lower.name, down)
        up = Cable(world, lambda message: upper.receive(link, message))
    else:
        upper.device.add_below(lower.name, down.send)
        up = Cable(world, lambda message: upper.from_below(lower.name, message))
    if isinstance(lower, Hand):
        lower.cables[number] = up
        lower.side.connected(number, world.now)
        lower.pump()
    else:
        lower.device.add_above(hop, up.send)

    def cut() -> None:
        up.cut = down.cut = True
        if isinstance(upper, Manager):
            if link in upper.links:
                upper.close(link)
        else:
            upper.device.remove_below(lower.name)
        if isinstance(lower, Hand):
            lower.cables.pop(number, None)
            lower.side.disconnected(number, world.now)
            if not lower.dead:
                lower.pump()
        else:
            lower.device.remove_above(hop)

    return cut


def _messages(data: bytes) -> list[bytes]:
    """Split wire bytes into messages."""
    found = []
    pos = 0
    while pos < len(data):
        start = pos
        more = True
        while more:
            flags = data[pos]
            more = bool(flags & 1)
            if flags & 2:
                pos += 9 + int.from_bytes(data[pos + 1 : pos + 9], "big")
            else:
                pos += 2 + data[pos + 1]
        found.append(data[start:pos])
    return found


def _command(data: bytes) -> int:
    frames = split(data)
    return frames[frames.index(b"") + 2][0]
