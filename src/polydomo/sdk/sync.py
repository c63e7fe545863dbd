"""The same for programs without an event loop: each class and method is its async counterpart, blocking.

    with SyncClient("mdp://127.0.0.1:5555") as client:
        print(client.call("echo", {"x": 1}, timeout=5))
        for part in client.stream("report", {"year": 2026}):
            print(part)

They run on one event loop in a thread of its own (`polydomo.sdk.background_loop`) and may be used from several
threads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar, Unpack, overload

from polydomo.errors import PolydomoError
from polydomo.sdk.background_loop import portal
from polydomo.sdk.client import USUAL, Client, TimeLimit
from polydomo.sdk.codecs import Codec
from polydomo.sdk.gather import Gather
from polydomo.sdk.handle import Event, Handle
from polydomo.sdk.job import Job
from polydomo.sdk.options import JobOptions
from polydomo.sdk.subscription import Subscription
from polydomo.sdk.worker import Function, Worker

T = TypeVar("T")

_END: Final = object()


class SyncClient:
    """`Client`, blocking."""

    def __init__(self, url: str | None = None, **options: Any) -> None:
        """The options are `Client`'s."""
        self._portal = portal()
        self._client = Client(url, **options)

    def call(
        self,
        service: str,
        body: Any = None,
        *,
        timeout: TimeLimit = USUAL,
        retries: int | None = None,
        codec: str | Codec | None = None,
        wait: bool = True,
        **options: Unpack[JobOptions],
    ) -> Any:
        """Ask and wait for the final answer."""
        return self._portal.run(
            self._client.call(
                service, body, timeout=timeout, retries=retries, codec=codec, wait=wait, **options
            )
        )

    def stream(
        self,
        service: str,
        body: Any = None,
        *,
        timeout: TimeLimit = USUAL,
        retries: int | None = None,
        codec: str | Codec | None = None,
        **options: Unpack[JobOptions],
    ) -> Iterator[Any]:
        """Every partial answer as it comes, then the final one."""
        handle = self.submit(service, body, timeout=timeout, retries=retries, codec=codec, **options)
        try:
            yield from handle.partials()
            yield handle.result()
        finally:
            handle.cancel()

    def submit(
        self,
        service: str,
        body: Any = None,
        *,
        timeout: TimeLimit = USUAL,
        retries: int | None = None,
        codec: str | Codec | None = None,
        **options: Unpack[JobOptions],
    ) -> SyncHandle:
        """Ask now, wait later."""

        async def begin() -> Handle:
            return self._client.submit(
                service, body, timeout=timeout, retries=retries, codec=codec, **options
            )

        return SyncHandle(self._portal.run(begin()))

    def request(
        self,
        service: str,
        frames: Sequence[bytes],
        *,
        timeout: TimeLimit = USUAL,
        retries: int | None = None,
        **options: Unpack[JobOptions],
    ) -> list[bytes]:
        """Raw frames there and back."""
        return self._portal.run(
            self._client.request(service, frames, timeout=timeout, retries=retries, **options)
        )

    def broadcast(
        self,
        service: str,
        body: Any = None,
        *,
        timeout: TimeLimit = USUAL,
        retries: int | None = None,
        codec: str | Codec | None = None,
        **options: Unpack[JobOptions],
    ) -> SyncGather:
        """Ask every worker of the service that is there (NFP)."""

        async def begin() -> Gather:
            return self._client.broadcast(
                service, body, timeout=timeout, retries=retries, codec=codec, **options
            )

        return SyncGather(self._portal.run(begin()))

    def gather(
        self,
        service: str,
        body: Any = None,
        targets: Sequence[str] | None = None,
        *,
        resources: Sequence[str] | None = None,
        timeout: TimeLimit = USUAL,
        retries: int | None = None,
        codec: str | Codec | None = None,
        **options: Unpack[JobOptions],
    ) -> SyncGather:
        """Ask these workers, or those that have these resources (NFP)."""

        async def begin() -> Gather:
            return self._client.gather(
                service,
                body,
                targets,
                resources=resources,
                timeout=timeout,
                retries=retries,
                codec=codec,
                **options,
            )

        return SyncGather(self._portal.run(begin()))

    def events(
        self, service: str | None = None, worker: str | None = None, kind: str | None = None
    ) -> SyncSubscription:
        """What workers say about anybody's jobs (NFP)."""

        async def begin() -> Subscription:
            return self._client.events(service, worker, kind)

        return SyncSubscription(self._portal.run(begin()))

    def job(
        self,
        uuid: str,
        service: str = "all",
        *,
        target: str | Sequence[str] = "any",
        codec: str | Codec | None = None,
    ) -> SyncJob:
        """Any client's job by its UUID (NFP)."""
        return SyncJob(self._portal.run(self._client.job(uuid, service, target=target, codec=codec)))

    def recover(self) -> list[SyncHandle | SyncGather]:
        """The jobs in this client's `store` whose end is not known."""
        return [
            SyncHandle(found) if isinstance(found, Handle) else SyncGather(found)
            for found in self._portal.run(self._client.recover())
        ]

    def offered(self, service: str) -> bool:
        """Has the service a worker right now?"""
        return self._portal.run(self._client.offered(service))

    def services(self) -> list[dict[str, Any]]:
        """What is offered."""
        return self._portal.run(self._client.services())

    def workers(self, service: str | None = None) -> list[dict[str, Any]]:
        """Who offers it."""
        return self._portal.run(self._client.workers(service))

    def jobs(
        self, service: str | None = None, state: str | None = None, limit: int = 100
    ) -> list[dict[str, Any]]:
        """Waiting, running and recently ended jobs, newest first."""
        return self._portal.run(self._client.jobs(service, state, limit))

    def broker(self) -> dict[str, Any]:
        """The broker as a whole."""
        return self._portal.run(self._client.broker())

    def memos(self, service: str | None = None) -> list[dict[str, Any]]:
        """What memoised services remember."""
        return self._portal.run(self._client.memos(service))

    def close(self) -> None:
        """Calls still under way end with Unreachable."""
        self._portal.run(self._client.close())

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class SyncHandle:
    """`Handle`, blocking."""

    def __init__(self, handle: Handle) -> None:
        self.service = handle.service
        self.id = handle.id
        self._portal = portal()
        self._handle = handle

    def done(self) -> bool:
        """Has it ended, well or not?"""
        return self._handle.done()

    def accepted(self) -> None:
        """Until the broker has taken the job."""
        self._portal.run(self._handle.accepted())

    def result(self) -> Any:
        """The final answer, or the error that stands in its place."""
        return self._portal.run(self._handle.result())

    def partials(self) -> Iterator[Any]:
        """Partial answers as they come; ends when the job does."""
        return _each(self._handle.partials())

    def events(self) -> Iterator[Event]:
        """What workers say about this job (NFP only) as it comes; ends when the job does."""
        return _each(self._handle.events())

    def put(self, value: Any) -> None:
        """Give the running job something more (NFP only)."""
        self._portal.run(self._handle.put(value))

    def cancel(self) -> None:
        """Stop waiting; on NFP the job itself is ended, too."""
        self._portal.loop.call_soon_threadsafe(self._handle.cancel)


class SyncGather:
    """`Gather`, blocking. An iterator of workers and their answers."""

    def __init__(self, gather: Gather) -> None:
        self.service = gather.service
        self.id = gather.id
        self._portal = portal()
        self._gather = gather

    def done(self) -> bool:
        """Has it ended, well or not?"""
        return self._gather.done()

    @property
    def failures(self) -> dict[str, PolydomoError]:
        """The workers that failed, as far as known, and why."""
        return self._gather.failures

    def accepted(self) -> None:
        """Until the broker has taken the job."""
        self._portal.run(self._gather.accepted())

    def result(self) -> dict[str, Any]:
        """All answers."""
        return self._portal.run(self._gather.result())

    def events(self) -> Iterator[Event]:
        """What the workers say meanwhile."""
        return _each(self._gather.events())

    def put(self, value: Any) -> None:
        """Give all workers that are at it something more."""
        self._portal.run(self._gather.put(value))

    def cancel(self) -> None:
        """Stop waiting, and end the job."""
        self._portal.loop.call_soon_threadsafe(self._gather.cancel)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return _each(aiter(self._gather))


class SyncJob:
    """`Job`, blocking."""

    def __init__(self, job: Job) -> None:
        self.id = job.id
        self.service = job.service
        self._portal = portal()
        self._job = job

    @property
    def state(self) -> str:
        """As far as known: pending, done, failed or unknown."""
        return self._job.state

    def refresh(self) -> str:
        """Ask again; the state."""
        return self._portal.run(self._job.refresh())

    def result(self, timeout: float | None = None) -> Any:
        """The final answer, or the error in its place; waits until there is one."""
        return self._portal.run(self._job.result(timeout))

    def cancel(self) -> bool:
        """End it, whoever submitted it."""
        return self._portal.run(self._job.cancel())

    def put(self, value: Any) -> None:
        """Give the running job something more."""
        self._portal.run(self._job.put(value))


class SyncSubscription:
    """`Subscription`, blocking. An iterator of events that ends when another thread calls `close`."""

    def __init__(self, subscription: Subscription) -> None:
        self._portal = portal()
        self._subscription = subscription

    def start(self) -> None:
        """Until the broker knows that we listen."""
        self._portal.run(self._subscription.start())

    def close(self) -> None:
        """Listen no more."""
        self._portal.loop.call_soon_threadsafe(self._subscription.close)

    def __iter__(self) -> Iterator[Event]:
        return _each(aiter(self._subscription))

    def __enter__(self) -> SyncSubscription:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class SyncWorker:
    """`Worker` for programs without an event loop. `with SyncWorker(url) as worker:` serves in the
    background; `run` and `run_forever` block."""

    def __init__(self, url: str | None = None, **options: Any) -> None:
        """The options are `Worker`'s."""
        self._worker = Worker(url, **options)
        self._running: Future[None] | None = None

    @overload
    def service(self, name: Function) -> Function: ...

    @overload
    def service(
        self, name: str | None = None, *, codec: str | Codec | None = None
    ) -> Callable[[Function], Function]: ...

    def service(self, name: Any = None, *, codec: str | Codec | None = None) -> Any:
        """Offer the decorated function, under `name` or its own."""
        return self._worker.service(name, codec=codec)

    def add(self, name: str, function: Callable[..., Any], *, codec: str | Codec | None = None) -> None:
        """The same without a decorator."""
        self._worker.add(name, function, codec=codec)

    @property
    def worker(self) -> Worker:
        """The worker that does it all, on its event loop."""
        return self._worker

    @property
    def name(self) -> str:
        """By which jobs can be addressed to it; not the one it was given, if another worker has that."""
        return self._worker.name

    @name.setter
    def name(self, name: str) -> None:
        self._worker.name = name

    @property
    def services(self) -> list[str]:
        """The names of what it offers."""
        return self._worker.services

    def use(self, url: str) -> None:
        """Another broker than the one it was made for; before it runs."""
        self._worker.use(url)

    def set_resources(self, resources: Sequence[str]) -> None:
        """It looks after these from now on (NFP)."""
        portal().loop.call_soon_threadsafe(self._worker.set_resources, list(resources))

    def run(self) -> None:
        """Serve until another thread calls `stop`."""
        self._running = portal().start(self._worker.run())
        self._running.result()

    def stop(self) -> None:
        """Take no more jobs, finish those in hand, say goodbye; `run` ends then."""
        portal().loop.call_soon_threadsafe(self._worker.stop)

    def ready(self) -> None:
        """Until every service is registered with a broker."""
        portal().run(self._worker.ready())

    def run_forever(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        self._worker.run_forever()

    def __enter__(self) -> SyncWorker:
        """Serve in the background; when the block begins, everything is registered."""
        portal().run(self._worker.__aenter__())
        return self

    def __exit__(self, *exc: object) -> None:
        portal().run(self._worker.__aexit__())


def _each(values: AsyncIterator[T]) -> Iterator[T]:
    """An async iterator's values, one after the other, blocking."""
    loop = portal()

    async def following() -> Any:
        return await anext(values, _END)

    while (value := loop.run(following())) is not _END:
        yield value
