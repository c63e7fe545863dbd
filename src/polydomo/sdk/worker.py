"""The worker: serves Python functions to clients.

    worker = Worker("mdp://127.0.0.1:5555", concurrency=4)

    @worker.service("resize")
    def resize(body, ctx):              # a plain function runs in a thread
        ctx.progress("loading")
        return shrink(body["path"])

    @worker.service
    async def hello(name):              # an async one on the event loop
        return f"hello {name}"

    worker.run_forever()                # until SIGTERM or SIGINT; or: await worker.run()

See `polydomo.sdk.service` for the kinds of functions and `polydomo.sdk.context` for `ctx`. A function that raises fails
its job, never the worker: Polydomo's clients get a WorkerError with the exception's kind and traceback, others a body
`{"error": "..."}`.

Over NFP (`nfp://`) a worker has a name and resources, to which jobs can be addressed, keeps its requests and results in
a `store`, and answers `mmi.service.worker` (`polydomo.sdk.worker_management`).
"""

from __future__ import annotations

import asyncio
import logging
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
from polydomo.core.services import RESERVED
from polydomo.dialects.dcp.worker import DcpWorkerProtocol
from polydomo.dialects.mdp.worker import MdpWorkerProtocol
from polydomo.dialects.memo.worker import MemoWorkerProtocol
from polydomo.dialects.nfp.worker import NfpWorkerProtocol
from polydomo.dialects.session import SLOTS_PROPERTY
from polydomo.dialects.worker_protocol import WorkerProtocol
from polydomo.errors import ConfigError, Denied, NameTaken
from polydomo.sdk import codecs, failures, inprocess
from polydomo.sdk.background_loop import new_loop
from polydomo.sdk.channel import service_name
from polydomo.sdk.client import CATALOGUE, Client
from polydomo.sdk.clock import TimerHandle
from polydomo.sdk.codecs import Codec
from polydomo.sdk.connection_sp import Req
from polydomo.sdk.context import SyncContext
from polydomo.sdk.failover import EndpointSelector
from polydomo.sdk.persistence import DAY, RecentResults, WorkerStore
from polydomo.sdk.service import ServiceFunction
from polydomo.sdk.transport import PeerTransport
from polydomo.sdk.url import default_url, parse
from polydomo.sdk.worker_connection import ReplySink, RunningJob, WorkerRequest
from polydomo.sdk.worker_log import WorkerLog
from polydomo.sdk.worker_management import WorkerManagement
from polydomo.sdk.worker_name import WorkerName
from polydomo.sdk.worker_session import SessionSettings, SingleBrokerSession, WorkerSession
from polydomo.sdk.worker_session_memo import MemoWorkerSession
from polydomo.sdk.worker_session_nfp import NfpWorkerSession, ResultStore
from polydomo.sdk.worker_session_wmp import WmpWorkerSession

log = logging.getLogger("polydomo.sdk")

Function = TypeVar("Function", bound=Callable[..., Any])

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Worker:
    """A worker that serves Python functions.

    - `url`: the dialect and the broker or brokers (see `polydomo.sdk.url`).
    - `profile`: the name of a profile (see `polydomo.sdk.profiles`) with the URL or keys that are not given.
    - `concurrency`: jobs at the same time: per service on MDP (a connection for each) and NFP (one connection), in all
      on DCP, WMP and MemoDB. A job that waits for another of the same worker (`ctx.call`) keeps its slot.
    - `codec`: for all services without one of their own; see `polydomo.sdk.codecs`.
    - `heartbeat`, `liveness`: seconds between heartbeats, and the number of missed ones after which the broker is given
      up; the broker's own values must be similar (RFC 18 §Known Weaknesses). MemoDB's brokers choose the times of their
      heartbeats: there `heartbeat` × `liveness` is the silence after which the broker is checked.
    - `grace`: seconds that running jobs get to finish when the worker stops.
    - `tracebacks`: send the text of a failed job's traceback to Polydomo's clients.
    - `failback`: with several brokers, seconds between two checks whether an earlier one is back; the worker then moves
      there, and leaves the other when no jobs come from it any more. 0: never.

    NFP and WMP:

    - `name`: jobs can be addressed to it. A worker with a name keeps it after a reconnect, and (NFP) its unfinished
      jobs; one without a name is a new worker each time.
    - `name_taken`: what to do if another worker has the name: "rename" continues under a similar name, with a warning;
      "stop" ends with NameTaken.

    WMP only:

    - `labels`: managers may select workers by them; `weight` is the worker's share of the jobs relative to others.

    NFP only:

    - `resources`: names of what the worker is responsible for; jobs can be addressed to them.
    - `store`: a file in which requests and results are kept (SQLite), for later queries, also after a restart of the
      worker; a job that was done is not run again.
    - `keep`: seconds for which they are kept.

    Set `on_offering` to a function to be called, instead of logging, with the brokers' addresses each time that all
    services are registered: at the start, and after a broker was lost. Set `on_resources` to a function to be called
    with a service's name and a list when the broker assigns resources of that service to this worker (NFP).
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        profile: str | None = None,
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
        self._profile = profile
        self._url_text = url or default_url(profile)
        self.url = parse(self._url_text, profile)
        self.concurrency = concurrency
        self.codec = codecs.find(codec)
        self.heartbeat = heartbeat
        self.liveness = liveness
        self.grace = grace
        self.tracebacks = tracebacks
        self.failback = failback
        self._worker_name = WorkerName(name, name_taken == "stop")
        self.resources = list(resources)
        self.store = store
        self.keep = keep
        self.labels = dict(labels or {})
        self.on_offering: Callable[[str], None] | None = None
        self.on_resources: Callable[[str, list[str]], None] | None = None
        self._services: dict[bytes, ServiceFunction] = {}
        self._sessions: list[WorkerSession] = []
        self._started = asyncio.Event()
        self._stopping = False
        self._grace_timer: TimerHandle | None = None
        self._client: Client
        self._results: ResultStore
        self._management = WorkerManagement(self, self._nfp_sessions, self._ask_broker)
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
        """Offer the decorated function, under `name` or its own: `@worker.service` or `@worker.service("name")`."""
        if name is not None and not isinstance(name, str):
            self.add(name.__name__, name, codec=codec)
            return name

        def decorate(function: Function) -> Function:
            self.add(name or function.__name__, function, codec=codec)
            return function

        return decorate

    def add(self, name: str, function: Callable[..., Any], *, codec: str | Codec | None = None) -> None:
        """Offer a function under this name."""
        encoded = service_name(name)
        if encoded.startswith(RESERVED):
            raise ValueError(f"{name!r}: names that begin with mmi., sid. or fss. are the broker's own")
        if encoded in self._services:
            raise ValueError(f"{name!r} is offered already")
        if self._sessions:
            raise RuntimeError("services must be added before the worker runs")
        self._services[encoded] = ServiceFunction(
            name, function, self.codec if codec is None else codecs.find(codec)
        )

    @property
    def name(self) -> str:
        """The worker's name at its brokers; differs from the given one if another worker has that."""
        return self._worker_name.name

    @name.setter
    def name(self, name: str) -> None:
        self._worker_name.name = name

    @property
    def services(self) -> list[str]:
        """The names of the worker's services."""
        return [service.name for service in self._services.values()]

    def use(self, url: str) -> None:
        """Use another broker, for the functions' own calls too. Only before the worker runs."""
        if self._sessions:
            raise RuntimeError("the broker must be chosen before the worker runs")
        self.url = parse(url, self._profile)
        self._url_text = url

    def set_resources(self, resources: Sequence[str]) -> None:
        """Replace the worker's resources (NFP). It is sent to the broker now, or when that is connected again."""
        self.resources = list(resources)
        task = msgspec.json.encode({"task": "set_resources", "kwargs": {"resources": self.resources}})
        uuid = uuid4().hex.encode()
        for session in self._nfp_sessions():
            session.send(lambda protocol, now: protocol.manage(uuid, task, now))

    async def run(self) -> None:
        """Serve until `stop`, through any number of lost brokers. Cancelling this drops the running jobs."""
        if not self._services:
            raise ConfigError("the worker offers no service", hint="decorate a function with @worker.service")
        if self._sessions:
            raise RuntimeError("this worker is running")
        selector = EndpointSelector(self.url, self.failback)
        selector.on_return = self._reconsider
        self._client = Client(self._client_url(), profile=self._profile, failback=self.failback)
        self._stopping = False
        self._results = RecentResults() if self.store is None else WorkerStore(self.store, self.keep)
        self._sessions = self._make_sessions(selector)
        self._executor = ThreadPoolExecutor(
            len(self._sessions) * (self.concurrency if self.url.dialect != "mdp" else 1),
            thread_name_prefix="polydomo-worker",
        )
        self._started.set()
        try:
            async with asyncio.TaskGroup() as group:
                for session in self._sessions:
                    group.create_task(session.run())
        except BaseExceptionGroup as errors:
            known, others = errors.split((NameTaken, Denied))
            if known is None or others is not None:
                raise
            raise known.exceptions[0] from None
        finally:
            selector.close()
            if self._grace_timer is not None:
                self._grace_timer.cancel()
            self._sessions = []
            self._started.clear()
            self._executor.shutdown(wait=False, cancel_futures=True)
            await self._results.close()
            await self._client.close()

    def stop(self) -> None:
        """Take no more jobs, finish the running ones (for at most `grace` seconds), disconnect, and end `run`. A second
        call does not wait for the running jobs."""
        if self._stopping:
            self._abandon()
            return
        self._stopping = True
        for session in self._sessions:
            session.stop()
        if self._sessions:
            self._grace_timer = self._sessions[0].clock.call_later(self.grace, self._abandon)

    async def ready(self) -> None:
        """Wait until every service is registered with a broker."""
        await self._started.wait()
        for session in self._sessions:
            await session.registered.wait()

    def run_forever(self) -> None:
        """Serve until SIGTERM or SIGINT; a second signal does not wait for running jobs. Blocks."""
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(self._run_until_signalled())

    async def __aenter__(self) -> Worker:
        """Serve in the background; all services are registered when the block begins."""
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

    def _nfp_sessions(self) -> list[NfpWorkerSession]:
        return [session for session in self._sessions if isinstance(session, NfpWorkerSession)]

    async def _ask_broker(self, task: str, timeout: float) -> Any:
        return await self._client.call(CATALOGUE, {"task": task, "kwargs": {}}, timeout=timeout)

    async def _run_until_signalled(self) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.stop)
        await self.run()

    def _reconsider(self) -> None:
        for session in self._sessions:
            session.reconsider()

    def _abandon(self) -> None:
        for session in self._sessions:
            session.abandon()

    def _make_sessions(self, selector: EndpointSelector) -> list[WorkerSession]:
        dialect = self.url.dialect
        if dialect != "nfp" and (self.resources or self.store is not None):
            raise ConfigError(f"resources and store are for nfp:// URLs, not for {dialect}://", hint="")
        if self.name and dialect not in ("nfp", "wmp"):
            raise ConfigError(f"a name is for nfp:// and wmp:// URLs, not for {dialect}://", hint="")
        if self.labels and dialect != "wmp":
            raise ConfigError(f"labels are for wmp:// URLs, not for {dialect}://", hint="")
        sessions_per_service = {"mdp": self.concurrency, "nfp": 1}.get(dialect, 0)
        number = len(self._services) * sessions_per_service or 1
        worker_log = WorkerLog(selector.clock, self.services, number, self.on_offering)
        settings = SessionSettings(selector, self.concurrency, self._perform, worker_log, self._worker_name)
        names = list(self._services)
        if dialect == "dcp":
            properties = {SLOTS_PROPERTY: b"%d" % self.concurrency}
            return [SingleBrokerSession(settings, self._dcp_protocol, properties)]
        if dialect == "memo":
            return [MemoWorkerSession(settings, self._memo_protocol, self.heartbeat * self.liveness)]
        if dialect == "wmp":
            return [WmpWorkerSession(settings, names, self.labels)]
        if dialect == "nfp":
            return [
                NfpWorkerSession(
                    settings,
                    partial(self._nfp_protocol, name),
                    name,
                    self._results,
                    lambda: self.resources,
                    self._management.perform,
                )
                for name in names
            ]
        return [
            SingleBrokerSession(settings._replace(slots=1), partial(self._mdp_protocol, name))
            for name in names
            for _ in range(self.concurrency)
        ]

    def _client_url(self) -> str:
        """Return the URL for the functions' own calls. WMP has no clients, so its brokers are called over MDP."""
        if self.url.dialect != "wmp":
            return self._url_text
        return "mdp" + self._url_text.strip().removeprefix("wmp")

    def _mdp_protocol(self, name: bytes, transport: PeerTransport) -> WorkerProtocol:
        return MdpWorkerProtocol(name, self.heartbeat, self.liveness)

    def _dcp_protocol(self, transport: PeerTransport) -> WorkerProtocol:
        names = list(self._services)
        return DcpWorkerProtocol(
            names, self.concurrency, self.heartbeat, self.liveness, bounded=transport.native
        )

    def _memo_protocol(self, transport: PeerTransport) -> WorkerProtocol:
        protocol = MemoWorkerProtocol(list(self._services), self.concurrency, secrets.randbits(31))
        protocol.ipc = isinstance(transport, Req) and transport.ipc
        return protocol

    def _nfp_protocol(self, name: bytes, transport: PeerTransport) -> WorkerProtocol:
        properties: dict[str, Any] = {"version": __version__, "credit": self.concurrency}
        if self.name:
            properties["name"] = self.name
        if self.resources:
            properties["resources"] = self.resources
        return NfpWorkerProtocol(name, msgspec.json.encode(properties), self.heartbeat, self.liveness)

    async def _perform(self, sink: ReplySink, request: WorkerRequest) -> None:
        """Run one job and send its result or failure."""
        try:
            body = await self._run_function(sink, request)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the worker is stopping; otherwise the function itself raised it
            self._failed(sink, request, error)
        except (Exception, SystemExit) as error:
            self._failed(sink, request, error)
        else:
            if body is not None:
                sink.final(request, body)

    async def _run_function(self, sink: ReplySink, request: WorkerRequest) -> bytes | None:
        """Return the final body; None if the job was handed over."""
        service = self._services.get(request.service)
        if service is None:
            raise LookupError(f"this worker does not offer {request.service!r}")
        emit = partial(sink.partial, request)
        job = request.address.decode("ascii", "backslashreplace")
        running = sink if isinstance(sink, RunningJob) else None
        if running is not None:
            running.in_thread = service.context is SyncContext
        context = service.context(service.name, job, service.codec, self._client, emit, running)
        body = await service.run(request.body, context, self._executor)
        forward = context.forwarded
        if forward is None:
            return body
        if sink.forward(request, service_name(forward.service), forward.body):
            return None
        return await self._client.exchange(forward.service, forward.body, emit, timeout=None)

    def _failed(self, sink: ReplySink, request: WorkerRequest, error: BaseException) -> None:
        name = printable(request.service)
        exc_info = (type(error), error, failures.user_traceback(error.__traceback__))
        log.warning("%s failed: %s: %s", name, type(error).__name__, error, exc_info=exc_info)
        broker = inprocess.find(sink.address.local)
        if broker is not None:
            broker.worker_failed(request.address, error)
        sink.failed(request, failures.describe_error(error, self.tracebacks))
