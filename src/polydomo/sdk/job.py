"""Any client's job, found by its UUID (NFP): its state, its result, and its cancellation."""

from __future__ import annotations

from typing import Any, Final

from polydomo.core.names import parse_name
from polydomo.dialects.nfp.client import NfpAnswer, NfpClientProtocol
from polydomo.errors import JobFailed, Timeout, Unreachable
from polydomo.sdk import codecs, failures
from polydomo.sdk.channel_nfp import NfpChannel, failure_info
from polydomo.sdk.codecs import Codec
from polydomo.sdk.failover import FIRST_PAUSE, Backoff
from polydomo.sdk.transport import ConnectionLost
from polydomo.wire.frames import EMPTY_BODY

PENDING: Final = "pending"
DONE: Final = "done"
FAILED: Final = "failed"
UNKNOWN: Final = "unknown"

# Attempts of a query, each on a new connection after the last one's was lost.
ATTEMPTS: Final = 3


class JobQueries:
    """NFP's commands about jobs, each with its response."""

    def __init__(self, channel: NfpChannel, timeout: float | None) -> None:
        self.clock = channel.selector.clock
        self.timeout = timeout
        self.channel = channel
        self._protocol = NfpClientProtocol()

    async def get(self, service: str, uid: str, target: bytes) -> NfpAnswer:
        """Return a job's state and result (GET)."""
        return await self._ask(uid, self._protocol.get(parse_name(service), target, uid.encode()))

    async def delete(self, service: str, uid: str, target: bytes = b"all") -> bool:
        """Cancel a job. Return False if it is unknown or has ended."""
        answer = await self._ask(uid, self._protocol.delete(parse_name(service), target, uid.encode()))
        return answer.status < 400

    async def put(self, service: str, uid: str, value: Any, codec: Codec) -> None:
        """Send input to a job. While no worker runs it, repeat until one does or the job has ended."""
        body = codecs.encode(value, codec) or EMPTY_BODY
        message = self._protocol.put(parse_name(service), b"all", uid.encode(), body)
        backoff = Backoff()
        try:
            async with self.clock.timeout(self.timeout):
                while True:
                    answer = await self._ask(uid, message)
                    if answer.status < 400:
                        return
                    if (await self.get(service, uid, b"any")).status != 300:
                        break
                    await self.clock.sleep(backoff.pause())
        except TimeoutError:
            raise Timeout(f"{uid}: no worker has it within {self.timeout:g} s") from None
        info = failure_info(answer)
        raise JobFailed(f"{service}: {info.message}", reason=info.reason)

    async def _ask(self, uid: str, message: bytes) -> NfpAnswer:
        try:
            async with self.clock.timeout(self.timeout):
                for left in reversed(range(ATTEMPTS)):
                    try:
                        return await self.channel.ask(message)
                    except ConnectionLost as lost:
                        if self.channel.closed or not left:
                            raise Unreachable(f"{uid}: {lost}") from None
                        await self.clock.sleep(FIRST_PAUSE)
        except TimeoutError:
            raise Timeout(f"{uid}: no answer within {self.timeout:g} s") from None
        raise AssertionError


class Job:
    """A job returned by `Client.job`. `state`, as of the last query: "pending" (waiting or running), "done", "failed"
    or "unknown" (the broker has no such job, or not any more)."""

    def __init__(
        self, queries: JobQueries, uid: str, service: str, codec: Codec, target: bytes = b"any"
    ) -> None:
        self.id = uid
        self.service = service
        self.state = PENDING
        self._target = target
        self._codec = codec
        self._queries = queries
        self._last: NfpAnswer | None = None

    async def refresh(self) -> str:
        """Query the broker again and return the state."""
        if self.state == PENDING or self._last is None:
            answer = self._last = await self._queries.get(self.service, self.id, self._target)
            if answer.status == 200:
                self.state = DONE
            elif answer.status < 400:
                self.state = PENDING
            else:
                self.state = UNKNOWN if answer.status == 400 else FAILED
        return self.state

    async def result(self, timeout: float | None = None) -> Any:
        """Wait for the final result, at most `timeout` seconds, and return it decoded, or raise the job's error.
        Results of several workers are a dict of JSON values."""
        clock = self._queries.clock
        backoff = Backoff()
        try:
            async with clock.timeout(timeout):
                while await self.refresh() == PENDING:
                    await clock.sleep(backoff.pause())
        except TimeoutError:
            raise Timeout(f"{self.id}: no result within {timeout:g} s") from None
        answer = self._last
        assert answer is not None
        if answer.status == 200:
            return codecs.decode(answer.body, self._codec)
        if self.state == UNKNOWN:
            raise JobFailed(f"{self.id}: the broker knows no such job", reason="unknown")
        raise failures.error_of(failure_info(answer), self.id if self.service == "all" else self.service)

    async def cancel(self) -> bool:
        """Cancel the job, regardless of its client. Return False if it is unknown or has ended."""
        done = await self._queries.delete(self.service, self.id)
        if done:
            self.state = PENDING
            await self.refresh()
        return done

    async def put(self, value: Any) -> None:
        """Send input to the running job."""
        await self._queries.put(self.service, self.id, value, self._codec)
