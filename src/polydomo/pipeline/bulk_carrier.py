"""How the rows of one partition get to a broker and their answers back: one connection, many jobs under way.

There are two ways: `bulk_nfp`, for jobs that are kept, and `bulk_client`, which sends rows as calls of a `Client`. This
is what they share.

A carrier does not raise for a row: how it ended is told to its owner, and failures are ends like others. What is
refused only for now (a full queue, a broker that stops) is sent again until the row's time is over. When nobody can be
reached, or nobody offers the service, for longer than `patience`, all rows that are left end with that reason, at once.

A carrier lives on one event loop.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from polydomo.core import job as reasons
from polydomo.errors import PolydomoError, Refused, WorkerError
from polydomo.sdk.failures import REFUSALS
from polydomo.sdk.url import Url

# How a row can end: the ledger's words for how the broker ended its job, and two of this side's own.
DONE: Final = "done"
FAILED: Final = "failed"
DEAD: Final = "dead"
CANCELLED: Final = "cancelled"
REFUSED: Final = "refused"
TIMEOUT: Final = "timeout"
UNREACHABLE: Final = "unreachable"

# Why it is refused by this side.
UNKNOWN_SERVICE: Final = "unknown-service"
NOT_KEPT: Final = "not-kept"
NOT_SENT: Final = "body"

# Refused for now: sent again a little later.
LATER: Final = frozenset({reasons.QUEUE_FULL, reasons.NO_MEMORY, reasons.STORE, reasons.DRAINING})

# Seconds between two looks at what takes too long, and whether somebody offers the service.
LOOK: Final = 0.25


class End(NamedTuple):
    """How a row ended."""

    outcome: str
    error: str | None = None  # a stable word
    message: str | None = None  # and for people
    body: bytes | None = None  # canonical (wire.frames)
    sent: float | None = None  # wall time; None: never
    ended: float | None = None


class Errand(NamedTuple):
    """What all rows of a partition have in common."""

    url: Url
    service: str
    name: str = ""  # how the broker calls the client
    timeout: float | None = 600.0  # for one row
    patience: float = 60.0  # without a broker, or anybody who offers the service
    window: int = 256  # rows under way


class Carrier(ABC):
    """`ended(row, end)` is called once for each row that was given to `send`."""

    def __init__(self, errand: Errand, ended: Callable[[Any, End], None]) -> None:
        self.errand = errand
        self.flying = 0  # rows under way
        self.over: End | None = None  # there is nobody to send to, and how all that is left ends
        self._ended = ended
        self._room: asyncio.Future[None] | None = None

    @abstractmethod
    async def ready(self) -> None:
        """Until rows can be sent, or `over` says why they cannot."""

    @abstractmethod
    def _send(self, row: Any, uid: str, body: bytes, service: bytes | None) -> None:
        """On its way."""

    @abstractmethod
    async def close(self) -> None:
        """Rows under way are left to themselves."""

    async def send(self, row: Any, uid: str, body: bytes, service: bytes | None = None) -> None:
        """Wait for room, then send. `body` is canonical (wire.frames); `service`: another than the errand's."""
        while self.over is None and self._full():
            await self.room()
        if self.over is not None:
            self._ended(row, self.over)
            return
        self.flying += 1
        self._send(row, uid, body, service)

    async def room(self) -> None:
        """Until a row has ended, or something else has changed. For one at a time."""
        self._room = asyncio.get_running_loop().create_future()
        await self._room

    def _full(self) -> bool:
        return self.flying >= self.errand.window

    def _end(self, row: Any, end: End) -> None:
        self.flying -= 1
        self._ended(row, end)
        self._make_room()

    def _make_room(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def _nobody(self) -> End:
        return End(
            REFUSED,
            UNKNOWN_SERVICE,
            f"nobody offered {self.errand.service!r} for {self.errand.patience:g} s "
            "('polydomo services ls' lists what is offered)",
        )


def failure(reason: str, message: str, kind: str = "") -> End:
    """How a row ends whose job has no result."""
    if reason in REFUSALS:
        outcome = REFUSED
    elif reason == reasons.CANCELLED:
        outcome = CANCELLED
    elif reason == reasons.EXHAUSTED:
        outcome = DEAD
    else:
        outcome = FAILED
    return End(outcome, reason, f"{kind}: {message}" if kind else message)


def failure_of(error: PolydomoError) -> End:
    """The same from the SDK's error."""
    if isinstance(error, WorkerError):
        return End(FAILED, reasons.WORKER_ERROR, error.message)
    if isinstance(error, Refused):  # the word stands at the end of its text
        word = error.message.rpartition("[")[2].rstrip("]")
        return End(REFUSED, word if word in REFUSALS else error.code, error.message)
    reason = getattr(error, "reason", error.code)
    return failure(reason, error.message)
