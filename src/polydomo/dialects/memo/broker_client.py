"""MemoDB's clients as the core sees them: one per connection, for all requests that come over it.

A client that has no answer asks again by itself. So where MemoDB has no word for a failure, nothing is said, and the
request's ID is forgotten: the same request counts as a new one when it comes again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polydomo.core.client import Client
from polydomo.core.job import CLIENT_GONE, Failure, Job
from polydomo.core.ports import ClientPort
from polydomo.dialects.memo.messages import CLIENT_RESULT, payload_of
from polydomo.dialects.memo.reconnect import Answer, Astray

if TYPE_CHECKING:
    from polydomo.dialects.memo.session import MemoSession

DIALECT: Final = "memo01"

# An answer is remembered, to be given again if its connection breaks, if neither it nor its request is larger.
REMEMBERED: Final = 32768


class MemoClient(ClientPort):
    """The port for one connection's requests. It outlives the connection while they do."""

    def __init__(self, session: MemoSession) -> None:
        memo = session.memo
        self.broker = memo.broker
        self.session = session
        self.core: Client = memo.broker.join_client(session.name, DIALECT, self)
        self.core.wait = memo.wait
        self.core.retries = memo.retries
        self.astray: dict[Job, Astray] = {}  # jobs whose connection broke, come again or not

    def partial(self, job: Job, body: bytes) -> None:
        """MemoDB has one answer to a request: only the last reaches its clients."""

    def final(self, job: Job, body: bytes) -> None:
        content = CLIENT_RESULT + payload_of(body)
        session = self.session
        if not session.live:
            self._late(job, content)
            return
        stack = job.envelope
        session.jobs.pop(stack, None)
        session.answer(stack, content)
        if len(content) <= REMEMBERED and job.size <= REMEMBERED:
            session.remember(stack, Answer(job.asked, job.limit, hash(job.body), content))
        else:
            session.remember(stack, None)

    def failed(self, job: Job, failure: Failure) -> None:
        if failure.body is not None:  # a worker's own words
            self.final(job, failure.body)
            return
        if self.session.live:
            self.session.jobs.pop(job.envelope, None)
            return
        request = self.astray.pop(job, None)
        if request is not None:
            if request.session is not None:
                request.session.jobs.pop(request.stack, None)
            self.session.memo.kept.remove(request)
        self.reap()

    def hold(self) -> None:
        if self.session.live:
            self.session.wire.pause()

    def release(self) -> None:
        if self.session.live:
            self.session.wire.resume()

    def give_up(self, request: Astray) -> None:
        """It did not come again in time. What is on disk, or shared with others, is done all the same."""
        job = request.job
        if job is None:
            return
        self.astray.pop(job, None)
        if not self.broker.lifecycle.survives_client(job):
            self.broker.lifecycle.cancel(job, Failure(CLIENT_GONE, "its client did not come back"))

    def reap(self) -> None:
        """Nobody is left to be told anything."""
        if not self.session.live and not self.astray and not self.core.gone:
            self.broker.client_gone(self.core)

    def _late(self, job: Job, content: bytes) -> None:
        """The connection that the request came over is gone; perhaps it came again over another."""
        request = self.astray.pop(job, None)
        if request is None:
            return
        answer = Answer(job.asked, job.limit, hash(job.body), content)
        session = request.session
        if session is None:
            request.job = None
            if not self.session.memo.kept.add_answer(request, answer):
                self.session.memo.kept.remove(request)
        else:
            session.jobs.pop(request.stack, None)
            session.answer(request.stack, content)
            session.remember(request.stack, answer if len(content) <= REMEMBERED else None)
        self.reap()
