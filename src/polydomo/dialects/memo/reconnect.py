"""Requests and workers of broken connections.

NNG's REQ reconnects by itself, mostly within a tenth of a second, and repeats every request that had no reply, with the
same ID. So nothing ends when a connection breaks: its requests are kept for the grace period, and one that is repeated
(same bytes, same ID, same principal) continues its job, or gets the reply that arrived in between. Workers have IDs of
their own and may continue on any connection of their principal.

A busy worker sends nothing before its result. It counts as alive if a new connection came from its address after its
own broke: each new connection replaces one broken connection, the oldest first.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from polydomo.core.model import Job
from polydomo.dialects.memo.connection import MemoPeerConnection, SentReply

# All replies of broken connections together.
KEPT_BYTES: Final = 64 * 1024 * 1024

# A new connection may be noticed this many seconds before the break of the connection that it replaces.
CROSSING: Final = 1.0


class GracePeriod:
    """Grace period of a broken connection."""

    def __init__(self, connection: MemoPeerConnection) -> None:
        self.connection = connection
        self.requests: list[InterruptedRequest] = []
        self.replaced = False  # a new connection came from its address


class InterruptedRequest:
    """A client's request whose connection broke. It has either a job or a reply."""

    __slots__ = ("connection", "grace", "job", "reply", "stack")

    def __init__(self, stack: bytes, job: Job | None, reply: SentReply | None) -> None:
        self.stack = stack
        self.job = job
        self.reply = reply
        self.connection: MemoPeerConnection | None = None  # the one it was repeated on
        self.grace: GracePeriod | None = None  # of the connection that broke last

    def matches(self, service: bytes, limit: float, body: bytes) -> bool:
        """Return whether this is the same request."""
        reply = self.reply
        if reply is not None:
            return reply.service == service and reply.limit == limit and reply.digest == hash(body)
        job = self.job
        return (
            job is not None
            and job.requested_service == service
            and job.attempt_timeout == limit
            and job.body == body
        )


class InterruptedRequests:
    """All interrupted requests that have not been repeated."""

    def __init__(self) -> None:
        self.requests: dict[bytes, list[InterruptedRequest]] = {}  # by stack
        self.size = 0  # bytes of replies
        self.room = KEPT_BYTES

    def add(self, request: InterruptedRequest, grace: GracePeriod) -> None:
        """Keep a request until it is repeated or `grace` ends, unless there is no room for its reply."""
        request.grace = grace
        if request.reply is None or self.add_reply(request, request.reply):
            self.requests.setdefault(request.stack, []).append(request)
            grace.requests.append(request)

    def add_reply(self, request: InterruptedRequest, reply: SentReply) -> bool:
        """Keep the reply to a request; False if there is no room for it."""
        if self.size + len(reply.content) > self.room:
            return False
        self.size += len(reply.content)
        request.reply = reply
        return True

    def take(
        self, stack: bytes, service: bytes, limit: float, body: bytes, principal: str
    ) -> InterruptedRequest | None:
        """Remove and return the request that was repeated by its principal; None if it is a new one."""
        for request in self.requests.get(stack, []):
            grace = request.grace
            if grace is None or grace.connection.principal != principal:
                continue
            if request.matches(service, limit, body):
                self.remove(request)
                return request
        return None

    def remove(self, request: InterruptedRequest) -> None:
        """Remove a request that was repeated or whose client is gone."""
        same = self.requests.get(request.stack)
        if same is not None and request in same:
            same.remove(request)
            if request.reply is not None:
                self.size -= len(request.reply.content)
            if not same:
                del self.requests[request.stack]

    def forget_replies(self) -> None:
        """Free memory. A request whose reply is dropped is executed again if it is repeated."""
        for same in list(self.requests.values()):
            for request in list(same):
                if request.reply is not None:
                    self.remove(request)


class ReconnectMatcher:
    """Broken connections with busy workers, and the connections that replace them, by address."""

    def __init__(self) -> None:
        self.broken: dict[str, deque[GracePeriod]] = {}
        self._unmatched: dict[str, float] = {}  # when the last connection came that replaces none

    def add_broken(self, grace: GracePeriod, now: float) -> None:
        """Match a broken connection with busy workers, now or when the next connection comes."""
        host = grace.connection.host
        if now - self._unmatched.pop(host, -CROSSING) < CROSSING:
            grace.replaced = True
        else:
            self.broken.setdefault(host, deque()).append(grace)

    def add_new(self, host: str, now: float) -> None:
        """Match a new connection with the oldest broken one of its address."""
        broken = self.broken.get(host)
        if broken:
            grace = broken[0]
            grace.replaced = True
            self.remove(grace)
        else:
            if len(self._unmatched) > 1000:
                self._unmatched = {name: at for name, at in self._unmatched.items() if now - at < CROSSING}
            self._unmatched[host] = now

    def remove(self, grace: GracePeriod) -> None:
        """Stop waiting for a connection that replaces this one."""
        host = grace.connection.host
        broken = self.broken.get(host)
        if broken is not None and grace in broken:
            broken.remove(grace)
            if not broken:
                del self.broken[host]
