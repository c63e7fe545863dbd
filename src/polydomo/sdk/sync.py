"""The same for programs without an event loop: each class and method is its async counterpart, blocking.

    with SyncClient("mdp://127.0.0.1:5555") as client:
        print(client.call("echo", {"x": 1}, timeout=5))
        for part in client.stream("report", {"year": 2026}):
            print(part)

They run on one event loop in a thread of its own (`polydomo.sdk.portal`) and may be used from several
threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Final, overload

from polydomo.sdk.client import USUAL, Client, TimeLimit
from polydomo.sdk.codecs import Codec
from polydomo.sdk.handle import Handle
from polydomo.sdk.portal import portal
from polydomo.sdk.worker import Function, Worker

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
    ) -> Any:
        """Ask and wait for the final answer."""
        return self._portal.run(
            self._client.call(service, body, timeout=timeout, retries=retries, codec=codec, wait=wait)
        )

    def stream(
        self,
        service: str,
        body: Any = None,
        *,
        timeout: TimeLimit = USUAL,
        retries: int | None = None,
        codec: str | Codec | None = None,
    ) -> Iterator[Any]:
        """Every partial answer as it comes, then the final one."""
        handle = self.submit(service, body, timeout=timeout, retries=retries, codec=codec)
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
    ) -> SyncHandle:
        """Ask now, wait later."""

        async def begin() -> Handle:
            return self._client.submit(service, body, timeout=timeout, retries=retries, codec=codec)

        return SyncHandle(self._portal.run(begin()))

    def request(
        self,
        service: str,
        frames: Sequence[bytes],
        *,
        timeout: TimeLimit = USUAL,
        retries: int | None = None,
    ) -> list[bytes]:
        """Raw frames there and back."""
        return self._portal.run(self._client.request(service, frames, timeout=timeout, retries=retries))

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
        self._portal = portal()
        self._handle = handle

    def done(self) -> bool:
        """Has it ended, well or not?"""
        return self._handle.done()

    def result(self) -> Any:
        """The final answer, or the error that stands in its place."""
        return self._portal.run(self._handle.result())

    def partials(self) -> Iterator[Any]:
        """Partial answers as they come; ends when the job does."""
        values = self._handle.partials()

        async def following() -> Any:
            return await anext(values, _END)

        while (value := self._portal.run(following())) is not _END:
            yield value

    def cancel(self) -> None:
        """Stop waiting."""
        self._portal.loop.call_soon_threadsafe(self._handle.cancel)


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
    def services(self) -> list[str]:
        """The names of what it offers."""
        return self._worker.services

    def use(self, url: str) -> None:
        """Another broker than the one it was made for; before it runs."""
        self._worker.use(url)

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
