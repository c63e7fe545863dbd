"""A worker's session: it stays registered through lost brokers and restarts, and runs the jobs that arrive.

MDP allows one service and one job at a time per worker, so a Worker has many sessions there. DCP's one session has all
services and several slots, NFP's have one service and several slots each (`sdk.worker_session_nfp`). MemoDB's is like
DCP's, but survives its connections (`sdk.worker_session_memo`). WMP's is registered at all managers at once
(`sdk.worker_session_wmp`). A running function is finished even if its connection ends; its reply is dropped then (the
broker has given the job to another worker), and its slot is not offered again before.

When an earlier broker is back, a session moves there as soon as a slot is free. It registers there first, and keeps
serving the old broker until no job has come from it for a while: that broker's clients move, too, each in its own time,
and no job must be in transit when the worker disconnects.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NamedTuple

from polydomo.core.workers import DENIED_WORKER, NAME_TAKEN
from polydomo.dialects.worker_protocol import WorkerProtocol
from polydomo.errors import Denied
from polydomo.sdk.failover import Backoff, EndpointSelector
from polydomo.sdk.transport import PeerTransport
from polydomo.sdk.worker_connection import ReplySink, WorkerConnection, WorkerRequest
from polydomo.sdk.worker_log import WorkerLog
from polydomo.sdk.worker_name import PAUSE, WorkerName

log = logging.getLogger("polydomo.sdk")

# How long a broker must be idle before the worker leaves it for an earlier one, in units of `failback`: longer than
# the broker's clients need to see that the earlier one is back.
LINGER: Final = 2.0

MakeProtocol = Callable[[PeerTransport], WorkerProtocol]


class SessionSettings(NamedTuple):
    """Settings and shared objects that a worker gives to each of its sessions."""

    selector: EndpointSelector
    slots: int  # jobs at the same time
    perform: Callable[[ReplySink, WorkerRequest], Awaitable[None]]
    log: WorkerLog
    name: WorkerName


class WorkerSession(ABC):
    """A registration at one or all brokers of a URL, and the jobs that arrive there."""

    def __init__(self, settings: SessionSettings) -> None:
        self.registered = asyncio.Event()
        self.clock = settings.selector.clock
        self._selector = settings.selector
        self._perform = settings.perform
        self._log = settings.log
        self._name = settings.name
        self._jobs: dict[asyncio.Task[None], WorkerConnection | None] = {}
        self._stopping = False
        self._was_registered = False

    @abstractmethod
    async def run(self) -> None:
        """Serve until `stop` or `abandon`."""

    @abstractmethod
    def stop(self) -> None:
        """Finish the running jobs, disconnect, and end."""

    @abstractmethod
    def abandon(self) -> None:
        """Do not wait for the running jobs any longer."""

    def reconsider(self) -> None:  # noqa: B027 (WMP is connected to all brokers)
        """Move to an earlier broker if the selector has found one."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Disconnect after the last job of a stopping worker."""

    def _check_denied(self, reason: str) -> None:
        """Raise Denied if the broker refuses what the worker offers.

        A worker that was registered before tries again: the operator may take a change of the roles back.
        """
        _, denied, message = reason.partition(DENIED_WORKER)
        if denied and not self._was_registered:
            raise Denied(message)

    def _start_job(
        self, work: Coroutine[Any, Any, None], connection: WorkerConnection | None
    ) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._jobs[task] = connection
        task.add_done_callback(self._job_ended)
        return task

    def _job_ended(self, task: asyncio.Task[None]) -> None:
        del self._jobs[task]
        if not task.cancelled() and task.exception() is not None:
            log.error("a job could not be processed", exc_info=task.exception())
        if self._stopping and not self._jobs:
            self._disconnect()


class SingleBrokerSession(WorkerSession):
    """A session with one broker at a time: MDP's and DCP's as it is."""

    def __init__(
        self,
        settings: SessionSettings,
        make_protocol: MakeProtocol,
        properties: dict[bytes, bytes] | None = None,
    ) -> None:
        super().__init__(settings)
        self._make_protocol = make_protocol
        self._properties = properties or {}
        self._slots = asyncio.Semaphore(settings.slots)
        self.connection: WorkerConnection | None = None  # the current one
        self._better: asyncio.Future[None]  # an earlier broker than this connection's is back
        self._lingering: dict[
            WorkerConnection, asyncio.Task[None]
        ] = {}  # to brokers that the session has left
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        self._task = asyncio.current_task()
        backoff = Backoff()
        try:
            try:
                while not self._stopping:
                    await self._run_connection(backoff)
            except asyncio.CancelledError:
                if not self._stopping:
                    raise
            await asyncio.gather(*self._lingering.values())
        finally:
            self.abandon()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    def stop(self) -> None:
        self._stopping = True
        if self.connection is None and self._task is not None:
            self._task.cancel()  # it is connecting or pausing
        if not self._jobs:
            self._disconnect()

    def abandon(self) -> None:
        for task in self._jobs:
            task.cancel()
        self._disconnect()

    def reconnect(self, reason: str) -> None:
        """Close the connection; it is made again."""
        if self.connection is not None:
            self.connection.dismissed = True
            self.connection.finish(reason)

    def reconsider(self) -> None:
        current = self.connection
        if current is not None and not self._better.done() and self._selector.is_behind(current.address):
            self._better.set_result(None)

    async def _run_connection(self, backoff: Backoff) -> None:
        await self._wait_for_slot()
        connection, transport = await self._connect()
        self.connection = connection
        self._better = asyncio.get_running_loop().create_future()
        moving = False
        try:
            await connection.begin(transport, self._make_protocol(transport))
            if not connection.over.done():
                self._begun(connection)
                self._was_registered = True
                self._name.accepted()
                self.registered.set()
                self._log.registered(self, transport.address)
            ends: set[asyncio.Future[Any]] = {connection.over, self._better}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            moving = not connection.over.done()
        finally:
            self.registered.clear()
            self.connection = None
            if moving:
                self._lingering[connection] = asyncio.create_task(self._linger(connection))
            else:
                connection.finish("the worker stopped")
        if moving:
            self._log.moving(self)
        elif not self._stopping:
            reason = connection.over.result()
            self._check_denied(reason)
            self._log.lost(self, transport.address, reason)
            if NAME_TAKEN in reason:
                self._name.refused(self.clock.time())
                await self.clock.sleep(PAUSE)
                return
            if connection.heard:
                backoff.reset()
            if not connection.dismissed:
                self._selector.failed(transport.address)
            await self.clock.sleep(backoff.pause())

    async def _connect(self) -> tuple[WorkerConnection, PeerTransport]:
        """Return a connection that is not registered yet."""
        connection = WorkerConnection(self._received)
        transport = await self._selector.connect(
            connection.received,
            connection.lost,
            timeout=None,
            properties=self._properties | self._name.properties,
            on_failure=self._log.unreachable,
        )
        return connection, transport

    def _begun(self, connection: WorkerConnection) -> None:
        """Continue after the registration."""

    async def _linger(self, connection: WorkerConnection) -> None:
        """Serve the old broker until it is idle."""
        count = -1
        try:
            while not connection.over.done() and self._is_used(connection, count):
                count = connection.job_count
                try:
                    async with self.clock.timeout(self._selector.failback * LINGER):
                        await asyncio.shield(connection.over)
                except TimeoutError:
                    continue
        finally:
            connection.finish("the worker moved to another broker")
            del self._lingering[connection]

    def _is_used(self, connection: WorkerConnection, count: int) -> bool:
        """Return whether a job has come since there were `count`, or is running."""
        return connection.job_count != count or connection in self._jobs.values()

    async def _wait_for_slot(self) -> None:
        """Wait for a free slot: those still busy from the last connection must not be offered again."""
        async with self._slots:
            pass

    def _received(self, connection: WorkerConnection, request: WorkerRequest) -> None:
        self._start_job(self._work(connection, request), connection)

    async def _work(self, connection: WorkerConnection, request: WorkerRequest) -> None:
        async with self._slots:
            # A job not yet begun when the worker stops goes to another worker as soon as the connection is closed.
            if not self._stopping and not connection.over.done():
                await self._perform(connection, request)

    def _disconnect(self) -> None:
        for connection in [self.connection, *self._lingering]:
            if connection is not None:
                connection.finish("the worker stopped")
