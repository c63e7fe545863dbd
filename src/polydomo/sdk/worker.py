"""The worker: offers Python functions as services.

    worker = Worker("mdp://127.0.0.1:5555", concurrency=4)

    @worker.service("resize")
    def resize(body, ctx):              # a plain function runs in a thread
        ctx.progress("loading")
        return shrink(body["path"])

    @worker.service
    async def hello(name):              # an async one on the event loop
        return f"hello {name}"

    worker.run_forever()                # until SIGTERM or SIGINT; or: await worker.run()

See `polydomo.sdk.service` for the kinds of functions, `polydomo.sdk.context` for what `ctx` can do. A
function that raises fails its job, never the worker: our own clients get a WorkerError with the exception's
kind and traceback, others a body `{"error": "..."}`.

Over NFP (`nfp://`) a worker has a name and resources, by which jobs can be addressed to it, keeps its requests and
results in a `store`, and answers `mmi.service.worker` (`polydomo.sdk.management`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, overload
from uuid import uuid4

import msgspec

from polydomo._version import __version__
from polydomo.core.names import printable
from polydomo.core.registry import RESERVED
from polydomo.dialects.dcp.worker import DcpWorkerProtocol
from polydomo.dialects.mdp.worker import MdpWorkerProtocol
from polydomo.dialects.memo.worker import MemoWorkerProtocol
from polydomo.dialects.nfp.worker import NfpWorkerProtocol
from polydomo.dialects.session import SLOTS_PROPERTY
from polydomo.errors import ConfigError, NameTaken
from polydomo.sdk import codecs, failures, inprocess
from polydomo.sdk.background_loop import new_loop
from polydomo.sdk.channel import service_name
from polydomo.sdk.client import CATALOGUE, Client
from polydomo.sdk.clock import Timer
from polydomo.sdk.codecs import Codec
from polydomo.sdk.connection_sp import Req
from polydomo.sdk.context import SyncContext
from polydomo.sdk.failover import EndpointSelector
from polydomo.sdk.management import Management
from polydomo.sdk.naming import Naming
from polydomo.sdk.persistence import DAY, Memory, WorkerStore
from polydomo.sdk.service import Service
from polydomo.sdk.transport import PeerTransport
from polydomo.sdk.url import VARIABLE, parse
from polydomo.sdk.worker_connection import ReplySink, Request, WorkerProtocol
from polydomo.sdk.worker_log import WorkerLog
from polydomo.sdk.worker_session import WorkerSession
from polydomo.sdk.worker_session_memo import MemoWorkerSession
from polydomo.sdk.worker_session_nfp import NfpWorkerSession, Records
from polydomo.sdk.worker_session_wmp import WmpWorkerSession

log = logging.getLogger("polydomo.sdk")

Function = TypeVar("Function", bound=Callable[..., Any])

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Worker:
    """See the module's text.

    - `url`: which dialect, which broker or brokers (see `polydomo.sdk.url`).
    - `concurrency`: jobs at the same time: per service on MDP (a connection for each) and NFP (one connection), in all
      on DCP and MemoDB. A job that waits for another of the same worker (`ctx.call`) holds its place meanwhile.
    - `codec`: for all services that name none; see `polydomo.sdk.codecs`.
    - `heartbeat`, `liveness`: a sign of life each so many seconds, and the broker is given up after so many
      without one; the broker's own values must be similar (RFC 18 §Known Weaknesses). MemoDB's brokers send them at
      times of their own: there it is the silence (`heartbeat` × `liveness`) after which we look if it is there.
    - `grace`: seconds that running jobs get to finish when the worker stops.
    - `tracebacks`: send the text of a failed job's traceback to our own clients.
    - `failback`: with several brokers, seconds between two looks whether an earlier one than ours is back; the
      worker moves there then, and leaves the other when nobody asks there any more. 0: it stays.

    NFP and WMP:

    - `name`: by which jobs can be addressed to it. A worker with a name can come back under it, and (NFP) go on with
      what it was given; one without is another each time.
    - `name_taken`: what to do if another worker has the name: "rename" goes on under a name made of it, with a warning,
      "stop" ends with NameTaken.

    WMP only:

    - `labels`: what managers may choose workers by; `weight` is how much of the work it wants beside others.

    NFP only:

    - `resources`: names of what it looks after; a job can be addressed to one of them.
    - `store`: a file in which requests and results are kept (SQLite), for those who ask later, also after a restart of
      the worker; a job that was done is not run again.
    - `keep`: for so many seconds.

    Set `on_offering` to a function to be told, instead of the log, each time that everything is registered,
    and where: at the start, and after a broker was lost. Set `on_resources` to one that takes a service's name and a
    list, to be told what this worker looks after now, where the broker shares a service's resources out (NFP).
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        concurrency: int = 1,
        codec: str | Codec = "json",
        heartbeat: float = 2.5,
        liveness: int = 4,
        grace: float = 30.0,
        tracebacks: bool = True,
        failback: float = 10.0,
        name: str = "",
        resources: Sequence[str] = (),
        store: str | Path | None = None,
        keep: float = DAY,
        labels: Mapping[str, object] | None = None,
        name_taken: Literal["rename", "stop"] = "rename",
    ) -> None:
        if concurrency < 1:
            raise ValueError("a worker needs a concurrency of at least 1")
        self.url = parse(url)
        self.concurrency = concurrency
        self.codec = codecs.find(codec)
        self.heartbeat = heartbeat
        self.liveness = liveness
        self.grace = grace
        self.tracebacks = tracebacks
        self.failback = failback
        self._naming = Naming(name, name_taken == "stop")
        self.resources = list(resources)
        self.store = store
        self.keep = keep
        self.labels = dict(labels or {})
        self.on_offering: Callable[[str], None] | None = None
        self.on_resources: Callable[[str, list[str]], None] | None = None
        self._url_text = url
        self._services: dict[bytes, Service] = {}
        self._stations: list[WorkerSession] = []
        self._started = asyncio.Event()
        self._stopping = False
        self._limit: Timer | None = None  # of the time that running jobs get when we stop
        self._client: Client
        self._records: Records
        self._management = Management(self, self._nfp_stations, self._ask_broker)
        self._executor: ThreadPoolExecutor
        self._background: asyncio.Task[None] | None = None

    @overload
    def service(self, name: Function) -> Function: ...

    @overload
    def service(
        self, name: str | None = None, *, codec: str | Codec | None = None
    ) -> Callable[[Function], Function]: ...

    def service(
        self, name: str | Function | None = None, *, codec: str | Codec | None = None
    ) -> Function | Callable[[Function], Function]:
        """Offer the decorated function, under `name` or its own. `@worker.service` and
        `@worker.service("name")`."""
        if name is not None and not isinstance(name, str):
            self.add(name.__name__, name, codec=codec)
            return name

        def decorate(function: Function) -> Function:
            self.add(name or function.__name__, function, codec=codec)
            return function

        return decorate

    def add(self, name: str, function: Callable[..., Any], *, codec: str | Codec | None = None) -> None:
        """The same without a decorator."""
        encoded = service_name(name)
        if encoded.startswith(RESERVED):
            raise ValueError(f"{name!r}: names that begin with mmi., sid. or fss. are the broker's own")
        if encoded in self._services:
            raise ValueError(f"{name!r} is offered already")
        if self._stations:
            raise RuntimeError("services are added before the worker runs")
        self._services[encoded] = Service(name, function, self.codec if codec is None else codecs.find(codec))

    @property
    def name(self) -> str:
        """By which jobs can be addressed to it; not the one it was given, if another worker has that."""
        return self._naming.name

    @name.setter
    def name(self, name: str) -> None:
        self._naming.name = name

    @property
    def services(self) -> list[str]:
        """The names of what it offers."""
        return [service.name for service in self._services.values()]

    def use(self, url: str) -> None:
        """Another broker than the one it was made for, for its functions' own calls too; before it runs."""
        if self._stations:
            raise RuntimeError("the broker is chosen before the worker runs")
        self.url = parse(url)
        self._url_text = url

    def set_resources(self, resources: Sequence[str]) -> None:
        """It looks after these from now on (NFP); the broker is told, now or when it is there."""
        self.resources = list(resources)
        task = msgspec.json.encode({"task": "set_resources", "kwargs": {"resources": self.resources}})
        uuid = uuid4().hex.encode()
        for station in self._nfp_stations():
            station.say(lambda side, now: side.manage(uuid, task, now))

    async def run(self) -> None:
        """Serve until `stop`, through any number of lost brokers. Cancelling it drops the jobs in hand."""
        if not self._services:
            raise ConfigError("the worker offers no service", hint="decorate a function with @worker.service")
        if self._stations:
            raise RuntimeError("this worker is running")
        roster = EndpointSelector(self.url, self.failback)
        roster.on_return = self._reconsider
        self._client = Client(self._asking(), failback=self.failback)
        self._stopping = False
        self._records = Memory() if self.store is None else WorkerStore(self.store, self.keep)
        self._stations = self._make_stations(roster)
        self._executor = ThreadPoolExecutor(
            len(self._stations) * (self.concurrency if self.url.dialect != "mdp" else 1),
            thread_name_prefix="polydomo-worker",
        )
        self._started.set()
        try:
            async with asyncio.TaskGroup() as group:
                for station in self._stations:
                    group.create_task(station.run())
        except BaseExceptionGroup as errors:
            taken, others = errors.split(NameTaken)
            if taken is None or others is not None:
                raise
            raise taken.exceptions[0] from None
        finally:
            roster.close()
            if self._limit is not None:
                self._limit.cancel()
            self._stations = []
            self._started.clear()
            self._executor.shutdown(wait=False, cancel_futures=True)
            await self._records.close()
            await self._client.close()

    def stop(self) -> None:
        """Take no more jobs, finish those in hand (for `grace` seconds at most), say goodbye; `run` ends
        then. A second call does not wait for them."""
        if self._stopping:
            self._abandon()
            return
        self._stopping = True
        for station in self._stations:
            station.stop()
        if self._stations:
            self._limit = self._stations[0].clock.call_later(self.grace, self._abandon)

    async def ready(self) -> None:
        """Until every service is registered with a broker."""
        await self._started.wait()
        for station in self._stations:
            await station.registered.wait()

    def run_forever(self) -> None:
        """Block, and serve until SIGTERM or SIGINT (the second one does not wait for running jobs)."""
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(self._run_until_signalled())

    async def __aenter__(self) -> Worker:
        """Serve in the background; when the block begins, everything is registered."""
        self._background = asyncio.create_task(self.run())
        ready = asyncio.create_task(self.ready())
        try:
            await asyncio.wait({self._background, ready}, return_when=asyncio.FIRST_COMPLETED)
            if self._background.done():
                await self._background
        except BaseException:
            self._background.cancel()
            raise
        finally:
            ready.cancel()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if not self._stopping:
            self.stop()
        if self._background is not None:
            await self._background

    def _nfp_stations(self) -> list[NfpWorkerSession]:
        """One for each service, on NFP."""
        return [station for station in self._stations if isinstance(station, NfpWorkerSession)]

    async def _ask_broker(self, task: str, timeout: float) -> Any:
        """A task of the broker's catalogue."""
        return await self._client.call(CATALOGUE, {"task": task, "kwargs": {}}, timeout=timeout)

    async def _run_until_signalled(self) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.stop)
        await self.run()

    def _reconsider(self) -> None:
        for station in self._stations:
            station.reconsider()

    def _abandon(self) -> None:
        for station in self._stations:
            station.abandon()

    def _make_stations(self, roster: EndpointSelector) -> list[WorkerSession]:
        dialect = self.url.dialect
        if dialect != "nfp" and (self.resources or self.store is not None):
            raise ConfigError(f"resources and store are for nfp:// URLs, not for {dialect}://", hint="")
        if self.name and dialect not in ("nfp", "wmp"):
            raise ConfigError(f"a name is for nfp:// and wmp:// URLs, not for {dialect}://", hint="")
        if self.labels and dialect != "wmp":
            raise ConfigError(f"labels are for wmp:// URLs, not for {dialect}://", hint="")
        each = {"dcp": 0, "memo": 0, "wmp": 0, "nfp": 1}.get(dialect, self.concurrency)
        number = len(self._services) * each or 1
        notices = WorkerLog(roster.clock, self.services, number, self.on_offering)
        if self.url.dialect == "dcp":
            properties = {SLOTS_PROPERTY: b"%d" % self.concurrency}
            return [
                WorkerSession(roster, self.concurrency, self._dcp_side, self._perform, properties, notices)
            ]
        if dialect == "memo":
            station = MemoWorkerSession(roster, self.concurrency, self._memo_side, self._perform, {}, notices)
            station.silence = self.heartbeat * self.liveness
            return [station]
        if dialect == "wmp":
            far = WmpWorkerSession(roster, self.concurrency, self._no_side, self._perform, {}, notices)
            far.furnish(list(self._services), self.concurrency, self.labels, self._naming)
            return [far]
        if dialect == "nfp":
            return [self._nfp_station(name, roster, notices) for name in self._services]
        return [
            WorkerSession(roster, 1, partial(self._mdp_side, name), self._perform, {}, notices)
            for name in self._services
            for _ in range(self.concurrency)
        ]

    def _asking(self) -> str | None:
        """Where its functions' own calls go. WMP has no clients: its brokers are asked in another dialect."""
        if self.url.dialect != "wmp":
            return self._url_text
        text = self._url_text or os.environ.get(VARIABLE, "")
        return "mdp" + text.strip().removeprefix("wmp")

    def _no_side(self, dealer: PeerTransport) -> WorkerProtocol:
        raise NotImplementedError("WMP's station has one side for all its links")

    def _mdp_side(self, name: bytes, dealer: PeerTransport) -> WorkerProtocol:
        return MdpWorkerProtocol(name, self.heartbeat, self.liveness)

    def _dcp_side(self, dealer: PeerTransport) -> WorkerProtocol:
        names = list(self._services)
        return DcpWorkerProtocol(
            names, self.concurrency, self.heartbeat, self.liveness, bounded=dealer.native
        )

    def _nfp_station(self, name: bytes, roster: EndpointSelector, notices: WorkerLog) -> WorkerSession:
        station = NfpWorkerSession(
            roster, self.concurrency, partial(self._nfp_side, name), self._perform, {}, notices
        )
        station.naming = self._naming
        station.furnish(name, self._records, lambda: self.resources, self._management.perform)
        return station

    def _memo_side(self, link: PeerTransport) -> WorkerProtocol:
        side = MemoWorkerProtocol(list(self._services), self.concurrency, secrets.randbits(31))
        side.ipc = isinstance(link, Req) and link.ipc
        return side

    def _nfp_side(self, name: bytes, dealer: PeerTransport) -> WorkerProtocol:
        hello: dict[str, Any] = {"version": __version__, "credit": self.concurrency}
        if self.name:
            hello["name"] = self.name
        if self.resources:
            hello["resources"] = self.resources
        return NfpWorkerProtocol(name, msgspec.json.encode(hello), self.heartbeat, self.liveness)

    async def _perform(self, outlet: ReplySink, request: Request) -> None:
        """One job, from its body to its answer; whatever happens, it has one."""
        try:
            body = await self._answer(outlet, request)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # we were told to stop; otherwise the function itself raised it
            self._failed(outlet, request, error)
        except (Exception, SystemExit) as error:
            self._failed(outlet, request, error)
        else:
            if body is not None:
                outlet.final(request, body)

    async def _answer(self, outlet: ReplySink, request: Request) -> bytes | None:
        """The final body; None if the job was handed over."""
        service = self._services.get(request.service)
        if service is None:
            raise LookupError(f"this worker does not offer {request.service!r}")
        emit = partial(outlet.partial, request)
        job = request.address.decode("ascii", "backslashreplace")
        line = outlet.line
        if line is not None:
            line.in_thread = service.context is SyncContext
        context = service.context(service.name, job, service.codec, self._client, emit, line)
        body = await service.run(request.body, context, self._executor)
        forward = context.forwarded
        if forward is None:
            return body
        if outlet.forwards:
            outlet.forward(request, service_name(forward.service), forward.body)
            return None
        return await self._client.exchange(forward.service, forward.body, emit, timeout=None)

    def _failed(self, outlet: ReplySink, request: Request, error: BaseException) -> None:
        name = printable(request.service)
        seen = (type(error), error, failures.own_part(error.__traceback__))
        log.warning("%s failed: %s: %s", name, type(error).__name__, error, exc_info=seen)
        listener = inprocess.find(outlet.place.local)
        if listener is not None:
            listener.worker_failed(request.address, error)
        outlet.failed(request, failures.account_of(error, self.tracebacks))
