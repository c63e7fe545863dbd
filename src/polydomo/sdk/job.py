"""A job by its UUID, whoever submitted it (NFP): what has become of it, its result, its end."""

from __future__ import annotations

from typing import Any, Final

from polydomo.core.names import parse_name
from polydomo.dialects.nfp.client import NfpAnswer, NfpClientProtocol
from polydomo.errors import JobFailed, Timeout, Unreachable
from polydomo.sdk import codecs, failures
from polydomo.sdk.channel_nfp import NfpChannel, account_of
from polydomo.sdk.codecs import Codec
from polydomo.sdk.connection import Lost
from polydomo.sdk.handle import Control
from polydomo.wire.frames import EMPTY_BODY

PENDING: Final = "pending"
DONE: Final = "done"
FAILED: Final = "failed"
UNKNOWN: Final = "unknown"

# Between two looks at a job that is not done: longer each time.
FIRST_LOOK: Final = 0.05
LONGEST_LOOK: Final = 2.0

# Questions are sent again, on a new connection, when theirs was lost.
TRIES: Final = 3


class JobQueries(Control):
    """NFP's commands about jobs, each with its answer."""

    def __init__(self, channel: NfpChannel, timeout: float | None) -> None:
        self.clock = channel.roster.clock
        self.timeout = timeout
        self._channel = channel
        self._side = NfpClientProtocol()

    async def get(self, service: str, uid: str, target: bytes) -> NfpAnswer:
        """What has become of it?"""
        return await self._ask(uid, self._side.get(parse_name(service), target, uid.encode()))

    async def delete(self, service: str, uid: str, target: bytes = b"all") -> bool:
        """End it. False: it is not known, or has ended."""
        answer = await self._ask(uid, self._side.delete(parse_name(service), target, uid.encode()))
        return answer.status < 400

    async def put(self, service: str, uid: str, value: Any, codec: Codec) -> None:
        """Also for a job that no worker has yet: it is tried again until one has, or the job has ended."""
        body = codecs.encode(value, codec) or EMPTY_BODY
        message = self._side.put(parse_name(service), b"all", uid.encode(), body)
        pause = FIRST_LOOK
        try:
            async with self.clock.timeout(self.timeout):
                while True:
                    answer = await self._ask(uid, message)
                    if answer.status < 400:
                        return
                    if (await self.get(service, uid, b"any")).status != 300:
                        break
                    await self.clock.sleep(pause)
                    pause = min(pause * 2, LONGEST_LOOK)
        except TimeoutError:
            raise Timeout(f"{uid}: no worker has it within {self.timeout:g} s") from None
        account = account_of(answer)
        raise JobFailed(f"{service}: {account.message}", reason=account.reason)

    async def _ask(self, uid: str, message: bytes) -> NfpAnswer:
        try:
            async with self.clock.timeout(self.timeout):
                for left in reversed(range(TRIES)):
                    try:
                        return await self._channel.ask(message)
                    except Lost as lost:
                        if self._channel.closed or not left:
                            raise Unreachable(f"{uid}: {lost}") from None
                        await self.clock.sleep(FIRST_LOOK)
        except TimeoutError:
            raise Timeout(f"{uid}: no answer within {self.timeout:g} s") from None
        raise AssertionError


class Job:
    """Given by `Client.job`. `state`, as far as known: "pending" (waiting or running), "done", "failed" or "unknown"
    (the broker has no job of this name, or none any more)."""

    def __init__(
        self, questions: JobQueries, uid: str, service: str, codec: Codec, target: bytes = b"any"
    ) -> None:
        self.id = uid
        self.service = service
        self.state = PENDING
        self._target = target
        self._codec = codec
        self._questions = questions
        self._last: NfpAnswer | None = None

    async def refresh(self) -> str:
        """Ask again; the state."""
        if self.state == PENDING or self._last is None:
            answer = self._last = await self._questions.get(self.service, self.id, self._target)
            if answer.status == 200:
                self.state = DONE
            elif answer.status < 400:
                self.state = PENDING
            else:
                self.state = UNKNOWN if answer.status == 400 else FAILED
        return self.state

    async def result(self, timeout: float | None = None) -> Any:
        """The final answer, decoded, or the error in its place; waits until there is one, `timeout` seconds at most.
        Answers of several workers are a dict of JSON values."""
        clock = self._questions.clock
        pause = FIRST_LOOK
        try:
            async with clock.timeout(timeout):
                while await self.refresh() == PENDING:
                    await clock.sleep(pause)
                    pause = min(pause * 2, LONGEST_LOOK)
        except TimeoutError:
            raise Timeout(f"{self.id}: no result within {timeout:g} s") from None
        answer = self._last
        assert answer is not None
        if answer.status == 200:
            return codecs.decode(answer.body, self._codec)
        if self.state == UNKNOWN:
            raise JobFailed(f"{self.id}: the broker knows no such job", reason="unknown")
        raise failures.error_of(account_of(answer), self.id if self.service == "all" else self.service)

    async def cancel(self) -> bool:
        """End it, whoever submitted it. False: it is not known, or has ended already."""
        done = await self._questions.delete(self.service, self.id)
        if done:
            self.state = PENDING
            await self.refresh()
        return done

    async def put(self, value: Any) -> None:
        """Give the running job something more."""
        await self._questions.put(self.service, self.id, value, self._codec)
