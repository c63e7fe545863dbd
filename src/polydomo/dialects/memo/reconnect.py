"""What a connection had under way when it broke.

NNG's REQ connects again by itself, mostly within a tenth of a second, and sends every request again that had no answer,
with the same ID. So nothing is ended at once: requests are kept for the grace time, and one that comes again, the same
bytes under the same ID, goes on where it was, or is answered with what came meanwhile. Workers are known by their own
IDs and may come back on any connection.

Only of a worker that is busy nothing can be expected before its result. It is believed to be alive if somebody came
from its address after its connection broke: each newcomer stands for one broken connection, the oldest first.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from polydomo.core.timers import Timer

if TYPE_CHECKING:
    from polydomo.core.job import Job
    from polydomo.dialects.memo.broker_client import MemoClient
    from polydomo.dialects.memo.broker_worker import MemoWorker
    from polydomo.dialects.memo.session import MemoSession

# Answers of broken connections that are kept, all together.
KEPT_BYTES: Final = 64 * 1024 * 1024

# A newcomer may be noticed a little before the break that it stands for.
CROSSING: Final = 1.0


class Answer:
    """An answer that was given, and what it was the answer to."""

    __slots__ = ("content", "limit", "print", "service")

    def __init__(self, service: bytes, limit: float, print: int, content: bytes) -> None:
        self.service = service
        self.limit = limit
        self.print = print  # of the request's body
        self.content = content


class Astray:
    """A client's request whose connection broke. It has a job, an answer, or, for a moment, both."""

    __slots__ = ("answer", "client", "job", "keeper", "session", "stack")

    def __init__(
        self, stack: bytes, job: Job | None, client: MemoClient | None, answer: Answer | None
    ) -> None:
        self.stack = stack
        self.job = job
        self.client = client  # whose port hears of the job
        self.answer = answer
        self.session: MemoSession | None = None  # where it came again
        self.keeper: MemoSession | None = None  # the connection that broke last

    def is_same(self, service: bytes, limit: float, body: bytes) -> bool:
        """Is this the same request?"""
        answer = self.answer
        if answer is not None:
            return answer.service == service and answer.limit == limit and answer.print == hash(body)
        job = self.job
        return job is not None and job.asked == service and job.limit == limit and job.body == body


class Kept:
    """All of them."""

    def __init__(self) -> None:
        self.requests: dict[bytes, list[Astray]] = {}  # by their IDs
        self.readies: dict[bytes, MemoWorker] = {}  # workers whose last request was READY, which names no ID
        self.size = 0  # bytes of answers
        self.room = KEPT_BYTES

    def add(self, request: Astray) -> bool:
        """Keep it. False: there is no room for its answer."""
        if request.answer is not None and not self.add_answer(request, request.answer):
            return False
        self.requests.setdefault(request.stack, []).append(request)
        return True

    def add_answer(self, request: Astray, answer: Answer) -> bool:
        """The answer came before the request did again."""
        if self.size + len(answer.content) > self.room:
            return False
        self.size += len(answer.content)
        request.answer = answer
        return True

    def find(self, stack: bytes, service: bytes, limit: float, body: bytes) -> Astray | None:
        """The request that came again; it is kept no longer."""
        for request in self.requests.get(stack, []):
            if request.is_same(service, limit, body):
                self.remove(request)
                return request
        return None

    def remove(self, request: Astray) -> None:
        """It came again, or nobody waits for it any more."""
        same = self.requests.get(request.stack)
        if same is not None and request in same:
            same.remove(request)
            if request.answer is not None:
                self.size -= len(request.answer.content)
            if not same:
                del self.requests[request.stack]

    def forget_answers(self) -> None:
        """Make room: a request whose answer was kept is done again if it comes again."""
        for same in list(self.requests.values()):
            for request in list(same):
                if request.answer is not None:
                    self.remove(request)


class Grace(Timer):
    """How long a broken connection's things are kept."""

    def __init__(self, session: MemoSession) -> None:
        super().__init__()
        self.session = session
        self.replaced = False  # somebody came from its address afterwards

    def fire(self, now: float) -> None:
        self.session.memo.breaks.over(self)
        self.session.over(self.replaced)


class Breaks:
    """Broken connections and newcomers, by address."""

    def __init__(self) -> None:
        self.waiting: dict[str, deque[Grace]] = {}
        self.newcomers: dict[str, float] = {}  # when the last came that stands for nobody

    def broke(self, grace: Grace, now: float) -> None:
        """A connection with busy workers broke."""
        host = grace.session.host
        if now - self.newcomers.pop(host, -CROSSING) < CROSSING:
            grace.replaced = True
        else:
            self.waiting.setdefault(host, deque()).append(grace)

    def came(self, host: str, now: float) -> None:
        """Somebody connected."""
        waiting = self.waiting.get(host)
        if waiting:
            waiting.popleft().replaced = True
            if not waiting:
                del self.waiting[host]
        else:
            if len(self.newcomers) > 1000:
                self.newcomers = {name: at for name, at in self.newcomers.items() if now - at < CROSSING}
            self.newcomers[host] = now

    def over(self, grace: Grace) -> None:
        """Its time is over."""
        waiting = self.waiting.get(grace.session.host)
        if waiting is not None and grace in waiting:
            waiting.remove(grace)
            if not waiting:
                del self.waiting[grace.session.host]
