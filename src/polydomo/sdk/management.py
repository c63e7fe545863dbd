"""`mmi.service.worker`: what a worker of ours says about itself, and what it can be told (NFP §Worker Management
Interface). A task is `{"task": "show_workers", "kwargs": {…}}` or its bare name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from polydomo._version import __version__
from polydomo.core.names import printable
from polydomo.dialects.nfp.messages import ERROR, OK, UNKNOWN
from polydomo.dialects.nfp.worker import NfpRequest, NfpWorkerProtocol
from polydomo.errors import PolydomoError
from polydomo.sdk.worker_session_nfp import Managed, NfpWorkerSession
from polydomo.wire.frames import split

if TYPE_CHECKING:
    from polydomo.sdk.worker import Worker

# Seconds to ask the broker for what only it knows.
PATIENCE: Final = 3.0

# The UUID under which the broker itself tells a worker something.
FROM_BROKER: Final = b"resources"

# To the broker each service is a worker of its own and asked by itself: time for all of them to answer.
AFTERWARDS: Final = 0.1


class Management:
    """Of one worker."""

    def __init__(
        self,
        worker: Worker,
        stations: Callable[[], list[NfpWorkerSession]],
        ask: Callable[[str, float], Awaitable[Any]],
    ) -> None:
        self._worker = worker
        self._stations = stations
        self._ask_broker = ask
        self._renewing: set[asyncio.Task[None]] = set()
        self._ending = False
        self._tasks: dict[str, Callable[[NfpWorkerSession], Any]] = {
            "show_broker": self._show_broker,
            "show_workers": self._show_workers,
            "show_clients": self._show_clients,
            "restart": self._restart,
            "shutdown": self._shutdown,
            "disconnect": self._disconnect,
        }

    async def perform(self, station: NfpWorkerSession, request: NfpRequest) -> Managed:
        """A task's status and answer, and what is to be done behind it."""
        task, kwargs = _task_in(request.body)
        if task == "set_resources" and request.uuid == FROM_BROKER:
            return self._share(station, kwargs.get("resources"))
        function = self._tasks.get(task)
        if function is None:
            known = ", ".join(self._tasks)
            return UNKNOWN, msgspec.json.encode({"error": f"no task {task!r}; there are {known}"}), None
        try:
            answer, behind = await function(station)
        except PolydomoError as error:
            return ERROR, msgspec.json.encode({"error": error.message}), None
        return OK, msgspec.json.encode(answer), behind

    def _share(self, station: NfpWorkerSession, resources: Any) -> Managed:
        """The broker shares a service's resources out: these are ours now."""
        if not isinstance(resources, list):
            return UNKNOWN, b'{"error":"resources are no list"}', None
        station.shared = [str(resource) for resource in resources]
        tell = self._worker.on_resources
        if tell is not None:
            tell(printable(station.service), station.resources)
        return OK, msgspec.json.encode({"resources": station.shared}), None

    async def _show_broker(self, station: NfpWorkerSession) -> tuple[Any, None]:
        """The connection as this worker sees it, and the broker's own account."""
        link: dict[str, Any] = {"endpoint": None, "registered": station.registered.is_set()}
        conversation = station.conversation
        if conversation is not None and isinstance(conversation.side, NfpWorkerProtocol):
            side = conversation.side
            link |= {
                "endpoint": str(conversation.place),
                "keepalive": side.interval,
                "liveness": side.liveness,
                "open": msgspec.json.decode(side.answer) if side.answer[:1] == b"{" else None,
            }
        return link | {"status": await self._ask("show_broker")}, None

    async def _show_workers(self, station: NfpWorkerSession) -> tuple[Any, None]:
        """This worker, service by service."""
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
            for each in self._stations()
        ], None

    async def _show_clients(self, station: NfpWorkerSession) -> tuple[Any, None]:
        """A worker sees no clients: the broker's list of them."""
        return await self._ask("show_clients"), None

    async def _restart(self, station: NfpWorkerSession) -> tuple[Any, Callable[[], None]]:
        def renew() -> None:
            task = asyncio.create_task(station.renew(self._worker.grace))
            self._renewing.add(task)
            task.add_done_callback(self._renewing.discard)

        return {"status": "restarting"}, renew

    async def _shutdown(self, station: NfpWorkerSession) -> tuple[Any, Callable[[], None]]:
        def stop() -> None:
            if not self._ending:  # a second stop would not wait for jobs in hand
                self._ending = True
                station.clock.call_later(AFTERWARDS, self._worker.stop)

        return {"status": "stopping"}, stop

    async def _disconnect(self, station: NfpWorkerSession) -> tuple[Any, Callable[[], None]]:
        def hang_up() -> None:
            station.hang_up("the worker was told to connect again")

        return {"status": "disconnecting"}, hang_up

    async def _ask(self, task: str) -> Any:
        """The broker; None if it does not say."""
        try:
            return await self._ask_broker(task, PATIENCE)
        except PolydomoError:
            return None


def _task_in(body: bytes) -> tuple[str, dict[str, Any]]:
    """The task's name, from JSON or bare, and its arguments."""
    frames = split(body)
    data = frames[0] if frames else b""
    try:
        said = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data.decode(errors="replace").strip(), {}
    kwargs: Any = {}
    if isinstance(said, dict):
        kwargs = said.get("kwargs")
        said = said.get("task")
    return said if isinstance(said, str) else "", kwargs if isinstance(kwargs, dict) else {}
