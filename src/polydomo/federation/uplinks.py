"""Connections of a device or a broker to its managers, maintained until they are closed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from polydomo.safe_text import safe_line
from polydomo.sdk.clock import REAL_TIME
from polydomo.sdk.connection import Dealer
from polydomo.sdk.reconnect import ConnectionOwner, PermanentConnections
from polydomo.sdk.url import Url
from polydomo.server.log import Log
from polydomo.wire.frames import Message

log = Log()

# Longest reason of a refusal in the log.
REASON_MAX: Final = 300


class UplinkOwner(Protocol):
    """Owner of uplinks, which are numbered in the order of the URL's addresses."""

    def uplink_connected(self, number: int, dealer: Dealer) -> None:
        """Begin to use a connection."""

    def uplink_lost(self, number: int) -> None:
        """Stop using a connection."""

    def uplink_message(self, number: int, message: Message) -> None:
        """Handle a message of a manager."""


class Uplinks(ConnectionOwner):
    """One connection to each address of a URL."""

    def __init__(
        self, url: Url, owner: UplinkOwner, identity: bytes, properties: Mapping[bytes, bytes] | None = None
    ) -> None:
        self.url = url
        self.identity = identity
        self.properties = properties or {}
        self.connections = PermanentConnections(self, url.addresses, REAL_TIME)
        self._owner = owner
        self._unreachable: set[int] = set()  # those that were logged
        self._refusals: dict[int, set[str]] = {}  # those that were logged

    def address(self, number: int) -> str:
        """Return the address of an uplink."""
        return str(self.url.addresses[number])

    def connected(self) -> list[str]:
        """Return the addresses of the uplinks that are connected."""
        return [self.address(number) for number in sorted(self.connections.dealers)]

    def refused(self, number: int, reason: str) -> None:
        """Log once that an uplink refuses a service, which it does whenever the service is offered again."""
        logged = self._refusals.setdefault(number, set())
        if reason not in logged:
            logged.add(reason)
            log.warning(
                "uplink refuses a service", uplink=self.address(number), reason=safe_line(reason, REASON_MAX)
            )

    # ConnectionOwner

    def on_connected(self, number: int, dealer: Dealer) -> None:
        self._unreachable.discard(number)
        self._refusals.pop(number, None)
        log.info("uplink connected", uplink=self.address(number))
        self._owner.uplink_connected(number, dealer)

    def on_disconnected(self, number: int, reason: str) -> None:
        self._owner.uplink_lost(number)
        log.warning("uplink lost", uplink=self.address(number), reason=reason)

    def on_unreachable(self, number: int, reason: str) -> None:
        if number not in self._unreachable:
            self._unreachable.add(number)
            log.warning("uplink unreachable", uplink=self.address(number), reason=reason)

    def on_message(self, number: int, message: Message) -> None:
        self._owner.uplink_message(number, message)
