"""Clients: they connect, drop off and come back within their grace period, or are gone for good."""

from __future__ import annotations

from collections.abc import Iterator

from polydomo.core import failure as reasons
from polydomo.core.failure import Failure
from polydomo.core.features.recovery import Recovery
from polydomo.core.model import Client, ClientPort, Job
from polydomo.core.principals import Principal
from polydomo.core.quotas import Quotas
from polydomo.core.scheduler import CLIENT_WENT
from polydomo.core.states import NEXT, RELEASE
from polydomo.core.tracked_job import survives_client
from polydomo.core.tracking import Tracking


class Clients:
    """All clients of a broker."""

    def __init__(self, tracking: Tracking, recovery: Recovery, quotas: Quotas) -> None:
        self.known: dict[Client, None] = {}
        self._clock = tracking.clock
        self._timers = tracking.timers
        self._services = tracking.services
        self._accounting = tracking.accounting
        self._scheduler = tracking.scheduler
        self._tracking = tracking
        self._recovery = recovery
        self._quotas = quotas

    def __iter__(self) -> Iterator[Client]:
        return iter(self.known)

    def __len__(self) -> int:
        return len(self.known)

    def __contains__(self, client: Client) -> bool:
        return client in self.known

    def join(self, name: bytes, dialect: str, port: ClientPort, principal: Principal) -> Client:
        """Return a client that may submit jobs.

        One that had some before the broker's restart goes on with them, if its dialect can.
        """
        client = self._recovery.returned(name, dialect, port, principal) if port.resumes() else None
        if client is None:
            client = Client(name, dialect, port, principal, self._clock.now, self.grace_over)
            self._recovery.give_shadow(client)
        self.known[client] = None
        principal.peers += 1
        if self._accounting.journal is not None:
            self._accounting.journal.client("joined", client, "")
        return client

    def disconnected(self, client: Client) -> None:
        """Keep a disconnected client's jobs for the grace period."""
        self._timers.set(client, self._clock.now + self._services.limits.client_grace)

    def reconnected(self, client: Client) -> None:
        """End the grace period: the client is back."""
        self._timers.clear(client)

    def grace_over(self, client: Client) -> None:
        """Give up a client that did not come back."""
        self.gone(client)
        client.port.forget()

    def gone(self, client: Client) -> None:
        """Drop a client for good: its waiting jobs fail, and the replies of its running ones will be dropped."""
        client.gone = True
        client.stalled = False
        self._accounting.stalled.pop(client, None)
        self._quotas.left(client)
        self._timers.clear(client)
        if client in self.known:
            if self._accounting.journal is not None:
                self._accounting.journal.client("left", client, "")
            del self.known[client]
            client.principal.peers -= 1
        for queue in list(client.queues):
            dropped: list[Job] = list(queue.drop_client(client))
            services = dict.fromkeys(job.service for job in dropped)
            lost: list[Job] = []
            for job in dropped:
                job.state = NEXT[job.state][RELEASE]
                if survives_client(job):
                    self._scheduler.place(job, False)
                else:
                    lost.append(job)
            for job in lost:
                self._scheduler.fail(job, Failure(reasons.CLIENT_GONE, CLIENT_WENT))
            for service in services:
                self._services.drop_if_unused(service)
        for job in list(client.gathers):
            if not survives_client(job):
                self._tracking.cancel(job, Failure(reasons.CLIENT_GONE, CLIENT_WENT))
