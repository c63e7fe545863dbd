"""`mmi.service.worker`: a worker's status, and the tasks it can be given (NFP §Worker Management Interface). A task is
`{"task": "show_workers", "kwargs": {…}}` or its bare name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from polydomo._version import __version__
from polydomo.core.names import printable
from polydomo.dialects.nfp.messages import OK, UNKNOWN
from polydomo.dialects.nfp.worker import NfpRequest, NfpWorkerProtocol
from polydomo.errors import PolydomoError
from polydomo.sdk.worker_session_nfp import ManagementReply, NfpWorkerSession
from polydomo.wire.frames import split

# Seconds to wait for the broker's own data.
BROKER_TIMEOUT: Final = 3.0

# The UUID of tasks that come from the broker itself.
FROM_BROKER: Final = b"resources"

# The broker sends a task to each service separately: seconds for all of them to respond before the worker stops.
STOP_DELAY: Final = 0.1


class ManagedWorker(Protocol):
    """The part of a worker that its management uses."""

    concurrency: int
    grace: float
    on_resources: Callable[[str, list[str]], None] | None

    @property
    def name(self) -> str: ...
    def stop(self) -> None: ...


class WorkerManagement:
    """The management interface of one worker."""

    def __init__(
        self,
        worker: ManagedWorker,
        sessions: Callable[[], list[NfpWorkerSession]],
        ask_broker: Callable[[str, float], Awaitable[Any]],
    ) -> None:
        self._worker = worker
        self._sessions = sessions
        self._ask_broker = ask_broker
        self._restarts: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._queries: dict[str, Callable[[NfpWorkerSession], Awaitable[Any]]] = {
            "show_broker": self._show_broker,
            "show_workers": self._show_workers,
            "show_clients": self._show_clients,
        }
        # The status in the response, and what is done after it.
        self._actions: dict[str, tuple[str, Callable[[NfpWorkerSession], None]]] = {
            "restart": ("restarting", self._restart),
            "shutdown": ("stopping", self._shutdown),
            "disconnect": ("disconnecting", self._disconnect),
        }

    async def perform(self, session: NfpWorkerSession, request: NfpRequest) -> ManagementReply:
        """Run a task and return its status, its JSON, and a function to call after the response is sent."""
        name, kwargs = _parse_task(request.body)
        if name == "set_resources" and request.uuid == FROM_BROKER:
            return self._assign(session, kwargs.get("resources"))
        if name in self._actions:
            status, act = self._actions[name]
            return OK, msgspec.json.encode({"status": status}), partial(act, session)
        query = self._queries.get(name)
        if query is None:
            known = ", ".join([*self._queries, *self._actions])
            return UNKNOWN, msgspec.json.encode({"error": f"no task {name!r}; there are {known}"}), None
        return OK, msgspec.json.encode(await query(session)), None

    def _assign(self, session: NfpWorkerSession, resources: Any) -> ManagementReply:
        """Set the resources that the broker has assigned to this worker."""
        if not isinstance(resources, list):
            return UNKNOWN, b'{"error":"resources are no list"}', None
        session.assigned = [str(resource) for resource in resources]
        if self._worker.on_resources is not None:
            self._worker.on_resources(printable(session.service), session.resources)
        return OK, msgspec.json.encode({"resources": session.assigned}), None

    async def _show_broker(self, session: NfpWorkerSession) -> dict[str, Any]:
        """Return the worker's view of its connection, and the broker's own status."""
        shown: dict[str, Any] = {"endpoint": None, "registered": session.registered.is_set()}
        connection = session.connection
        if connection is not None and isinstance(connection.protocol, NfpWorkerProtocol):
            protocol = connection.protocol
            shown |= {
                "endpoint": str(connection.address),
                "keepalive": protocol.interval,
                "liveness": protocol.liveness,
                "open": msgspec.json.decode(protocol.answer) if protocol.answer[:1] == b"{" else None,
            }
        return shown | {"status": await self._ask("show_broker")}

    async def _show_workers(self, session: NfpWorkerSession) -> list[dict[str, Any]]:
        """Return this worker's row for each of its services."""
        worker = self._worker
        return [
            {
                "name": worker.name,
                "service": each.service.decode(errors="replace"),
                "version": __version__,
                "registered": each.registered.is_set(),
                "credit": worker.concurrency,
                "running": each.running,
                "done": each.done,
                "failed": each.failed,
                "resources": each.resources,
            }
            for each in self._sessions()
        ]

    async def _show_clients(self, session: NfpWorkerSession) -> Any:
        """Return the broker's list of clients; a worker has none."""
        return await self._ask("show_clients")

    def _restart(self, session: NfpWorkerSession) -> None:
        task = asyncio.create_task(session.restart(self._worker.grace))
        self._restarts.add(task)
        task.add_done_callback(self._restarts.discard)

    def _shutdown(self, session: NfpWorkerSession) -> None:
        if not self._stopping:  # a second stop would not wait for running jobs
            self._stopping = True
            session.clock.call_later(STOP_DELAY, self._worker.stop)

    def _disconnect(self, session: NfpWorkerSession) -> None:
        session.reconnect("the worker was told to connect again")

    async def _ask(self, task: str) -> Any:
        """Ask the broker; None if it does not respond."""
        try:
            return await self._ask_broker(task, BROKER_TIMEOUT)
        except PolydomoError:
            return None


def _parse_task(body: bytes) -> tuple[str, dict[str, Any]]:
    """Return the task's name, from JSON or bare, and its arguments."""
    frames = split(body)
    data = frames[0] if frames else b""
    try:
        name = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data.decode(errors="replace").strip(), {}
    kwargs: Any = {}
    if isinstance(name, dict):
        kwargs = name.get("kwargs")
        name = name.get("task")
    return name if isinstance(name, str) else "", kwargs if isinstance(kwargs, dict) else {}
