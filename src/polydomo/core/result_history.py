"""The ends of jobs, for clients that ask later."""

from __future__ import annotations

from collections import OrderedDict

from polydomo.core.failure import Failure


class JobResult:
    """The end of one job."""

    __slots__ = (
        "body",
        "failure",
        "gathered",
        "owner",
        "request",
        "service",
        "size",
        "uid",
        "until",
        "worker",
    )

    def __init__(
        self,
        uid: str,
        service: bytes,
        worker: bytes,
        body: bytes | None,
        failure: Failure | None,
        gathered: bool,
        until: float = 0.0,
        request: int = 0,
        owner: str = "",
    ) -> None:
        self.uid = uid
        self.service = service
        self.owner = owner  # the name of the principal whose job it was
        self.worker = worker  # that did it; empty for a gathered result
        self.body = body  # canonical; None: it failed
        self.failure = failure
        self.gathered = gathered  # the body is packed (`core.pieces`)
        self.until = until  # kept in memory until then
        self.request = request  # a hash of what was asked: the same id again must mean the same
        self.size = len(body or b"") + 256


class ResultHistory:
    """The latest ends of jobs whose clients named them, oldest first, within bounds of number, bytes and time."""

    def __init__(self, count: int = 100_000, size: int = 64 * 1024 * 1024) -> None:
        self.count = count
        self.size = size
        self.held = 0  # bytes
        self._ends: OrderedDict[str, JobResult] = OrderedDict()

    def keep(self, ended: JobResult) -> None:
        """Add an end. A result that is larger than a quarter of the room is not kept."""
        self.drop(ended.uid)
        if ended.size * 4 > self.size:
            return
        self._ends[ended.uid] = ended
        self.held += ended.size
        while self.held > self.size or len(self._ends) > self.count:
            self.held -= self._ends.popitem(False)[1].size

    def get(self, uid: str, now: float) -> JobResult | None:
        """Return how a job ended, if that is remembered."""
        ended = self._ends.get(uid)
        if ended is not None and ended.until <= now:
            self.drop(uid)
            return None
        return ended

    def drop(self, uid: str) -> None:
        """Forget how a job ended."""
        ended = self._ends.pop(uid, None)
        if ended is not None:
            self.held -= ended.size

    def __len__(self) -> int:
        return len(self._ends)
