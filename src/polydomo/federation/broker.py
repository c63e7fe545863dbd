"""A broker that is joined to others: to them it is a WMP worker for the services that it has.

It offers as many slots as it has idle workers, and changes that as they come and go. What it is given becomes a job of
its own, of a client that is the other broker: it goes to one of those workers, and its answers, events and failure, or
its cancellation, go the same way as with any client. Such a job is never passed on to a third broker, so none can go in
a circle; and the slots that other brokers offer here are not offered on, so nobody is offered his own.

A link that is lost returns its jobs: the other broker gives them to somebody else, and what is done here for it is
cancelled.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from polydomo.core.client import Client
from polydomo.core.extras import Options
from polydomo.core.job import CANCELLED, CLIENT_GONE, WORKER_ERROR, Failure, Job
from polydomo.core.policy import FOREVER
from polydomo.core.ports import ClientPort
from polydomo.core.service import Service
from polydomo.dialects.options import HIGHEST
from polydomo.dialects.wmp import messages
from polydomo.dialects.wmp.wakeup import WakeScheduler
from polydomo.dialects.wmp.worker import NEVER, WmpRequest, WmpWorkerProtocol
from polydomo.errors import ConfigError, ProtocolError
from polydomo.sdk.clock import REAL_TIME
from polydomo.sdk.connection import Dealer
from polydomo.sdk.reconnect import Above, keep
from polydomo.sdk.url import Address, Url, parse
from polydomo.server.extensions import Extension, Metric
from polydomo.server.log import Log
from polydomo.services.builtin import is_internal
from polydomo.wire.frames import EMPTY_BODY, Message

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

log = Log()

# How often it is looked whether other brokers must be told of other services or more or fewer idle workers, in seconds.
LOOK: Final = 0.05


class FederationExtension(Extension, Above):
    """See the module's text."""

    name = "join"

    def __init__(self, server: BrokerServer, url: Url) -> None:
        self.server = server
        self.url = url
        self.bound: list[str] = []
        self.side = LendingWorker(self, random=random.random)
        self.side.relay = True
        self.guests: dict[int, RemoteBroker] = {}  # by uplink: the broker there, as a client of ours
        self.lent: dict[bytes, Job] = {}  # what is done here for others, by its address
        self.taken = 0
        self.returned = 0
        self._up: dict[int, Dealer] = {}
        self._troubled: set[int] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._looker: asyncio.TimerHandle | None = None

    # A door's side

    async def open(self) -> None:
        self.identity = self.server.context.broker_id
        self._tasks = [
            asyncio.create_task(keep(number, place, self, REAL_TIME))
            for number, place in enumerate(self.url.places)
        ]
        self._look()

    def shut(self) -> None:
        """The broker stops: nothing more is taken."""
        self.side.stop(self._now())
        self._pump()

    async def close(self) -> None:
        if self._looker is not None:
            self._looker.cancel()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def show(self) -> dict[str, Any]:
        return {
            "bound": [],
            "above": [str(self.url.places[number]) for number in sorted(self._up)],
            "offers": [role.decode(errors="replace") for role in self.side.roles],
            "slots": self.side.slots,
            "running": len(self.lent),
            "taken": self.taken,
            "returned": self.returned,
        }

    def figures(self) -> list[Metric]:
        return [
            Metric("polydomo_join_above", "Brokers joined.", {(): len(self._up)}, counter=False),
            Metric(
                "polydomo_join_running", "Jobs of joined brokers here.", {(): len(self.lent)}, counter=False
            ),
            Metric("polydomo_join_taken", "Jobs taken from joined brokers.", {(): self.taken}),
            Metric("polydomo_join_returned", "Of these, answered.", {(): self.returned}),
        ]

    # The uplinks' side

    def up(self, number: int, dealer: Dealer) -> None:
        self._up[number] = dealer
        self._troubled.discard(number)
        self.server.enter()
        self.guests[number] = RemoteBroker(self, f"join:{self.url.places[number]}".encode())
        log.info("joined", broker=str(self.url.places[number]))
        self.side.connected(number, self._now())
        self._pump()

    def down(self, number: int, reason: str) -> None:
        del self._up[number]
        self.server.enter()
        self.side.disconnected(number, self._now())
        self._cancel_all(number)
        self.server.broker.client_gone(self.guests.pop(number).core)
        self._pump()
        log.warning("joined broker lost", broker=str(self.url.places[number]), reason=reason)

    def unreachable(self, number: int, reason: str) -> None:
        if number not in self._troubled:
            self._troubled.add(number)
            log.warning("no broker to join", broker=str(self.url.places[number]), reason=reason)

    def said(self, number: int, message: Message) -> None:
        self.server.enter()
        request = self.side.receive(number, message, self._now())
        if request is not None and request.cancelled:
            self._cancel(request)
        elif request is not None:
            self._begin(number, request)
        self._pump()

    # The guests' side

    def answer(self, request: WmpRequest, body: bytes) -> None:
        self.returned += 1
        self.lent.pop(request.address, None)
        self.side.final(request, body, self._now())
        self._pump()

    def tell(self, request: WmpRequest, body: bytes) -> None:
        """One of several answers."""
        self.side.partial(request, body, self._now())
        self._pump()

    def event(self, request: WmpRequest, kind: str, body: bytes) -> None:
        self.side.event(request, kind, body, self._now())
        self._pump()

    def fail(self, request: WmpRequest, failure: Failure) -> None:
        """What a worker said of it is the job's end there as well. What happened to it here is not: another broker, or
        the same with another worker, may have it."""
        self.lent.pop(request.address, None)
        body = EMPTY_BODY if failure.body is None else failure.body
        if failure.reason == CANCELLED:
            self.side.failed(request, messages.CANCELLED, {}, body, self._now())
        elif failure.reason == WORKER_ERROR:
            self.returned += 1
            self.side.failed(request, messages.FAILED, _account(failure), body, self._now())
        else:
            self.side.failed(request, messages.NOT_BEGUN, {"reason": failure.reason}, body, self._now())
        self._pump()

    # Inside

    def free(self, role: bytes) -> int:
        """How many of our own workers could begin a job of this service now."""
        service = self.server.broker.services.get(role)
        return 0 if service is None else idle(service)

    def _begin(self, number: int, request: WmpRequest) -> None:
        guest = self.guests[number]
        self.taken += 1
        try:
            left = messages.whole(request.headers, "deadline")
            timeout = messages.whole(request.headers, "timeout")
        except ProtocolError as error:
            self.side.failed(request, messages.FAILED, {"message": error.message}, EMPTY_BODY, self._now())
            return
        priority = request.headers.get("priority")
        options: Options | None = None
        if left or isinstance(priority, int):
            options = Options(deadline=left / 1000.0 if left else FOREVER, timeout=timeout / 1000.0)
            if isinstance(priority, int) and -HIGHEST <= priority <= HIGHEST:
                options.priority = priority
        guest.take(request, options, timeout / 1000.0)

    def _cancel(self, request: WmpRequest) -> None:
        job = self.lent.get(request.address)
        if job is not None:
            self.server.broker.lifecycle.cancel(job)

    def _cancel_all(self, number: int) -> None:
        """Nobody waits for these any more."""
        for request in list(self.side.held.values()):
            job = self.lent.pop(request.address, None) if request.link == number else None
            if job is not None:
                self.side.drop(request, self._now())
                self.server.broker.lifecycle.cancel(job, Failure(CLIENT_GONE, "the other broker is gone"))

    def _look(self) -> None:
        """What do we have to offer?"""
        began = self._now()
        roles: list[bytes] = []
        room = 0
        for service in self.server.broker.services.values():
            if is_internal(service.name) or all(worker.relay for worker in service.workers):
                continue
            roles.append(service.name)
            if not service.paused and not service.waiting:
                room += idle(service)
        roles.sort()
        self.side.lend(roles, room, self._now())
        self._pump()
        # Of very many services: no more than a few per cent of the time.
        pause = max(LOOK, (self._now() - began) * 30)
        self._looker = self.server.loop.call_later(pause, self._look)

    def _pump(self) -> None:
        for number, data in self.side.take_output():
            dealer = self._up.get(number)
            if dealer is not None:
                dealer.send(data)
        due = self.side.due
        if due < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            self._timer = self.server.loop.call_later(max(due - self._now(), 0.0), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._timer_at = NEVER
        if self.side.due <= self._now():
            self.side.tick(self._now())
        self._pump()

    def _now(self) -> float:
        return REAL_TIME.time()


class LendingWorker(WmpWorkerProtocol):
    """A worker's side whose slots are other workers'."""

    def __init__(self, extension: FederationExtension, random: Callable[[], float]) -> None:
        super().__init__([], random, 0)
        self.extension = extension
        self.offered = 0  # idle workers that others were last told of

    def lend(self, roles: list[bytes], room: int, now: float) -> None:
        """So many could begin something now, of these services. Others hear of it when that is something new to them:
        other services, room where there was none, none where there was some, much more or much less."""
        slots = room + len(self.held)
        if (
            roles == self.roles
            and bool(room) == bool(self.offered)
            and abs(room - self.offered) * 4 <= self.offered
        ):
            self.slots = slots
        else:
            self.offered = room
            self.offer(roles, slots, now)

    def has_room(self, roles: list[bytes]) -> bool:
        """A place for a job is a worker that is idle, and not promised to somebody else."""
        return self.free > 0 and any(self.extension.free(role) > len(self.locks) for role in roles)


class RemoteBroker(ClientPort):
    """Another broker, as a client here."""

    def __init__(self, extension: FederationExtension, name: bytes) -> None:
        self.extension = extension
        self.core: Client = extension.server.broker.join_client(name, "wmp", self)
        self.core.relay = True
        self.requests: dict[Job, WmpRequest] = {}
        self._taking: WmpRequest | None = None

    def take(self, request: WmpRequest, options: Options | None, limit: float) -> None:
        self._taking = request
        broker = self.extension.server.broker
        job = broker.submit(self.core, request.service, request.body, b"", options, limit)
        self._taking = None
        if job is not None and request.address in self.extension.side.held:
            self.requests[job] = request
            self.extension.lent[request.address] = job

    def partial(self, job: Job, body: bytes) -> None:
        request = self.requests.get(job, self._taking)
        if request is not None:
            self.extension.tell(request, body)

    def event(self, job: Job, name: bytes, kind: str, body: bytes) -> None:
        request = self.requests.get(job, self._taking)
        if request is not None:
            self.extension.event(request, kind, body)

    def final(self, job: Job, body: bytes) -> None:
        request = self.requests.pop(job, None) or self._taking
        if request is not None:
            self.extension.answer(request, body)

    def failed(self, job: Job, failure: Failure) -> None:
        request = self.requests.pop(job, None) or self._taking
        if request is not None:
            self.extension.fail(request, failure)


def idle(service: Service) -> int:
    """Workers of our own that could begin a job of this service now."""
    count = len(service.idle)
    herd = service.wakeup
    if isinstance(herd, WakeScheduler):
        count += herd.local.size()
    return count


def _account(failure: Failure) -> dict[str, object]:
    if failure.detail:
        try:
            said = msgspec.json.decode(failure.detail)
        except msgspec.DecodeError:
            said = None
        if isinstance(said, dict):
            return {key: value for key, value in said.items() if isinstance(value, (str, int))}
    return {"message": failure.message}


def join(server: BrokerServer) -> Extension | None:
    """The way up, if `join.up` names brokers."""
    places: list[Address] = []
    for text in server.settings.join.up:
        url = parse(text)
        if url.dialect != "wmp":
            raise ConfigError(f"join.up: {text!r} is not a broker's wmp:// URL", hint="write wmp://HOST:PORT")
        places += url.places
    return FederationExtension(server, Url("wmp", tuple(dict.fromkeys(places)))) if places else None
