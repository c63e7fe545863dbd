"""Interface of further entrances to a server beside its own listeners; `polydomo.web` and `polydomo.federation` have
some."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple


class Metric(NamedTuple):
    """Metric for Prometheus: its values by the values of `labels`. A counter only increases."""

    name: str
    what: str
    values: dict[tuple[str, ...], float]
    labels: tuple[str, ...] = ()
    counter: bool = True


class Extension(ABC):
    """Entrance on the server's event loop, opened after the store and the listeners.

    An extension calls `BrokerServer.advance` before it calls the core.
    """

    name: str  # in the log and in `show_broker`
    bound: list[str]  # endpoints, once open

    @abstractmethod
    async def open(self) -> None:
        """Listen, or raise ConfigError."""

    @abstractmethod
    def shut(self) -> None:
        """Refuse newcomers: the broker is stopping and finishes its jobs."""

    @abstractmethod
    async def close(self) -> None:
        """Close all connections within about a second, after all jobs have ended."""

    def inspect(self, now: float) -> None:  # noqa: B027
        """Check the peers; called every few seconds."""

    def figures(self) -> list[Metric]:
        """Return the extension's metrics for `/metrics`."""
        return []

    def show(self) -> dict[str, Any]:
        """Describe the extension for `show_broker`."""
        return {"bound": list(self.bound)}
