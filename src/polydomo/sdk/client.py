"""The client: calls a service by name and gets its answer.

    async with Client("mdp://127.0.0.1:5555") as client:
        print(await client.call("echo", {"x": 1}, timeout=5))
        async for part in client.stream("report", {"year": 2026}):
            print(part)

What happens when something is lost: a request whose connection breaks is sent again, to the next endpoint if
there are several, `retries` times at most (jobs are idempotent by MDP's assumption; `retries=0` never sends
one twice). No call outlives its `timeout`; whatever the end, it is a result or one error of
`polydomo.errors`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from enum import Enum
from typing import Any, Final, Literal

from polydomo.core.job import DRAINING
from polydomo.errors import Timeout, UnknownService, Unreachable
from polydomo.sdk import codecs, failures
from polydomo.sdk.channel import Call, Channel, service_name
from polydomo.sdk.channel_dcp import DcpChannel
from polydomo.sdk.channel_mdp import MdpChannel
from polydomo.sdk.codecs import Codec
from polydomo.sdk.connection import Lost
from polydomo.sdk.failover import Backoff, Roster
from polydomo.sdk.handle import Handle
from polydomo.sdk.url import parse
from polydomo.wire.frames import join, split

# The broker's own services (`services/management.py`).
PRESENCE: Final = "mmi.service"
CATALOGUE: Final = "mmi.service.broker"


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
    - `window`: DCP only: calls outstanding on the one connection; more wait their turn.
    - `connect_timeout`: seconds to look for a broker at all endpoints before a call is Unreachable.
    - `ping`: seconds of silence, while an answer is awaited, before the broker is asked whether it is there.
    - `failback`: with several brokers, seconds between two looks whether an earlier one than ours is back; new
      calls go there then. 0: they do not.
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
        connect_timeout: float = 5.0,
        ping: float = 5.0,
        failback: float = 10.0,
    ) -> None:
        self.url = parse(url)
        self.codec = codecs.find(codec)
        self.timeout = timeout
        self.retries = retries
        roster = Roster(self.url, failback)
        self._clock = roster.clock
        self._channel: Channel
        if self.url.dialect == "mdp":
            self._channel = MdpChannel(roster, connect_timeout, ping, connections)
        else:
            self._channel = DcpChannel(roster, connect_timeout, ping, window)

    async def call(
        self,
        service: str,
        body: Any = None,
        *,
        timeout: TimeLimit = USUAL,
        retries: int | None = None,
        codec: str | Codec | None = None,
        wait: bool = True,
    ) -> Any:
        """Ask and wait for the final answer. `bytes` bring back `bytes` unless a codec is named.

        `wait=False`: do not queue for a service that nobody offers now; UnknownService instead.
        """
        used = self._codec_for(body, codec)
        call = Call(service_name(service), codecs.encode(body, used))
        return codecs.decode(await self._perform(call, service, timeout, retries, wait), used)

    async def stream(
        self,
        service: str,
        body: Any = None,
        *,
        timeout: TimeLimit = USUAL,
        retries: int | None = None,
        codec: str | Codec | None = None,
    ) -> AsyncIterator[Any]:
        """Every partial answer as it comes, then the final one."""
        handle = self.submit(service, body, timeout=timeout, retries=retries, codec=codec)
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
    ) -> Handle:
        """Ask now, wait later: see `Handle`. Needs a running event loop."""
        used = self._codec_for(body, codec)
        name = service_name(service)
        encoded = codecs.encode(body, used)

        def perform(partial: Callable[[bytes], None]) -> Coroutine[Any, Any, bytes]:
            return self._perform(Call(name, encoded, partial), service, timeout, retries)

        return Handle(service, used, perform)

    async def request(
        self,
        service: str,
        frames: Sequence[bytes],
        *,
        timeout: TimeLimit = USUAL,
        retries: int | None = None,
    ) -> list[bytes]:
        """Raw frames there and back, with no codec in between."""
        call = Call(service_name(service), join(frames))
        return split(await self._perform(call, service, timeout, retries))

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

    async def exchange(
        self,
        service: str,
        body: bytes,
        partial: Callable[[bytes], None] | None = None,
        *,
        timeout: TimeLimit = USUAL,
        retries: int | None = None,
    ) -> bytes:
        """For those who build on this: canonical bodies (`wire.frames`) there and back, and one for each
        partial answer."""
        return await self._perform(Call(service_name(service), body, partial), service, timeout, retries)

    async def close(self) -> None:
        """Calls still under way end with Unreachable."""
        self._channel.close()

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

    async def _perform(
        self, call: Call, service: str, timeout: TimeLimit, retries: int | None, wait: bool = True
    ) -> bytes:
        """The final body, within the time allowed."""
        limit = self.timeout if timeout is USUAL else timeout
        most = self.retries if retries is None else retries
        try:
            async with self._clock.timeout(limit):
                if not wait and not await self._is_offered(call.service, most):
                    raise UnknownService(f"nobody offers {service!r}")
                return await self._insist(call, service, most)
        except TimeoutError:
            trouble = self._channel.roster.trouble
            if call.sent or not trouble:
                raise Timeout(f"{service}: no answer within {limit:g} s") from None
            raise Unreachable(f"{service}: it could not be sent within {limit:g} s ({trouble})") from None

    async def _is_offered(self, name: bytes, retries: int) -> bool:
        answer = await self._insist(Call(PRESENCE.encode(), join([name])), PRESENCE, retries)
        return split(answer) == [b"200"]

    async def _insist(self, call: Call, service: str, retries: int) -> bytes:
        """Send again what was lost, go elsewhere with what was refused by a broker that stops."""
        channel = self._channel
        elsewhere = len(self.url.places) - 1
        backoff: Backoff | None = None
        while True:
            try:
                body = await channel.exchange(call)
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
                    await self._clock.sleep(backoff.pause())
                continue
            if not call.native or not failures.is_failure(body):
                return body
            account = failures.read(body)
            if account.reason == DRAINING and elsewhere:
                elsewhere -= 1
                call.sent -= 1  # it was not taken, so it will not be run twice
                channel.retire()
                continue
            raise failures.error_of(account, service)
