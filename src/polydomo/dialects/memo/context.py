"""What all connections of MemoDB peers share, and what each needs of its socket."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from polydomo.core.broker import Broker
from polydomo.core.policy import Heartbeat
from polydomo.dialects.memo.reconnect import Breaks, Kept
from polydomo.dialects.session import Outbox
from polydomo.errors import ProtocolError

if TYPE_CHECKING:
    from polydomo.dialects.memo.broker_worker import MemoWorker

# Of the IDs that workers are given.
ID_SIZE: Final = 4


@mypyc_attr(allow_interpreted_subclasses=True)
class SpTransport(ABC):
    """What a session needs of the socket under it, for what happens rarely. The server implements it."""

    @abstractmethod
    def transmit(self, data: bytes) -> None:
        """Send at once: the hello."""

    @abstractmethod
    def ready(self) -> None:
        """The handshake is done. Raises ProtocolError to refuse the peer."""

    @abstractmethod
    def failed(self, error: ProtocolError) -> None:
        """The peer broke SP: close the socket."""

    @abstractmethod
    def pause(self) -> None:
        """Its clients have too much unanswered: read no more, unless workers are there too."""

    @abstractmethod
    def resume(self) -> None:
        """Read again."""

    @abstractmethod
    def report_violation(self, reason: str) -> None:
        """The peer sent something its protocol does not allow; it was not answered."""

    def buffered(self, size: int) -> None:  # noqa: B027 (only those who watch their memory care)
        """An unfinished message has grown to `size` bytes; 0: it is whole."""


class ClosedSpTransport(SpTransport):
    """Wire of a session whose connection is gone. One that kept the real one would keep all of the connection."""

    def transmit(self, data: bytes) -> None:
        """Nobody is there."""

    def ready(self) -> None:
        """Nobody is there."""

    def failed(self, error: ProtocolError) -> None:
        """Nobody is there."""

    def pause(self) -> None:
        """Nothing is read anyway."""

    def resume(self) -> None:
        """Nothing can be read."""

    def report_violation(self, reason: str) -> None:
        """Nobody is there."""


UNPLUGGED: Final = ClosedSpTransport()


class MemoContext:
    """What all connections share: the broker, the workers, and what is kept of broken connections."""

    def __init__(self, broker: Broker, outbox: Outbox, random: Callable[[int], bytes]) -> None:
        self.broker = broker
        self.outbox = outbox
        self.random = random  # so many bytes that nobody can guess
        self.workers: dict[bytes, MemoWorker] = {}
        self.kept = Kept()
        self.breaks = Breaks()
        self.connected = 0  # ever
        self.repeats = 0  # requests that came again and were ignored
        self.returned = 0  # requests that came again over another connection
        self.workers_max = 10_000
        self.set_rhythm(10.0, 10.0)
        self.wait = 10.0
        self.retries = 0
        self.grace = 10.0

    def set_rhythm(self, heartbeat: float, reply: float) -> None:
        """A HEARTBEAT after so long, and so long for its answer; for workers that come from now on."""
        self.beat = Heartbeat(heartbeat, (heartbeat + reply) / heartbeat)

    def new_id(self) -> bytes:
        """For a worker."""
        while True:
            id = self.random(ID_SIZE)
            if id not in self.workers:
                return id
