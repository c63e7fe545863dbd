"""Joined brokers: to the brokers above, this one is a WMP worker for its own services.

It offers as many slots as it has idle workers, and updates that as they come and go. A job of a broker above becomes a
job here, whose client is that broker: it goes to one of the workers here, and its replies, events, failure and
cancellation take the same way as for any client. Such a job is never forwarded to a third broker, so none can go in a
circle; and the slots that other brokers offer here are not offered to others, so no broker is offered its own.

When an uplink is lost, the broker above requeues its jobs, and they are cancelled here.

A broker above says who submitted a job. It is believed only if its principal here (`join.principal`) may delegate for
the service; any other job belongs to that principal.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from polydomo.core.failure import CANCELLED, CLIENT_GONE, WORKER_ERROR, Failure
from polydomo.core.model import Client, ClientPort, Job, Service
from polydomo.core.policy import FOREVER
from polydomo.core.principals import DELEGATE
from polydomo.core.tracked_job import Options
from polydomo.dialects.options import HIGHEST
from polydomo.dialects.session import INSTANCE_PROPERTY
from polydomo.dialects.wmp import messages
from polydomo.dialects.wmp.wakeup import WakeScheduler
from polydomo.dialects.wmp.worker import WmpRequest, WmpWorkerProtocol
from polydomo.errors import ConfigError, ProtocolError
from polydomo.federation.uplinks import Uplinks
from polydomo.sdk.clock import REAL_TIME
from polydomo.sdk.connection import Dealer
from polydomo.sdk.url import Address, Url, parse
from polydomo.sdk.wmp_driver import WmpDriver
from polydomo.server.extensions import Extension, Metric
from polydomo.services.builtin import is_internal
from polydomo.wire.frames import EMPTY_BODY, Message

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

# Seconds between two updates of what is offered to other brokers.
UPDATE_INTERVAL: Final = 0.05

# Characters of a principal's name that a broker above may carry.
PRINCIPAL_MAX: Final = 300

# Principals of a broker above, over which those without jobs are dropped.
CLIENTS_MAX: Final = 100


class FederationExtension(Extension):
    """This broker as a worker of the brokers at `url`."""

    name = "join"

    def __init__(self, server: BrokerServer, url: Url) -> None:
        self.server = server
        self.bound: list[str] = []
        self.worker = LendingWorker(self._idle_workers, random.random)
        self.worker.relay = True
        self.taken = 0
        self.returned = 0
        self._uplinks = Uplinks(url, self, b"", {INSTANCE_PROPERTY: secrets.token_hex(16).encode()})
        self._brokers: dict[int, RemoteBroker] = {}  # by uplink
        self._driver = WmpDriver(self.worker, self._uplinks.connections.dealers, REAL_TIME)
        self._updater: asyncio.TimerHandle | None = None

    # Extension

    async def open(self) -> None:
        self._uplinks.identity = self.server.context.broker_id
        self._uplinks.connections.open()
        self._update()

    def shut(self) -> None:
        """Take no more jobs: the broker stops."""
        self.worker.stop(now())
        self.flush()

    async def close(self) -> None:
        if self._updater is not None:
            self._updater.cancel()
        self._driver.close()
        await self._uplinks.connections.close()

    def show(self) -> dict[str, Any]:
        return {
            "bound": [],
            "above": self._uplinks.connected(),
            "offers": [role.decode(errors="replace") for role in self.worker.roles],
            "slots": self.worker.slots,
            "running": self._running(),
            "taken": self.taken,
            "returned": self.returned,
        }

    def figures(self) -> list[Metric]:
        above = len(self._uplinks.connections.dealers)
        return [
            Metric("polydomo_join_above", "Brokers joined.", {(): above}, counter=False),
            Metric(
                "polydomo_join_running", "Jobs of joined brokers here.", {(): self._running()}, counter=False
            ),
            Metric("polydomo_join_taken", "Jobs taken from joined brokers.", {(): self.taken}),
            Metric("polydomo_join_returned", "Of these, answered.", {(): self.returned}),
        ]

    # Uplinks

    def uplink_connected(self, number: int, dealer: Dealer) -> None:
        self.server.advance()
        self._brokers[number] = RemoteBroker(self, f"join:{self._uplinks.address(number)}".encode())
        self.worker.connected(number, now())
        self.flush()

    def uplink_lost(self, number: int) -> None:
        self.server.advance()
        self.worker.disconnected(number, now())
        self._brokers.pop(number).disconnect()
        self.flush()

    def uplink_message(self, number: int, message: Message) -> None:
        self.server.advance()
        request = self.worker.receive(number, message, now())
        if self.worker.refusal:
            self._uplinks.refused(number, self.worker.refusal)
            self.worker.refusal = ""
        if request is not None and request.cancelled:
            self._brokers[number].cancel(request)
        elif request is not None:
            self.taken += 1
            self._brokers[number].submit(request)
        self.flush()

    def flush(self) -> None:
        """Send the worker's output."""
        self._driver.flush()

    def _update(self) -> None:
        """Offer the services and idle workers that this broker has now."""
        began = now()
        roles: list[bytes] = []
        idle = 0
        for service in self.server.broker.services.values():
            if is_internal(service.name) or all(worker.relay for worker in service.workers):
                continue
            roles.append(service.name)
            if not service.paused and not service.queue.waiting:
                idle += idle_workers(service)
        roles.sort()
        self.worker.lend(roles, idle, now())
        self.flush()
        # With very many services: use no more than a few per cent of the time.
        pause = max(UPDATE_INTERVAL, (now() - began) * 30)
        self._updater = self.server.loop.call_later(pause, self._update)

    def _idle_workers(self, role: bytes) -> int:
        service = self.server.broker.services.get(role)
        return 0 if service is None else idle_workers(service)

    def _running(self) -> int:
        return sum(len(broker.requests) for broker in self._brokers.values())


class LendingWorker(WmpWorkerProtocol):
    """WMP worker whose slots are the idle workers of this broker, by service (`idle`)."""

    def __init__(self, idle: Callable[[bytes], int], random: Callable[[], float]) -> None:
        super().__init__([], random, 0)
        self._idle = idle
        self._offered = 0  # idle workers in the last offer

    def lend(self, roles: list[bytes], idle: int, now: float) -> None:
        """Offer these services and slots if that is news: other services, the first or the last slot, many more or
        many fewer."""
        slots = idle + len(self.held)
        if (
            roles == self.roles
            and bool(idle) == bool(self._offered)
            and abs(idle - self._offered) * 4 <= self._offered
        ):
            self.slots = slots
        else:
            self._offered = idle
            self.offer(roles, slots, now)

    def has_room(self, roles: list[bytes]) -> bool:
        """Return whether an idle worker is left that is not locked for another job."""
        return self.free > 0 and any(self._idle(role) > len(self.locks) for role in roles)


class RemoteBroker(ClientPort):
    """A broker above, as a client of this one."""

    def __init__(self, extension: FederationExtension, name: bytes) -> None:
        self.extension = extension
        self.worker = extension.worker
        self.broker = extension.server.broker
        self.name = name
        self.requests: dict[Job, WmpRequest] = {}
        self._submitting: WmpRequest | None = None
        self._clients: dict[str, Client] = {}  # by principal

    def submit(self, request: WmpRequest) -> None:
        """Submit a job of the other broker."""
        try:
            deadline = messages.whole(request.headers, "deadline") / 1000.0
            timeout = messages.whole(request.headers, "timeout") / 1000.0
            client = self._client_for(request)
        except ProtocolError as error:
            self.worker.failed(request, messages.FAILED, {"message": error.message}, EMPTY_BODY, now())
            return
        priority = request.headers.get("priority")
        options: Options | None = None
        if deadline or isinstance(priority, int):
            options = Options(deadline=deadline or FOREVER, timeout=timeout)
            if isinstance(priority, int) and -HIGHEST <= priority <= HIGHEST:
                options.priority = priority
        self._submitting = request
        job = self.broker.submit(client, request.service, request.body, b"", options, timeout)
        self._submitting = None
        if job is not None and request.address in self.worker.held:
            self.requests[job] = request

    def cancel(self, request: WmpRequest) -> None:
        """Cancel the job of a request."""
        for job, other in self.requests.items():
            if other is request:
                self.broker.cancel(job)
                return

    def disconnect(self) -> None:
        """Cancel all jobs: the other broker has requeued them."""
        requests = self.requests
        self.requests = {}
        for job, request in requests.items():
            self.worker.drop(request, now())
            self.broker.cancel(job, Failure(CLIENT_GONE, "the other broker is gone"))
        for client in self._clients.values():
            self.broker.client_gone(client)

    def _client_for(self, request: WmpRequest) -> Client:
        """Return the client on whose behalf a job is done here. Raises ProtocolError."""
        principals = self.broker.principals
        owner = self.extension.server.settings.join.principal
        carried = messages.token(request.headers, messages.PRINCIPAL).decode("utf-8", "replace")
        if (
            0 < len(carried) <= PRINCIPAL_MAX
            and carried != owner
            and principals.allows(principals.get(owner), DELEGATE, request.service)
        ):
            owner = carried
        client = self._clients.get(owner)
        if client is None:
            if len(self._clients) >= CLIENTS_MAX:
                self._drop_idle_clients()
            client = self._clients[owner] = self.broker.join_client(self.name, "wmp", self, owner)
            client.relay = True
        return client

    def _drop_idle_clients(self) -> None:
        for owner, client in list(self._clients.items()):
            if not client.jobs:
                del self._clients[owner]
                self.broker.client_gone(client)

    # ClientPort

    def partial(self, job: Job, body: bytes) -> None:
        request = self.requests.get(job, self._submitting)
        if request is not None:
            self.worker.partial(request, body, now())
            self.extension.flush()

    def event(self, job: Job, name: bytes, kind: str, body: bytes) -> None:
        request = self.requests.get(job, self._submitting)
        if request is not None:
            self.worker.event(request, kind, body, now())
            self.extension.flush()

    def final(self, job: Job, body: bytes) -> None:
        request = self.requests.pop(job, self._submitting)
        if request is not None:
            self.extension.returned += 1
            self.worker.final(request, body, now())
            self.extension.flush()

    def failed(self, job: Job, failure: Failure) -> None:
        """Send the failure. Only a worker's own failure ends the job above; after any other, the broker above tries
        another broker, or this one again."""
        request = self.requests.pop(job, self._submitting)
        if request is None:
            return
        body = EMPTY_BODY if failure.body is None else failure.body
        if failure.reason == CANCELLED:
            self.worker.failed(request, messages.CANCELLED, {}, body, now())
        elif failure.reason == WORKER_ERROR:
            self.extension.returned += 1
            self.worker.failed(request, messages.FAILED, _error_of(failure), body, now())
        else:
            self.worker.failed(request, messages.NOT_BEGUN, {"reason": failure.reason}, body, now())
        self.extension.flush()


def now() -> float:
    return REAL_TIME.time()


def idle_workers(service: Service) -> int:
    """Return how many workers of this broker, not of joined ones, could begin a job of a service now."""
    wakeup = service.wakeup
    woken = wakeup.local.size() if isinstance(wakeup, WakeScheduler) else 0
    return len(service.idle) + woken


def _error_of(failure: Failure) -> dict[str, object]:
    """Return the header `error` of a failed DONE."""
    if failure.detail:
        try:
            detail = msgspec.json.decode(failure.detail)
        except msgspec.DecodeError:
            detail = None
        if isinstance(detail, dict):
            return {key: value for key, value in detail.items() if isinstance(value, (str, int))}
    return {"message": failure.message}


def join(server: BrokerServer) -> Extension | None:
    """Return the extension that joins the brokers of `join.up`, if there are any."""
    places: list[Address] = []
    for text in server.settings.join.up:
        url = parse(text)
        if url.dialect != "wmp":
            raise ConfigError(f"join.up: {text!r} is not a broker's wmp:// URL", hint="write wmp://HOST:PORT")
        places += url.addresses
    return FederationExtension(server, Url("wmp", tuple(dict.fromkeys(places)))) if places else None
