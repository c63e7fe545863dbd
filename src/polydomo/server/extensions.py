"""Further ways into a server, beside its own listeners. Rooms above the runtime bring them (`polydomo.web`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer


class Metric(NamedTuple):
    """One that Prometheus is told: by the values of `labels`, if there are any. A counter only goes up."""

    name: str
    what: str
    values: dict[tuple[str, ...], float]
    labels: tuple[str, ...] = ()
    counter: bool = True


class Extension(ABC):
    """Opened behind the store and the listeners, on the same loop. Whoever comes in calls `BrokerServer.enter` before
    it calls the core."""

    name: str  # what the log and `show_broker` call it
    bound: list[str]  # where it can be reached, once open

    @abstractmethod
    async def open(self) -> None:
        """Listen. ConfigError: it cannot."""

    @abstractmethod
    def shut(self) -> None:
        """Let nobody new in; the broker is stopping, and finishes its jobs."""

    @abstractmethod
    async def close(self) -> None:
        """All jobs have ended: say goodbye to whoever is left, within a second or so."""

    def inspect(self, now: float) -> None:  # noqa: B027
        """Every few seconds: is somebody overdue?"""

    def figures(self) -> list[Metric]:
        """For `/metrics`."""
        return []

    def show(self) -> dict[str, Any]:
        """For people."""
        return {"bound": list(self.bound)}


# Makes a door for a server, if its settings want one.
ExtensionFactory = Callable[["BrokerServer"], Extension | None]
