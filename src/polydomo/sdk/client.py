"""The client: calls services by name.

    async with Client("mdp://127.0.0.1:5555") as client:
        print(await client.call("echo", {"x": 1}, timeout=5))
        async for part in client.stream("report", {"year": 2026}):
            print(part)

A request whose connection breaks is sent again, to the next endpoint if there are several, at most `retries` times (MDP
assumes that jobs are idempotent; `retries=0` never sends a request twice). No call takes longer than its `timeout`; it
ends with a result or with one error of `polydomo.errors`.

Over NFP (`nfp://`) calls take options (`polydomo.sdk.options`), `broadcast` and `gather` call several workers at once,
`events` subscribes to the workers' events, `job` finds any job by its UUID, and a client with a `store` continues its
unfinished jobs after a restart (`recover`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from time import time
from typing import Any, Final, Literal, Unpack

from polydomo.core.failure import CANCELLED, DRAINING
from polydomo.core.names import parse_name
from polydomo.core.services import RESERVED
from polydomo.errors import (
    ConfigError,
    JobFailed,
    PolydomoError,
    Refused,
    Timeout,
    UnknownService,
    Unreachable,
)
from polydomo.sdk import codecs, failures, gather_codec
from polydomo.sdk.channel import Channel, ClientCall, NoResult, service_name
from polydomo.sdk.channel_dcp import DcpChannel
from polydomo.sdk.channel_mdp import MdpChannel
from polydomo.sdk.channel_memo import RESEND, MemoChannel
from polydomo.sdk.channel_nfp import NfpChannel
from polydomo.sdk.codecs import Codec
from polydomo.sdk.failover import Backoff, EndpointSelector
from polydomo.sdk.gather import Gather
from polydomo.sdk.handle import Handle
from polydomo.sdk.job import Job, JobQueries
from polydomo.sdk.options import JobOptions, first_name, is_single, prepare, target_frame
from polydomo.sdk.persistence import DAY, ClientJob, ClientStore
from polydomo.sdk.subscription import Subscription, event_endpoints
from polydomo.sdk.transport import ConnectionLost
from polydomo.sdk.url import parse
from polydomo.server.endpoints import Endpoint
from polydomo.wire.frames import join, split

# The broker's own services (`services/management.py`).
PRESENCE: Final = "mmi.service"
CATALOGUE: Final = "mmi.service.broker"

# Seconds that a closing client waits for its last records and cancellations.
CLOSE_TIMEOUT: Final = 5.0


class Default(Enum):
    """Stands for the client's own setting, where None has another meaning."""

    DEFAULT = "usual"


DEFAULT: Final = Default.DEFAULT
TimeLimit = float | None | Literal[Default.DEFAULT]


class Client:
    """A client of one broker, or of several in order of preference. It connects on first use; end it with `close` or
    `async with`.

    - `url`: the dialect and the broker or brokers (see `polydomo.sdk.url`); default: the environment's
      `POLYDOMO_URL`, else the profile's, else a broker on this machine.
    - `profile`: the name of a profile (see `polydomo.sdk.profiles`) with the URL or keys that are not given.
    - `codec`: "json", "msgpack", "cbor", "raw" or a `Codec`; `bytes` are always sent unchanged.
    - `timeout`: seconds for a whole call, all retries included; None: no limit.
    - `retries`: how many times a call is sent again after its connection was lost.
    - `connections`: MDP only: concurrent calls; further ones wait.
    - `window`: DCP and NFP: calls outstanding on the connection; further ones wait. MemoDB: the upper limit; the actual
      number follows the rate of the replies.
    - `resend`: MemoDB only: seconds after which a call without a reply is sent again under its ID, then after twice as
      many, and so on (never with `retries=0`). Brokers of other makes may take it for another job.
    - `connect_timeout`: seconds to try all endpoints before a call fails with Unreachable.
    - `ping`: seconds of silence, while a reply is awaited, before the broker is checked.
    - `failback`: with several brokers, seconds between two checks whether an earlier one is back; new calls then go
      there. 0: never.

    NFP only:

    - `name`: the client's name at the broker.
    - `store`: a file in which jobs are recorded before they are sent (SQLite); see `recover`.
    - `keep`: seconds for which finished jobs stay in that file.
    - `events`: the endpoint at which the broker publishes events (`tcp://HOST:PORT`); default: the broker's own
      announcement.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        profile: str | None = None,
        codec: str | Codec = "json",
        timeout: float | None = 30.0,
        retries: int = 2,
        connections: int = 8,
        window: int = 512,
        resend: float = RESEND,
        connect_timeout: float = 5.0,
        ping: float = 5.0,
        failback: float = 10.0,
        name: str = "",
        store: str | Path | None = None,
        keep: float = DAY,
        events: str | Sequence[str] | None = None,
    ) -> None:
        self.url = parse(url, profile)
        self.codec = codecs.find(codec)
        self.timeout = timeout
        self.retries = retries
        if self.url.dialect == "wmp":
            raise ConfigError(
                "WMP has workers and managers, and no clients",
                hint="use mdp:// with the same broker, or run a manager: polydomo.Manager",
            )
        selector = EndpointSelector(self.url, failback)
        self.clock = selector.clock
        self._channel: Channel
        self._store = None if store is None else ClientStore(store, keep)
        self._with_handle: set[str] = set()  # jobs in the store that `recover` leaves out
        self._events = events
        self._queries: JobQueries | None = None  # NFP only
        self._last_tasks: set[asyncio.Task[None]] = (
            set()
        )  # records and cancellations to finish before closing
        if self.url.dialect == "mdp":
            self._channel = MdpChannel(selector, connect_timeout, ping, connections)
        elif self.url.dialect == "dcp":
            self._channel = DcpChannel(selector, connect_timeout, ping, window)
        elif self.url.dialect == "memo":
            self._channel = MemoChannel(selector, connect_timeout, ping, window, resend)
        else:
            nfp = self._channel = NfpChannel(selector, connect_timeout, ping, window, name)
            self._queries = JobQueries(nfp, timeout)
        if self._queries is None and (name or store is not None or events is not None):
            raise ValueError(f"name=, store= and events= are for nfp:// URLs, not for {self.url.dialect}://")

    async def call(
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
        """Call a service and return its final result. A `bytes` body has a `bytes` result unless a codec is named.

        `wait=False`: raise UnknownService instead of queueing for a service that has no worker now. The options are
        NFP's; with a target of several workers the result is a dict as from `gather`.
        """
        call = self._encoded_call(service, body, timeout, retries, codec, options)
        reply = await self._perform(call, wait)
        if self._is_gathered(call):
            return gather_codec.decode(reply, call.codec, service)
        return codecs.decode(reply, call.codec)

    async def stream(
        self,
        service: str,
        body: Any = None,
        *,
        timeout: TimeLimit = DEFAULT,
        retries: int | None = None,
        codec: str | Codec | None = None,
        **options: Unpack[JobOptions],
    ) -> AsyncIterator[Any]:
        """Call a service and yield each partial result as it arrives, then the final one."""
        handle = self.submit(service, body, timeout=timeout, retries=retries, codec=codec, **options)
        try:
            async for part in handle.partials():
                yield part
            yield await handle.result()
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
    ) -> Handle:
        """Submit a job and return its `Handle` at once. Needs a running event loop."""
        return self._submit(self._encoded_call(service, body, timeout, retries, codec, options))

    async def request(
        self,
        service: str,
        frames: Sequence[bytes],
        *,
        timeout: TimeLimit = DEFAULT,
        retries: int | None = None,
        **options: Unpack[JobOptions],
    ) -> list[bytes]:
        """Send raw frames to one worker and return the frames of its reply, without a codec."""
        call = self._call(service, join(frames), timeout, retries, codecs.RAW, options)
        if self._is_gathered(call):
            raise ValueError("request() returns one worker's frames; for several use gather() or broadcast()")
        return split(await self._perform(call))

    def broadcast(
        self,
        service: str,
        body: Any = None,
        *,
        timeout: TimeLimit = DEFAULT,
        retries: int | None = None,
        codec: str | Codec | None = None,
        **options: Unpack[JobOptions],
    ) -> Gather:
        """Submit a job to all connected workers of the service (NFP) and return its `Gather`. Needs a running event
        loop."""
        self._require_nfp("broadcast")
        options["target"] = "all"
        return self._gather(self._encoded_call(service, body, timeout, retries, codec, options))

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
    ) -> Gather:
        """Submit a job to the named workers, or to those with these resources (NFP), and return its `Gather`. The job
        waits for workers that are not connected."""
        self._require_nfp("gather")
        if (targets is None) == (resources is None):
            raise ValueError("give targets= or resources=: names of workers, or of their resources")
        if targets is not None:
            options["target"] = targets
        if resources is not None:
            options["resource"] = resources
        return self._gather(self._encoded_call(service, body, timeout, retries, codec, options))

    def events(
        self, service: str | None = None, worker: str | None = None, kind: str | None = None
    ) -> Subscription:
        """Subscribe to the workers' events about any client's jobs (NFP); all, or those of one service, worker or kind.
        See `Subscription`."""
        channel = self._require_nfp("events").channel

        async def find() -> list[Endpoint]:
            if self._events is not None:
                return event_endpoints(self._events, "")
            try:
                announced = (await channel.open()).get("events")
            except ConnectionLost as lost:
                raise Unreachable(str(lost)) from None
            if announced is None:
                announced = (await self.broker()).get("events", {}).get("endpoints")
            return event_endpoints(announced, channel.host)

        return Subscription(find, self.clock, self.url.addresses[0].keys, service, worker, kind)

    async def job(
        self,
        uuid: str,
        service: str = "all",
        *,
        target: str | Sequence[str] = "any",
        codec: str | Codec | None = None,
    ) -> Job:
        """Return any client's job by its UUID (NFP), see `Job`. A job that the broker has dropped is looked up at the
        workers of `service` and `target`, and the first reply is used; with the target "all", or several names, the
        result is a dict of all replies."""
        queries = self._require_nfp("job")
        used = self.codec if codec is None else codecs.find(codec)
        found = Job(queries, uuid, service, used, target_frame(target, None))
        await found.refresh()
        return found

    async def recover(self) -> list[Handle | Gather]:
        """Submit the unfinished jobs in this client's `store` again, oldest first, and return their handles. Each keeps
        its UUID, so a broker that still knows the job continues it. Each job is recovered once per client."""
        if self._store is None:
            raise RuntimeError("only a client with a store= has something to recover")
        recovered: list[Handle | Gather] = []
        for job in await self._store.unfinished():
            if job.id in self._with_handle:
                continue
            try:
                codec = codecs.find(job.codec)
            except ValueError:  # a Codec of the user's
                codec = self.codec
            call = ClientCall(parse_name(job.service), job.body, job.service, codec, None, self.retries)
            call.uid, call.target = job.id, job.target.encode()
            handle = self._submit(call)
            recovered.append(Gather(handle) if self._is_gathered(call) else handle)
        return recovered

    async def offered(self, service: str) -> bool:
        """Return whether the service has a worker now (RFC 8/MMI). Raises Denied if this client may not call it."""
        return await self.request(PRESENCE, [service_name(service)]) == [b"200"]

    async def services(self) -> list[dict[str, Any]]:
        """Return all services with their workers and their waiting and running jobs."""
        return list(await self._ask("show_services"))

    async def workers(self, service: str | None = None) -> list[dict[str, Any]]:
        """Return all workers, or those of one service."""
        return list(await self._ask("show_workers", service=service))

    async def jobs(
        self, service: str | None = None, state: str | None = None, limit: int = 100
    ) -> list[dict[str, Any]]:
        """Return waiting, running and recently ended jobs, newest first."""
        return list(await self._ask("show_jobs", service=service, state=state, limit=limit))

    async def broker(self) -> dict[str, Any]:
        """Return the broker's version, uptime and counts."""
        return dict(await self._ask("show_broker"))

    async def memos(self, service: str | None = None) -> list[dict[str, Any]]:
        """Return the cached results of memoised services, with their hits and the time saved."""
        return list(await self._ask("show_memos", service=service))

    async def exchange(
        self,
        service: str,
        body: bytes,
        partial: Callable[[bytes], None] | None = None,
        *,
        timeout: TimeLimit = DEFAULT,
        retries: int | None = None,
        **options: Unpack[JobOptions],
    ) -> bytes:
        """Send a canonical body (`wire.frames`) and return that of the result; `partial` gets those of partial
        results. For libraries built on this one."""
        call = self._call(service, body, timeout, retries, codecs.RAW, options)
        call.partial = partial
        return await self._perform(call)

    async def close(self) -> None:
        """Close the connections. Outstanding calls fail with Unreachable; in a `store` they stay unfinished."""
        for _ in range(2):
            await asyncio.sleep(0)  # for calls that were just cancelled and still send a DELETE
        if self._last_tasks:
            await asyncio.wait(self._last_tasks, timeout=CLOSE_TIMEOUT)
        self._channel.close()
        if self._store is not None:
            await self._store.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _ask(self, task: str, **kwargs: Any) -> Any:
        return await self.call(CATALOGUE, {"task": task, "kwargs": kwargs}, codec=codecs.JSON)

    def _encoded_call(
        self,
        service: str,
        body: Any,
        timeout: TimeLimit,
        retries: int | None,
        codec: str | Codec | None,
        options: JobOptions,
    ) -> ClientCall:
        if codec is not None:
            used = codecs.find(codec)
        else:
            used = codecs.RAW if isinstance(body, bytes | bytearray | memoryview) else self.codec
        return self._call(service, codecs.encode(body, used), timeout, retries, used, options)

    def _call(
        self,
        service: str,
        body: bytes,
        timeout: TimeLimit,
        retries: int | None,
        codec: Codec,
        options: JobOptions,
    ) -> ClientCall:
        prepared = prepare(self.url.dialect, options, body)
        return ClientCall(
            service_name(service),
            prepared.body,
            service,
            codec,
            self.timeout if timeout is DEFAULT else timeout,
            self.retries if retries is None else retries,
            uid=prepared.uid,
            target=prepared.target,
            run_timeout=prepared.run_timeout,
        )

    def _is_gathered(self, call: ClientCall) -> bool:
        return self._queries is not None and not is_single(call.service, call.target)

    def _submit(self, call: ClientCall) -> Handle:
        if self._store is not None:
            self._with_handle.add(call.uid)
        put = None if self._queries is None else self._queries.put
        return Handle(call, partial(self._perform, has_handle=True), put, self._is_gathered(call))

    def _gather(self, call: ClientCall) -> Gather:
        if call.service.startswith(RESERVED):
            raise ValueError(f"{call.name} returns one result for all targets: use call() with a target=")
        handle = self._submit(call)
        return Gather(handle, "" if self._is_gathered(call) else first_name(call.target))

    def _require_nfp(self, what: str) -> JobQueries:
        if self._queries is None:
            raise RuntimeError(f"{what}: not supported by {self.url.dialect}; use an nfp:// URL")
        return self._queries

    async def _perform(self, call: ClientCall, wait: bool = True, has_handle: bool = False) -> bytes:
        """Return the final body within the time limit, and record the job if there is a store. A job with a handle
        stays unfinished in the store after a time-out, because its result can still be queried."""
        store = self._store
        if store is None or call.service.startswith(RESERVED):
            return await self._limited(call, wait)
        target = call.target.decode()
        await store.add(ClientJob(call.uid, call.name, target, call.body, call.codec.name, time()))
        try:
            body = await self._limited(call, wait)
        except (JobFailed, Refused, UnknownService) as error:
            await store.end(call.uid, None, getattr(error, "reason", error.code))
            raise
        except Timeout:
            if not has_handle:
                await store.end(call.uid, None, Timeout.code)
            raise
        except asyncio.CancelledError:
            if call.cancelled or not has_handle:
                self._finish_later(store.end(call.uid, None, CANCELLED))
            raise
        await store.end(call.uid, body)
        return body

    def _finish_later(self, work: Coroutine[Any, Any, object]) -> None:
        if self._channel.closed:
            work.close()
            return

        async def finish() -> None:
            try:
                await work
            except PolydomoError:
                pass  # the caller is gone

        task = asyncio.create_task(finish())
        self._last_tasks.add(task)
        task.add_done_callback(self._last_tasks.discard)

    async def _limited(self, call: ClientCall, wait: bool) -> bytes:
        try:
            async with self.clock.timeout(call.timeout):
                if not wait and not await self._is_offered(call):
                    raise UnknownService(f"no worker offers {call.name!r}")
                return await self._exchange(call)
        except TimeoutError:
            last_error = self._channel.selector.last_error
            within = f"within {call.timeout:g} s"
            if call.sent or not last_error:
                raise Timeout(f"{call.name}: no answer {within}") from None
            raise Unreachable(f"{call.name}: it could not be sent {within} ({last_error})") from None
        except asyncio.CancelledError:
            # Cancelled between two connections: the DELETE has not been sent yet.
            if call.cancelled and call.sent and not call.delete_sent and self._queries is not None:
                self._finish_later(self._queries.delete(call.name, call.uid, call.target))
            raise

    async def _is_offered(self, call: ClientCall) -> bool:
        query = self._call(PRESENCE, join([call.service]), None, call.retries, codecs.RAW, {})
        return split(await self._exchange(query)) == [b"200"]

    async def _exchange(self, call: ClientCall) -> bytes:
        """Return the final body. Repeat a call that was lost; send one that a stopping broker refused to the next."""
        channel = self._channel
        other_brokers = len(self.url.addresses) - 1
        backoff: Backoff | None = None
        while True:
            try:
                body = await channel.exchange(call)
                if not call.native or not failures.is_failure(body):
                    return body
                failure = failures.read(body)
            except NoResult as error:
                failure = error.info
            except ConnectionLost as lost:
                if channel.closed:
                    raise Unreachable(f"{call.name}: the client was closed", hint="") from None
                if call.sent > call.retries:
                    raise Unreachable(
                        f"{call.name}: sent {call.sent} times, and each time the connection was lost ({lost})",
                        hint="the job may have been run; allow more retries= or give a second endpoint",
                    ) from None
                if backoff is None:  # the first time without a pause: the broker may just have been restarted
                    backoff = Backoff()
                else:
                    await self.clock.sleep(backoff.pause())
                continue
            if failure.reason == DRAINING and other_brokers:
                other_brokers -= 1
                call.sent -= 1  # not accepted, so it cannot be run twice
                channel.retire()
                continue
            raise failures.error_of(failure, call.name)
