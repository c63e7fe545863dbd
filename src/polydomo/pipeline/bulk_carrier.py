"""Interface and shared parts of the connections that carry one partition's rows to a broker.

There are two implementations: `bulk_nfp` for durable jobs, and `bulk_client`, which sends rows as calls of a `Client`.

A carrier does not raise for a row: it reports the row's outcome to its owner, and failures are outcomes like others.
Temporary refusals (a full queue, a draining broker) are retried until the row times out. When no broker can be reached,
or no worker offers the service, for longer than `patience`, all remaining rows end with that error at once.

A carrier belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from polydomo.core import failure as reasons
from polydomo.errors import PolydomoError, Refused, WorkerError
from polydomo.sdk.failures import REFUSALS
from polydomo.sdk.url import Url

# Outcomes of a row: the ledger's names for how the broker ended its job, and two for errors on this side.
DONE: Final = "done"
FAILED: Final = "failed"
DEAD: Final = "dead"
CANCELLED: Final = "cancelled"
REFUSED: Final = "refused"
TIMEOUT: Final = "timeout"
UNREACHABLE: Final = "unreachable"

# Error codes for rows refused on this side.
UNKNOWN_SERVICE: Final = "unknown-service"
NOT_KEPT: Final = "not-kept"
NOT_SENT: Final = "body"

# Temporary refusals, which are retried.
LATER: Final = frozenset(
    {reasons.QUEUE_FULL, reasons.NO_MEMORY, reasons.STORE, reasons.DRAINING, reasons.QUOTA}
)

# Seconds between two checks for timeouts and for workers of the service.
LOOK: Final = 0.25


class End(NamedTuple):
    """Outcome of a row."""

    outcome: str
    error: str | None = None  # error code
    message: str | None = None  # error text
    body: bytes | None = None  # canonical (wire.frames)
    sent: float | None = None  # wall time; None: never sent
    ended: float | None = None


class Errand(NamedTuple):
    """Options common to all rows of a partition."""

    url: Url
    service: str
    name: str = ""  # the client's name at the broker
    timeout: float | None = 600.0  # for one row
    patience: float = 60.0  # without a broker, or without a worker of the service
    window: int = 256  # rows in flight


class Carrier(ABC):
    """Base class of the connections. `ended(row, end)` is called once for each row passed to `send`."""

    def __init__(self, errand: Errand, ended: Callable[[Any, End], None]) -> None:
        self.errand = errand
        self.flying = 0  # rows in flight
        self.over: End | None = None  # no broker or worker: outcome of all remaining rows
        self._ended = ended
        self._room: asyncio.Future[None] | None = None

    @abstractmethod
    async def ready(self) -> None:
        """Wait until rows can be sent, or until `over` says why they cannot."""

    @abstractmethod
    def _send(self, row: Any, uid: str, body: bytes, service: bytes | None) -> None:
        """Send one row without waiting."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connection and abandon rows in flight."""

    async def send(self, row: Any, uid: str, body: bytes, service: bytes | None = None) -> None:
        """Wait for room, then send. `body` is canonical (wire.frames); `service` overrides the partition's service."""
        while self.over is None and self._full():
            await self.room()
        if self.over is not None:
            self._ended(row, self.over)
            return
        self.flying += 1
        self._send(row, uid, body, service)

    async def room(self) -> None:
        """Wait until a row has ended or the state has changed. Allows one waiter at a time."""
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
            f"no worker offered {self.errand.service!r} for {self.errand.patience:g} s "
            "('polydomo services ls' lists the services)",
        )


def failure(reason: str, message: str, kind: str = "") -> End:
    """Return the outcome of a row whose job has no result."""
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
    """Return the outcome of a row from the SDK's error."""
    if isinstance(error, WorkerError):
        return End(FAILED, reasons.WORKER_ERROR, error.message)
    if isinstance(error, Refused):  # the error code is at the end of the message
        word = error.message.rpartition("[")[2].rstrip("]")
        return End(REFUSED, word if word in REFUSALS else error.code, error.message)
    reason = getattr(error, "reason", error.code)
    return failure(reason, error.message)
