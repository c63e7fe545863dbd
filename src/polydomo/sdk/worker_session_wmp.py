"""A worker's session with WMP's managers: a connection to each of them at once, and slots that they share.

Unreachable managers are tried again while the others are served. A job goes on when its manager is lost, but its end is
not reported: the manager gives the job to another worker.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

import msgspec

from polydomo.core.failure import CANCELLED
from polydomo.core.workers import NAME_TAKEN
from polydomo.dialects.wmp.messages import CANCELLED as STATUS_CANCELLED
from polydomo.dialects.wmp.messages import FAILED as STATUS_FAILED
from polydomo.dialects.wmp.worker import WmpRequest, WmpWorkerProtocol
from polydomo.errors import Denied, JobFailed, NameTaken
from polydomo.sdk import failures
from polydomo.sdk.connection import Dealer
from polydomo.sdk.failures import FailureInfo
from polydomo.sdk.reconnect import ConnectionOwner, PermanentConnections
from polydomo.sdk.url import Address
from polydomo.sdk.wmp_driver import WmpDriver
from polydomo.sdk.worker_connection import RunningJob
from polydomo.sdk.worker_session import SessionSettings, WorkerSession
from polydomo.wire.frames import Message

log = logging.getLogger("polydomo.sdk")


class WmpJob(RunningJob):
    """One job on WMP."""

    def __init__(self, session: WmpWorkerSession, request: WmpRequest, address: Address) -> None:
        super().__init__(request.job)
        self.request = request
        self.address = address
        self.answered = False
        self._session = session

    @property
    def cancelled(self) -> bool:
        return self.request.cancelled

    def partial(self, request: Any, body: bytes) -> None:
        self._session.drive(lambda protocol, now: protocol.partial(self.request, body, now))

    def event(self, kind: str, body: bytes) -> None:
        self._session.drive(lambda protocol, now: protocol.event(self.request, kind, body, now))

    def final(self, request: Any, body: bytes) -> None:
        self.answered = True
        self._session.drive(lambda protocol, now: protocol.final(self.request, body, now))

    def failed(self, request: Any, info: FailureInfo) -> None:
        """Report a failure in the headers, with a plain body for clients whose protocol has no failures."""
        self.answered = True
        status = STATUS_CANCELLED if info.reason == CANCELLED else STATUS_FAILED
        headers = msgspec.to_builtins(info)
        body = failures.plain_body(info)
        self._session.drive(lambda protocol, now: protocol.failed(self.request, status, headers, body, now))

    async def input(self) -> bytes:
        raise JobFailed("WMP has no way to add to a running job", reason="not-supported")


class WmpWorkerSession(WorkerSession, ConnectionOwner):
    """A session with all managers of a URL, for the services `roles`."""

    def __init__(self, settings: SessionSettings, roles: list[bytes], labels: dict[str, object]) -> None:
        super().__init__(settings)
        self.identity = self._name.name.encode()
        self.properties = self._name.properties
        self._protocol = WmpWorkerProtocol(roles, random.random, settings.slots, labels)
        self._connections = PermanentConnections(self, self._selector.addresses, self.clock)
        self._driver = WmpDriver(self._protocol, self._connections.dealers, self.clock)
        self._wmp_jobs: dict[bytes, WmpJob] = {}
        self._over = asyncio.Event()
        self._error: NameTaken | Denied | None = None

    async def run(self) -> None:
        self._connections.open()
        try:
            await self._over.wait()
        finally:
            for task in self._jobs:
                task.cancel()
            await asyncio.gather(self._connections.close(), *self._jobs, return_exceptions=True)
            self._driver.close()
            self.registered.clear()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        self._stopping = True
        self.drive(lambda protocol, now: protocol.stop(now))
        if not self._jobs:
            self._over.set()

    def abandon(self) -> None:
        self._stopping = True
        self._over.set()

    def drive(self, act: Callable[[WmpWorkerProtocol, float], None]) -> None:
        """Let `act` call the protocol, and send its output."""
        act(self._protocol, self.clock.time())
        self._driver.flush()

    # ConnectionOwner

    def on_connected(self, number: int, dealer: Dealer) -> None:
        self._name.accepted()
        self.drive(lambda protocol, now: protocol.connected(number, now))

    def on_settled(self, number: int) -> None:
        if self._error is not None:
            return
        self._was_registered = True
        self.registered.set()
        self._log.registered(number, self._selector.addresses[number])

    def on_disconnected(self, number: int, reason: str) -> None:
        self.drive(lambda protocol, now: protocol.disconnected(number, now))
        if not self._connections.dealers:
            self.registered.clear()
        if not self._over.is_set():
            self._log.lost(number, self._selector.addresses[number], reason)

    def on_unreachable(self, number: int, reason: str) -> None:
        if NAME_TAKEN not in reason:
            self._log.unreachable(f"{self._selector.addresses[number]}: {reason}")
            return
        try:
            self._name.refused(self.clock.time())
        except NameTaken as error:
            self._fail(error)
        self.identity = self._name.name.encode()

    def on_message(self, number: int, message: Message) -> None:
        request = self._protocol.receive(number, message, self.clock.time())
        self._driver.flush()
        if self._protocol.refusal:
            refusal, self._protocol.refusal = self._protocol.refusal, ""
            self._refused(number, refusal)
        if request is None:
            return
        if request.cancelled:
            self._wmp_jobs[request.address].interrupt()
            return
        job = self._wmp_jobs[request.address] = WmpJob(self, request, self._selector.addresses[number])
        job.task = self._start_job(self._run_job(job), None)

    def _refused(self, number: int, reason: str) -> None:
        """Log that a manager refuses one of the services, or end the worker."""
        log.warning("%s refuses a service: %s", self._selector.addresses[number], reason)
        try:
            self._check_denied(reason)
        except Denied as error:
            self._fail(error)

    def _fail(self, error: NameTaken | Denied) -> None:
        self._error = error
        self._over.set()

    async def _run_job(self, job: WmpJob) -> None:
        try:
            await self._perform(job, job.request)
        except asyncio.CancelledError:
            if not job.cancelled:
                raise
        finally:
            del self._wmp_jobs[job.request.address]
        if not job.answered:
            job.failed(job.request, FailureInfo(CANCELLED, "the job was cancelled"))

    def _disconnect(self) -> None:
        self._over.set()
