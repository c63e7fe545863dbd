"""The broker's side of MemoDB clients: one port per connection, for all requests that come over it.

A client without a reply repeats its request by itself. So where memo01 has no message for a failure, nothing is sent
and the request's ID is forgotten: a repeat then counts as a new request.
"""

from __future__ import annotations

from polydomo.core.broker import Broker
from polydomo.core.failure import CLIENT_GONE, Failure
from polydomo.core.model import Client, ClientPort, Job
from polydomo.core.tracked_job import survives_client
from polydomo.dialects.memo.connection import REPLY_MAX, MemoPeerConnection, SentReply
from polydomo.dialects.memo.messages import CLIENT_RESULT, DIALECT, payload_of
from polydomo.dialects.memo.reconnect import InterruptedRequest, InterruptedRequests


class MemoClient(ClientPort):
    """Port for the requests of one connection. It outlives the connection while any of them are kept. memo01 has one
    reply per request, so partial ones are dropped."""

    def __init__(
        self, broker: Broker, connection: MemoPeerConnection, interrupted: InterruptedRequests
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.core: Client = broker.join_client(connection.name, DIALECT, self, connection.principal)
        self._interrupted = interrupted
        self._requests: dict[Job, InterruptedRequest] = {}  # jobs whose connection broke, repeated or not

    def final(self, job: Job, body: bytes) -> None:
        content = CLIENT_RESULT + payload_of(body)
        if self.connection.lost:
            self._reply_interrupted(job, content)
            return
        reply: SentReply | None = None
        if len(content) <= REPLY_MAX and job.size <= REPLY_MAX:
            reply = SentReply(job.requested_service, job.attempt_timeout, hash(job.body), content)
        self.connection.reply(job.envelope, content, reply)

    def failed(self, job: Job, failure: Failure) -> None:
        if failure.body is not None:  # the worker's own reply
            self.final(job, failure.body)
            return
        if not self.connection.lost:
            self.connection.jobs.pop(job.envelope, None)
            return
        request = self._requests.pop(job, None)
        if request is not None:
            if request.connection is not None:
                request.connection.jobs.pop(request.stack, None)
            self._interrupted.remove(request)
        self.leave_if_unused()

    def hold(self) -> None:
        self.connection.pause()

    def release(self) -> None:
        self.connection.resume()

    def interrupt(self, stack: bytes, job: Job) -> InterruptedRequest:
        """Return the request of a job whose connection broke, maybe not for the first time."""
        request = self._requests.get(job)
        if request is None:
            request = self._requests[job] = InterruptedRequest(stack, job, None)
        request.connection = None
        return request

    def give_up(self, job: Job) -> None:
        """Cancel a job whose request was not repeated in time, unless the job is durable or shared with others."""
        self._requests.pop(job, None)
        if not survives_client(job):
            self.broker.cancel(job, Failure(CLIENT_GONE, "the client did not reconnect"))
        self.leave_if_unused()

    def leave_if_unused(self) -> None:
        """Leave the broker if the connection is lost and no request of its is kept."""
        if self.connection.lost and not self._requests and not self.core.gone:
            self.broker.client_gone(self.core)

    def _reply_interrupted(self, job: Job, content: bytes) -> None:
        """Reply on the connection where the request was repeated, or keep the reply until it is."""
        request = self._requests.pop(job, None)
        if request is None:
            return
        reply = SentReply(job.requested_service, job.attempt_timeout, hash(job.body), content)
        if request.connection is not None:
            request.connection.reply(request.stack, content, reply)
        else:
            request.job = None
            if not self._interrupted.add_reply(request, reply):
                self._interrupted.remove(request)
        self.leave_if_unused()
