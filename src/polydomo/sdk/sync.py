"""Sync twins, for programs without an event loop: each class and method is its async counterpart, blocking.

    with SyncClient("mdp://127.0.0.1:5555") as client:
        print(client.call("echo", {"x": 1}, timeout=5))
        for part in client.stream("report", {"year": 2026}):
            print(part)

They run on one event loop in a thread of its own (`polydomo.sdk.background_loop`) and may be used from several threads.
The signatures are written out by hand, as a decorator that derives them would hide them from some editors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar, Unpack, overload

from polydomo.errors import PolydomoError
from polydomo.sdk.background_loop import shared_loop
from polydomo.sdk.client import DEFAULT, Client, TimeLimit
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
    """`Client`, blocking. The options are `Client`'s."""

    def __init__(self, url: str | None = None, **options: Any) -> None:
        self._loop = shared_loop()
        self._client = Client(url, **options)

    def call(
        self,
        service: str,
        body: Any = None,
        *,
        timeout: TimeLimit = DEFAULT,
        retries: int | None = None,
        codec: str | Codec | None = None,
        wait: bool = True,
        **options: Unpack[JobOptions],
    ) -> Any:
        """Call a service and return its final result."""
        return self._loop.run(
            self._client.call(
                service, body, timeout=timeout, retries=retries, codec=codec, wait=wait, **options
            )
        )

    def stream(
        self,
        service: str,
        body: Any = None,
        *,
        timeout: TimeLimit = DEFAULT,
        retries: int | None = None,
        codec: str | Codec | None = None,
        **options: Unpack[JobOptions],
    ) -> Iterator[Any]:
        """Call a service and yield each partial result as it arrives, then the final one."""
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
        timeout: TimeLimit = DEFAULT,
        retries: int | None = None,
        codec: str | Codec | None = None,
        **options: Unpack[JobOptions],
    ) -> SyncHandle:
        """Submit a job and return its handle at once."""
        handle = self._loop.call(
            self._client.submit, service, body, timeout=timeout, retries=retries, codec=codec, **options
        )
        return SyncHandle(handle)

    def request(
        self,
        service: str,
        frames: Sequence[bytes],
        *,
        timeout: TimeLimit = DEFAULT,
        retries: int | None = None,
        **options: Unpack[JobOptions],
    ) -> list[bytes]:
        """Send raw frames to one worker and return the frames of its reply."""
        return self._loop.run(
            self._client.request(service, frames, timeout=timeout, retries=retries, **options)
        )

    def broadcast(
        self,
        service: str,
        body: Any = None,
        *,
        timeout: TimeLimit = DEFAULT,
        retries: int | None = None,
        codec: str | Codec | None = None,
        **options: Unpack[JobOptions],
    ) -> SyncGather:
        """Submit a job to all connected workers of the service (NFP)."""
        gather = self._loop.call(
            self._client.broadcast, service, body, timeout=timeout, retries=retries, codec=codec, **options
        )
        return SyncGather(gather)

    def gather(
        self,
        service: str,
        body: Any = None,
        targets: Sequence[str] | None = None,
        *,
        resources: Sequence[str] | None = None,
        timeout: TimeLimit = DEFAULT,
        retries: int | None = None,
        codec: str | Codec | None = None,
        **options: Unpack[JobOptions],
    ) -> SyncGather:
        """Submit a job to the named workers, or to those with these resources (NFP)."""
        gather = self._loop.call(
            self._client.gather,
            service,
            body,
            targets,
            resources=resources,
            timeout=timeout,
            retries=retries,
            codec=codec,
            **options,
        )
        return SyncGather(gather)

    def events(
        self, service: str | None = None, worker: str | None = None, kind: str | None = None
    ) -> SyncSubscription:
        """Subscribe to the workers' events about any client's jobs (NFP)."""
        return SyncSubscription(self._loop.call(self._client.events, service, worker, kind))

    def job(
        self,
        uuid: str,
        service: str = "all",
        *,
        target: str | Sequence[str] = "any",
        codec: str | Codec | None = None,
    ) -> SyncJob:
        """Return any client's job by its UUID (NFP)."""
        return SyncJob(self._loop.run(self._client.job(uuid, service, target=target, codec=codec)))

    def recover(self) -> list[SyncHandle | SyncGather]:
        """Submit the unfinished jobs in this client's `store` again and return their handles."""
        return [
            SyncHandle(found) if isinstance(found, Handle) else SyncGather(found)
            for found in self._loop.run(self._client.recover())
        ]

    def offered(self, service: str) -> bool:
        """Return whether the service has a worker now."""
        return self._loop.run(self._client.offered(service))

    def services(self) -> list[dict[str, Any]]:
        """Return all services with their workers and jobs."""
        return self._loop.run(self._client.services())

    def workers(self, service: str | None = None) -> list[dict[str, Any]]:
        """Return all workers, or those of one service."""
        return self._loop.run(self._client.workers(service))

    def jobs(
        self, service: str | None = None, state: str | None = None, limit: int = 100
    ) -> list[dict[str, Any]]:
        """Return waiting, running and recently ended jobs, newest first."""
        return self._loop.run(self._client.jobs(service, state, limit))

    def broker(self) -> dict[str, Any]:
        """Return the broker's version, uptime and counts."""
        return self._loop.run(self._client.broker())

    def memos(self, service: str | None = None) -> list[dict[str, Any]]:
        """Return the cached results of memoised services."""
        return self._loop.run(self._client.memos(service))

    def close(self) -> None:
        """Close the connections. Outstanding calls fail with Unreachable."""
        self._loop.run(self._client.close())

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class SyncHandle:
    """`Handle`, blocking."""

    def __init__(self, handle: Handle) -> None:
        self.service = handle.service
        self.id = handle.id
        self._loop = shared_loop()
        self._handle = handle

    def done(self) -> bool:
        """Return whether the job has ended, with or without a result."""
        return self._handle.done()

    def accepted(self) -> None:
        """Wait until the broker has accepted the job."""
        self._loop.run(self._handle.accepted())

    def result(self) -> Any:
        """Wait for the final result and return it, or raise the job's error."""
        return self._loop.run(self._handle.result())

    def partials(self) -> Iterator[Any]:
        """Yield partial results as they arrive, until the job ends."""
        return _each(self._handle.partials())

    def events(self) -> Iterator[Event]:
        """Yield the workers' events about this job (NFP only) as they arrive, until it ends."""
        return _each(self._handle.events())

    def put(self, value: Any) -> None:
        """Send input to the running job (NFP only)."""
        self._loop.run(self._handle.put(value))

    def cancel(self) -> None:
        """Stop waiting; on NFP the job itself is cancelled, too."""
        self._loop.loop.call_soon_threadsafe(self._handle.cancel)


class SyncGather:
    """`Gather`, blocking. An iterator of workers and their results."""

    def __init__(self, gather: Gather) -> None:
        self.service = gather.service
        self.id = gather.id
        self._loop = shared_loop()
        self._gather = gather

    def done(self) -> bool:
        """Return whether the job has ended, with or without a result."""
        return self._gather.done()

    @property
    def failures(self) -> dict[str, PolydomoError]:
        """The errors of the workers known to have failed so far."""
        return self._gather.failures

    def accepted(self) -> None:
        """Wait until the broker has accepted the job."""
        self._loop.run(self._gather.accepted())

    def result(self) -> dict[str, Any]:
        """Wait for all results."""
        return self._loop.run(self._gather.result())

    def events(self) -> Iterator[Event]:
        """Yield the workers' events as they arrive, until the job ends."""
        return _each(self._gather.events())

    def put(self, value: Any) -> None:
        """Send input to all workers that run the job."""
        self._loop.run(self._gather.put(value))

    def cancel(self) -> None:
        """Stop waiting and cancel the job."""
        self._loop.loop.call_soon_threadsafe(self._gather.cancel)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return _each(aiter(self._gather))


class SyncJob:
    """`Job`, blocking."""

    def __init__(self, job: Job) -> None:
        self.id = job.id
        self.service = job.service
        self._loop = shared_loop()
        self._job = job

    @property
    def state(self) -> str:
        """The state as of the last query: pending, done, failed or unknown."""
        return self._job.state

    def refresh(self) -> str:
        """Query the broker again and return the state."""
        return self._loop.run(self._job.refresh())

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the final result and return it, or raise the job's error."""
        return self._loop.run(self._job.result(timeout))

    def cancel(self) -> bool:
        """Cancel the job, regardless of its client."""
        return self._loop.run(self._job.cancel())

    def put(self, value: Any) -> None:
        """Send input to the running job."""
        self._loop.run(self._job.put(value))


class SyncSubscription:
    """`Subscription`, blocking. An iterator of events that ends when another thread calls `close`."""

    def __init__(self, subscription: Subscription) -> None:
        self._loop = shared_loop()
        self._subscription = subscription

    def start(self) -> None:
        """Wait until the broker has processed the subscription."""
        self._loop.run(self._subscription.start())

    def close(self) -> None:
        """Disconnect and end all iterations."""
        self._loop.loop.call_soon_threadsafe(self._subscription.close)

    def __iter__(self) -> Iterator[Event]:
        return _each(aiter(self._subscription))

    def __enter__(self) -> SyncSubscription:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class SyncWorker:
    """`Worker` for programs without an event loop. `with SyncWorker(url) as worker:` serves in the background; `run`
    and `run_forever` block. The options are `Worker`'s."""

    def __init__(self, url: str | None = None, **options: Any) -> None:
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
        """Offer a function under this name."""
        self._worker.add(name, function, codec=codec)

    @property
    def worker(self) -> Worker:
        """The async worker behind this one."""
        return self._worker

    @property
    def name(self) -> str:
        """The worker's name at its brokers; differs from the given one if another worker has that."""
        return self._worker.name

    @name.setter
    def name(self, name: str) -> None:
        self._worker.name = name

    @property
    def services(self) -> list[str]:
        """The names of the worker's services."""
        return self._worker.services

    def use(self, url: str) -> None:
        """Use another broker. Only before the worker runs."""
        self._worker.use(url)

    def set_resources(self, resources: Sequence[str]) -> None:
        """Replace the worker's resources (NFP)."""
        shared_loop().loop.call_soon_threadsafe(self._worker.set_resources, list(resources))

    def run(self) -> None:
        """Serve until another thread calls `stop`."""
        self._running = shared_loop().start(self._worker.run())
        self._running.result()

    def stop(self) -> None:
        """Take no more jobs, finish the running ones, disconnect, and end `run`."""
        shared_loop().loop.call_soon_threadsafe(self._worker.stop)

    def ready(self) -> None:
        """Wait until every service is registered with a broker."""
        shared_loop().run(self._worker.ready())

    def run_forever(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        self._worker.run_forever()

    def __enter__(self) -> SyncWorker:
        """Serve in the background; all services are registered when the block begins."""
        shared_loop().run(self._worker.__aenter__())
        return self

    def __exit__(self, *exc: object) -> None:
        shared_loop().run(self._worker.__aexit__())


def _each(values: AsyncIterator[T]) -> Iterator[T]:
    """Yield an async iterator's values, blocking."""
    loop = shared_loop()

    async def next_value() -> Any:
        return await anext(values, _END)

    while (value := loop.run(next_value())) is not _END:
        yield value
