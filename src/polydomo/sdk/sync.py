"""Sync twins, for programs without an event loop: each class and method is its async counterpart, blocking.

    with SyncClient("mdp://127.0.0.1:5555") as client:
        print(client.call("echo", {"x": 1}, timeout=5))
        for part in client.stream("report", {"year": 2026}):
            print(part)

They run on one event loop in a thread of its own (`polydomo.sdk.background_loop`) and may be used from several threads.
The methods are made from those of the async classes (`polydomo.sdk.twin`) and have their parameters and descriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

from polydomo.errors import PolydomoError
from polydomo.sdk.background_loop import shared_loop
from polydomo.sdk.client import Client
from polydomo.sdk.codecs import Codec
from polydomo.sdk.gather import Gather
from polydomo.sdk.handle import Handle
from polydomo.sdk.job import Job
from polydomo.sdk.subscription import Subscription
from polydomo.sdk.twin import SyncTwin, awaited, called, converted, direct, iterated, posted
from polydomo.sdk.worker import Function, Worker


class SyncHandle(SyncTwin[Handle]):
    """`Handle`, blocking."""

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self.service = handle.service
        self.id = handle.id

    done = direct(Handle.done)
    accepted = awaited(Handle.accepted)
    result = awaited(Handle.result)
    partials = iterated(Handle.partials)
    events = iterated(Handle.events)
    put = awaited(Handle.put)
    cancel = posted(Handle.cancel)


class SyncGather(SyncTwin[Gather]):
    """`Gather`, blocking. An iterator of workers and their results."""

    def __init__(self, gather: Gather) -> None:
        super().__init__(gather)
        self.service = gather.service
        self.id = gather.id

    done = direct(Gather.done)

    @property
    def failures(self) -> dict[str, PolydomoError]:
        """The errors of the workers known to have failed so far."""
        return self._target.failures

    accepted = awaited(Gather.accepted)
    result = awaited(Gather.result)
    events = iterated(Gather.events)
    put = awaited(Gather.put)
    cancel = posted(Gather.cancel)
    __iter__ = iterated(Gather.__aiter__)


class SyncJob(SyncTwin[Job]):
    """`Job`, blocking."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.id = job.id
        self.service = job.service

    @property
    def state(self) -> str:
        """The state as of the last query: pending, done, failed or unknown."""
        return self._target.state

    refresh = awaited(Job.refresh)
    result = awaited(Job.result)
    cancel = awaited(Job.cancel)
    put = awaited(Job.put)


class SyncSubscription(SyncTwin[Subscription]):
    """`Subscription`, blocking. An iterator of events that ends when another thread calls `close`."""

    start = awaited(Subscription.start)
    close = posted(Subscription.close)
    __iter__ = iterated(Subscription.__aiter__)

    def __enter__(self) -> SyncSubscription:
        self.start()
        return self

    __exit__ = awaited(Subscription.__aexit__)


def _twins(found: Sequence[Handle | Gather]) -> list[SyncHandle | SyncGather]:
    return [SyncHandle(one) if isinstance(one, Handle) else SyncGather(one) for one in found]


class SyncClient(SyncTwin[Client]):
    """`Client`, blocking. The options are `Client`'s."""

    def __init__(self, url: str | None = None, **options: Any) -> None:
        super().__init__(Client(url, **options))

    call = awaited(Client.call)
    stream = iterated(Client.stream)
    submit = converted(called(Client.submit), SyncHandle)
    request = awaited(Client.request)
    broadcast = converted(called(Client.broadcast), SyncGather)
    gather = converted(called(Client.gather), SyncGather)
    events = converted(called(Client.events), SyncSubscription)
    job = converted(awaited(Client.job), SyncJob)
    recover = converted(awaited(Client.recover), _twins)
    offered = awaited(Client.offered)
    services = awaited(Client.services)
    workers = awaited(Client.workers)
    jobs = awaited(Client.jobs)
    broker = awaited(Client.broker)
    memos = awaited(Client.memos)
    close = awaited(Client.close)

    def __enter__(self) -> SyncClient:
        return self

    __exit__ = awaited(Client.__aexit__)


class SyncWorker(SyncTwin[Worker]):
    """`Worker` for programs without an event loop. `with SyncWorker(url) as worker:` serves in the background; `run`
    and `run_forever` block. The options are `Worker`'s."""

    def __init__(self, url: str | None = None, **options: Any) -> None:
        super().__init__(Worker(url, **options))

    @overload
    def service(self, name: Function) -> Function: ...

    @overload
    def service(
        self, name: str | None = None, *, codec: str | Codec | None = None
    ) -> Callable[[Function], Function]: ...

    def service(self, name: Any = None, *, codec: str | Codec | None = None) -> Any:
        """Offer the decorated function, under `name` or its own."""
        return self._target.service(name, codec=codec)

    add = direct(Worker.add)

    @property
    def worker(self) -> Worker:
        """The async worker behind this one."""
        return self._target

    @property
    def name(self) -> str:
        """The worker's name at its brokers; differs from the given one if another worker has that."""
        return self._target.name

    @name.setter
    def name(self, name: str) -> None:
        self._target.name = name

    @property
    def services(self) -> list[str]:
        """The names of the worker's services."""
        return self._target.services

    use = direct(Worker.use)
    set_resources = posted(Worker.set_resources)

    def run(self) -> None:
        """Serve until another thread calls `stop`."""
        shared_loop().start(self._target.run()).result()

    stop = posted(Worker.stop)
    ready = awaited(Worker.ready)
    run_forever = direct(Worker.run_forever)

    def __enter__(self) -> SyncWorker:
        """Serve in the background; all services are registered when the block begins."""
        shared_loop().run(self._target.__aenter__())
        return self

    __exit__ = awaited(Worker.__aexit__)
