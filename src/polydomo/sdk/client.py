"""The client: calls a service by name and gets its answer.

    async with Client("mdp://127.0.0.1:5555") as client:
        print(await client.call("echo", {"x": 1}, timeout=5))
        async for part in client.stream("report", {"year": 2026}):
            print(part)

What happens when something is lost: a request whose connection breaks is sent again, to the next endpoint if
there are several, `retries` times at most (jobs are idempotent by MDP's assumption; `retries=0` never sends
one twice). No call outlives its `timeout`; whatever the end, it is a result or one error of
`polydomo.errors`.

Over NFP (`nfp://`) calls take options (`polydomo.sdk.options`) and there is more: `broadcast` and `gather` ask several
workers at once, `events` listens to what workers say, `job` finds any job by its UUID, and a client with a `store`
goes on with its unfinished jobs after a restart of its own (`recover`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from enum import Enum
from pathlib import Path
from time import time
from typing import Any, Final, Literal, Unpack

from polydomo.core.job import CANCELLED, DRAINING
from polydomo.core.names import parse_name
from polydomo.core.registry import RESERVED
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
from polydomo.sdk.channel import Call, Channel, NoResult, service_name
from polydomo.sdk.channel_dcp import DcpChannel
from polydomo.sdk.channel_mdp import MdpChannel
from polydomo.sdk.channel_memo import RESEND, MemoChannel
from polydomo.sdk.channel_nfp import NfpChannel
from polydomo.sdk.codecs import Codec
from polydomo.sdk.connection import Lost
from polydomo.sdk.failover import Backoff, EndpointSelector
from polydomo.sdk.gather import Gather
from polydomo.sdk.handle import Handle
from polydomo.sdk.job import Job, JobQueries
from polydomo.sdk.options import JobOptions, first_name, is_single, prepare, target_frame
from polydomo.sdk.persistence import DAY, ClientStore, KeptJob
from polydomo.sdk.subscription import Subscription, places_of
from polydomo.sdk.url import parse
from polydomo.server.endpoints import Endpoint
from polydomo.wire.frames import join, split

# The broker's own services (`services/management.py`).
PRESENCE: Final = "mmi.service"
CATALOGUE: Final = "mmi.service.broker"

# Seconds that what a closed client has still to write may take.
FAREWELL: Final = 5.0


class Usual(Enum):
    """Stands for "as the client was told", where None means something else."""

    USUAL = "usual"


USUAL: Final = Usual.USUAL
TimeLimit = float | None | Literal[Usual.USUAL]


class Client:
    """See the module's text. Connects when it is first used; `async with` or `close` ends it.

    - `url`: which dialect, which broker or brokers (see `polydomo.sdk.url`); default: the environment's
      `POLYDOMO_URL`, else a broker on this machine.
    - `codec`: "json", "msgpack", "cbor", "raw" or a `Codec`; `bytes` are always sent as they are.
    - `timeout`: seconds a call may take in all, from first to last; None: for ever.
    - `retries`: how often a call is sent again after its connection was lost.
    - `connections`: MDP only: calls at the same time; more wait their turn.
    - `window`: DCP and NFP: calls outstanding on the one connection; more wait their turn. MemoDB: the most there may
      be; how many there are follows the rate of the answers.
    - `resend`: MemoDB only: seconds after which a call that has had no answer is sent again under its ID, then after
      twice as many, and so on (with `retries=0` it never is). Brokers of other makes may take it for another job.
    - `connect_timeout`: seconds to look for a broker at all endpoints before a call is Unreachable.
    - `ping`: seconds of silence, while an answer is awaited, before the broker is asked whether it is there.
    - `failback`: with several brokers, seconds between two looks whether an earlier one than ours is back; new
      calls go there then. 0: they do not.

    NFP only:

    - `name`: how the broker calls this client.
    - `store`: a file in which jobs are recorded before they are sent (SQLite); see `recover`.
    - `keep`: seconds that ended jobs stay in it.
    - `events`: where the broker publishes events (`tcp://HOST:PORT`), if it does not say so itself.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
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
        self.url = parse(url)
        self.codec = codecs.find(codec)
        self.timeout = timeout
        self.retries = retries
        if self.url.dialect == "wmp":
            raise ConfigError(
                "WMP has workers and managers, and no clients",
                hint="ask the broker over mdp://, or be a manager: polydomo.Manager",
            )
        roster = EndpointSelector(self.url, failback)
        self.clock = roster.clock
        self._channel: Channel
        self._nfp: NfpChannel | None = None
        self._store = None if store is None else ClientStore(store, keep)
        self._recovered: set[str] = set()
        self._events = events
        self._questions: JobQueries | None = None
        self._later: set[asyncio.Task[None]] = set()  # small things to finish before the end
        if self.url.dialect == "mdp":
            self._channel = MdpChannel(roster, connect_timeout, ping, connections)
        elif self.url.dialect == "dcp":
            self._channel = DcpChannel(roster, connect_timeout, ping, window)
        elif self.url.dialect == "memo":
            self._channel = MemoChannel(roster, connect_timeout, ping, window, resend)
        else:
            self._channel = self._nfp = NfpChannel(roster, connect_timeout, ping, window, name)
            self._questions = JobQueries(self._nfp, timeout)
        if self._nfp is None and (name or store is not None or events is not None):
            raise ValueError(f"name=, store= and events= are for nfp:// URLs, not for {self.url.dialect}://")

    async def call(
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
        """Ask and wait for the final answer. `bytes` bring back `bytes` unless a codec is named.

        `wait=False`: do not queue for a service that nobody offers now; UnknownService instead. The options are NFP's;
        with a target of several workers the answer is a dict as from `gather`.
        """
        used = self._codec_for(body, codec)
        call = self._call(service, codecs.encode(body, used), options)
        answer = await self._perform(call, service, used, timeout, retries, wait, patient=False)
        if self._nfp is not None and not is_single(call.service, call.target):
            return gather_codec.decode(answer, used, service)
        return codecs.decode(answer, used)

    async def stream(
        self,
        service: str,
        body: Any = None,
        *,
        timeout: TimeLimit = USUAL,
        retries: int | None = None,
        codec: str | Codec | None = None,
        **options: Unpack[JobOptions],
    ) -> AsyncIterator[Any]:
        """Every partial answer as it comes, then the final one."""
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
        timeout: TimeLimit = USUAL,
        retries: int | None = None,
        codec: str | Codec | None = None,
        **options: Unpack[JobOptions],
    ) -> Handle:
        """Ask now, wait later: see `Handle`. Needs a running event loop."""
        used = self._codec_for(body, codec)
        call = self._call(service, codecs.encode(body, used), options)
        return self._handle(call, service, used, timeout, retries)

    async def request(
        self,
        service: str,
        frames: Sequence[bytes],
        *,
        timeout: TimeLimit = USUAL,
        retries: int | None = None,
        **options: Unpack[JobOptions],
    ) -> list[bytes]:
        """Raw frames there and back, with no codec in between. For one worker only."""
        call = self._call(service, join(frames), options)
        if self._nfp is not None and not is_single(call.service, call.target):
            raise ValueError("request() brings one worker's frames; ask several with gather() or broadcast()")
        return split(await self._perform(call, service, codecs.RAW, timeout, retries, patient=False))

    def broadcast(
        self,
        service: str,
        body: Any = None,
        *,
        timeout: TimeLimit = USUAL,
        retries: int | None = None,
        codec: str | Codec | None = None,
        **options: Unpack[JobOptions],
    ) -> Gather:
        """Ask every worker of the service that is there (NFP): see `Gather`. Needs a running event loop."""
        options["target"] = "all"
        return self._gather(service, body, timeout, retries, codec, options)

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
    ) -> Gather:
        """Ask these workers, or those that have these resources (NFP): see `Gather`. Workers that are not there are
        waited for."""
        if (targets is None) == (resources is None):
            raise ValueError("give targets= or resources=: names of workers or of what they have")
        if targets is not None:
            options["target"] = targets
        if resources is not None:
            options["resource"] = resources
        return self._gather(service, body, timeout, retries, codec, options)

    def events(
        self, service: str | None = None, worker: str | None = None, kind: str | None = None
    ) -> Subscription:
        """What workers say about anybody's jobs (NFP), all of it or of one service, worker, kind: see
        `Subscription`."""
        channel = self._needs_nfp("events")

        async def find() -> list[Endpoint]:
            if self._events is not None:
                return places_of(self._events, "")
            said = (await self._meet(channel)).get("events")
            if said is None:
                said = (await self.broker()).get("events", {}).get("endpoints")
            return places_of(said, channel.host)

        return Subscription(find, self.clock, service, worker, kind)

    async def job(
        self,
        uuid: str,
        service: str = "all",
        *,
        target: str | Sequence[str] = "any",
        codec: str | Codec | None = None,
    ) -> Job:
        """Any client's job by its UUID (NFP): see `Job`. What the broker does not know any more one of its workers may:
        all that have the `service` and `target` are asked, and the first answer is taken; with the target "all", or
        several names, it is a dict of all their answers."""
        self._needs_nfp("job")
        assert self._questions is not None
        used = self.codec if codec is None else codecs.find(codec)
        found = Job(self._questions, uuid, service, used, target_frame(target, None))
        await found.refresh()
        return found

    async def recover(self) -> list[Handle | Gather]:
        """The jobs in this client's `store` whose end is not known, as if submitted again just now, oldest first. Each
        is sent again under its UUID: to a broker that still knows it that is the same job. Once per client."""
        if self._store is None:
            raise RuntimeError("only a client with a store= has something to recover")
        found: list[Handle | Gather] = []
        for kept in await self._store.unfinished():
            if kept.id in self._recovered:
                continue
            target = kept.target.encode()
            try:
                codec = codecs.find(kept.codec)
            except ValueError:  # one of the user's own
                codec = self.codec
            call = Call(parse_name(kept.service), kept.body, uid=kept.id, target=target)
            handle = self._handle(call, kept.service, codec, None, None)
            found.append(handle if is_single(call.service, target) else Gather(handle))
        return found

    async def offered(self, service: str) -> bool:
        """Has the service a worker right now? (RFC 8/MMI)"""
        return await self.request(PRESENCE, [service_name(service)]) == [b"200"]

    async def services(self) -> list[dict[str, Any]]:
        """What is offered: every service with its workers and its waiting and running jobs."""
        return list(await self._ask("show_services"))

    async def workers(self, service: str | None = None) -> list[dict[str, Any]]:
        """Who offers it: every worker, or those of one service."""
        return list(await self._ask("show_workers", service=service))

    async def jobs(
        self, service: str | None = None, state: str | None = None, limit: int = 100
    ) -> list[dict[str, Any]]:
        """Waiting, running and recently ended jobs, newest first."""
        return list(await self._ask("show_jobs", service=service, state=state, limit=limit))

    async def broker(self) -> dict[str, Any]:
        """The broker as a whole: version, uptime, counts."""
        return dict(await self._ask("show_broker"))

    async def memos(self, service: str | None = None) -> list[dict[str, Any]]:
        """What memoised services remember, how often it was asked for, and the time that saved."""
        return list(await self._ask("show_memos", service=service))

    async def exchange(
        self,
        service: str,
        body: bytes,
        partial: Callable[[bytes], None] | None = None,
        *,
        timeout: TimeLimit = USUAL,
        retries: int | None = None,
        **options: Unpack[JobOptions],
    ) -> bytes:
        """For those who build on this: canonical bodies (`wire.frames`) there and back, and one for each
        partial answer."""
        call = self._call(service, body, options)
        call.partial = partial
        return await self._perform(call, service, codecs.RAW, timeout, retries, patient=False)

    async def close(self) -> None:
        """Calls still under way end with Unreachable; in a `store` they stay unfinished."""
        for _ in range(2):
            await asyncio.sleep(0)  # calls that were just given up have something to say
        if self._later:
            await asyncio.wait(self._later, timeout=FAREWELL)
        self._channel.close()
        if self._store is not None:
            await self._store.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _ask(self, task: str, **kwargs: Any) -> Any:
        return await self.call(CATALOGUE, {"task": task, "kwargs": kwargs}, codec=codecs.JSON)

    def _codec_for(self, body: Any, codec: str | Codec | None) -> Codec:
        if codec is not None:
            return codecs.find(codec)
        return codecs.RAW if isinstance(body, bytes | bytearray | memoryview) else self.codec

    def _call(self, service: str, body: bytes, options: JobOptions) -> Call:
        prepared = prepare(self.url.dialect, options, body)
        call = Call(service_name(service), prepared.body, uid=prepared.uid, target=prepared.target)
        call.run_limit = prepared.run_limit
        return call

    def _handle(
        self, call: Call, service: str, codec: Codec, timeout: TimeLimit, retries: int | None
    ) -> Handle:
        def perform(call: Call) -> Coroutine[Any, Any, bytes]:
            return self._perform(call, service, codec, timeout, retries)

        self._recovered.add(call.uid)  # it has a handle
        several = self._nfp is not None and not is_single(call.service, call.target)
        return Handle(service, codec, call, perform, self._questions, several)

    def _gather(
        self,
        service: str,
        body: Any,
        timeout: TimeLimit,
        retries: int | None,
        codec: str | Codec | None,
        options: JobOptions,
    ) -> Gather:
        self._needs_nfp("broadcast and gather")
        used = self._codec_for(body, codec)
        call = self._call(service, codecs.encode(body, used), options)
        if call.service.startswith(RESERVED):
            raise ValueError(f"{service} answers for all it is asked about: call() it with a target=")
        handle = self._handle(call, service, used, timeout, retries)
        return Gather(handle, first_name(call.target) if is_single(call.service, call.target) else "")

    def _needs_nfp(self, what: str) -> NfpChannel:
        if self._nfp is None:
            raise RuntimeError(f"{what}: {self.url.dialect} has no words for it; use an nfp:// URL")
        return self._nfp

    async def _meet(self, channel: NfpChannel) -> dict[str, Any]:
        try:
            return await channel.open()
        except Lost as lost:
            raise Unreachable(str(lost)) from None

    async def _perform(
        self,
        call: Call,
        service: str,
        codec: Codec,
        timeout: TimeLimit,
        retries: int | None,
        wait: bool = True,
        *,
        patient: bool = True,
    ) -> bytes:
        """The final body, within the time allowed; on record, if there is a store. `patient`: somebody has a handle, so
        that a job whose time is over may still be asked for."""
        store = self._store
        if store is None or call.service.startswith(RESERVED):
            return await self._limited(call, service, timeout, retries, wait)
        target = call.target.decode()
        await store.add(KeptJob(call.uid, service, target, call.body, codec.name, time()))
        try:
            body = await self._limited(call, service, timeout, retries, wait)
        except (JobFailed, Refused, UnknownService) as error:
            await store.end(call.uid, None, getattr(error, "reason", error.code))
            raise
        except Timeout:
            if not patient:
                await store.end(call.uid, None, Timeout.code)
            raise
        except asyncio.CancelledError:
            if call.withdrawn or not patient:
                self._finish_later(store.end(call.uid, None, CANCELLED))
            raise
        await store.end(call.uid, body)
        return body

    def _finish_later(self, work: Coroutine[Any, Any, None]) -> None:
        if self._channel.closed:
            work.close()
            return

        async def quietly() -> None:
            try:
                await work
            except PolydomoError:
                pass  # nobody waits for it

        task = asyncio.create_task(quietly())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _limited(
        self, call: Call, service: str, timeout: TimeLimit, retries: int | None, wait: bool
    ) -> bytes:
        limit = self.timeout if timeout is USUAL else timeout
        most = self.retries if retries is None else retries
        call.limit, call.once = limit, most == 0
        try:
            async with self.clock.timeout(limit):
                if not wait and not await self._is_offered(call.service, most):
                    raise UnknownService(f"nobody offers {service!r}")
                return await self._insist(call, service, most)
        except TimeoutError:
            trouble = self._channel.roster.trouble
            if call.sent or not trouble:
                raise Timeout(f"{service}: no answer within {limit:g} s") from None
            raise Unreachable(f"{service}: it could not be sent within {limit:g} s ({trouble})") from None
        except asyncio.CancelledError:
            # Between two connections: nobody was told yet.
            if call.withdrawn and call.sent and not call.deleted and self._questions is not None:
                self._finish_later(self._withdraw(call, service))
            raise

    async def _withdraw(self, call: Call, service: str) -> None:
        assert self._questions is not None
        await self._questions.delete(service, call.uid, call.target)

    async def _is_offered(self, name: bytes, retries: int) -> bool:
        asked = self._call(PRESENCE, join([name]), {})
        answer = await self._insist(asked, PRESENCE, retries)
        return split(answer) == [b"200"]

    async def _insist(self, call: Call, service: str, retries: int) -> bytes:
        """Send again what was lost, go elsewhere with what was refused by a broker that stops."""
        channel = self._channel
        elsewhere = len(self.url.places) - 1
        backoff: Backoff | None = None
        while True:
            try:
                body = await channel.exchange(call)
                if not call.native or not failures.is_failure(body):
                    return body
                account = failures.read(body)
            except NoResult as told:
                account = told.account
            except Lost as lost:
                if channel.closed:
                    raise Unreachable(f"{service}: the client was closed", hint="") from None
                if call.sent > retries:
                    raise Unreachable(
                        f"{service}: sent {call.sent} times, and each time the connection was lost ({lost})",
                        hint="it may have been run; allow more retries= or give a second endpoint",
                    ) from None
                if backoff is None:  # once at once: it may only have been restarted
                    backoff = Backoff()
                else:
                    await self.clock.sleep(backoff.pause())
                continue
            if account.reason == DRAINING and elsewhere:
                elsewhere -= 1
                call.sent -= 1  # it was not taken, so it will not be run twice
                channel.retire()
                continue
            raise failures.error_of(account, service)
