"""A WMP device as a program.

Below is a server with its listeners and limits, which speaks WMP only; above is a connection to each manager. The
routing between is `dialects.wmp.device`.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any

from polydomo.dialects.session import INSTANCE_PROPERTY, PeerConnection, Session, SessionContext
from polydomo.dialects.wmp import messages
from polydomo.dialects.wmp.device import Device
from polydomo.errors import ProtocolError
from polydomo.federation.uplinks import Uplinks
from polydomo.sdk.connection import Dealer
from polydomo.sdk.url import Url
from polydomo.server.extensions import Extension, Metric
from polydomo.server.log import Log
from polydomo.server.server import BrokerServer
from polydomo.wire.frames import Message

log = Log()


def make_name() -> bytes:
    """Return a name that no other device has."""
    return b"device-" + os.urandom(6).hex().encode()


class DeviceExtension(Extension):
    """Turns a server into a device below the managers at `url`."""

    name = "device"

    def __init__(self, server: BrokerServer, url: Url, name: bytes) -> None:
        self.server = server
        self.device = Device(name)
        self.bound: list[str] = []
        self._uplinks = Uplinks(url, self, name, {INSTANCE_PROPERTY: secrets.token_hex(16).encode()})
        server.only_devices = True
        server.context.factories = {}
        server.context.fallback = self._open_session

    # Extension

    async def open(self) -> None:
        self._uplinks.connections.open()

    def shut(self) -> None:
        """Do nothing: peers below notice the end of their connections."""

    async def close(self) -> None:
        await self._uplinks.connections.close()

    def show(self) -> dict[str, Any]:
        device = self.device
        return {
            "bound": [],
            "name": device.name.decode(),
            "above": self._uplinks.connected(),
            "below": len(device.below),
            "passed": sum(device.passed),
            "lost": device.lost,
            "refused": device.refused,
            "loops": device.loops,
        }

    def figures(self) -> list[Metric]:
        device = self.device
        above = len(self._uplinks.connections.dealers)
        passed: dict[tuple[str, ...], float] = {
            (name,): float(count) for name, count in zip(messages.NAMES, device.passed, strict=True) if name
        }
        return [
            Metric("polydomo_device_messages", "Messages forwarded, by command.", passed, ("command",)),
            Metric("polydomo_device_lost", "Messages for unknown peers.", {(): device.lost}),
            Metric("polydomo_device_refused", "Invalid messages.", {(): device.refused}),
            Metric(
                "polydomo_device_loops", "Messages that had passed this device before.", {(): device.loops}
            ),
            Metric("polydomo_device_above", "Managers connected.", {(): above}, counter=False),
            Metric("polydomo_device_below", "Peers connected.", {(): len(device.below)}, counter=False),
        ]

    # Uplinks

    def uplink_connected(self, number: int, dealer: Dealer) -> None:
        self.device.add_above(hop_of(number), dealer.send)

    def uplink_lost(self, number: int) -> None:
        self.device.remove_above(hop_of(number))

    def uplink_message(self, number: int, message: Message) -> None:
        try:
            self.device.from_above(hop_of(number), message)
        except ProtocolError as error:
            log.warning("message dropped", uplink=self._uplinks.address(number), reason=error.message)

    def _open_session(self, context: SessionContext, link: PeerConnection) -> Session:
        return DeviceSession(context, link, self.device)


class DeviceSession(Session):
    """One peer below a device."""

    def __init__(self, context: SessionContext, link: PeerConnection, device: Device) -> None:
        super().__init__(context, link)
        self.device = device
        device.add_below(link.identity, link.send)

    def receive(self, message: Message) -> bool:
        try:
            self.device.from_below(self.link.identity, message)
        except ProtocolError as error:
            self.link.report_violation(error.message)
        return True

    def lost(self) -> bool:
        self.device.remove_below(self.link.identity)
        return False

    def is_worker(self) -> bool:
        return True


def hop_of(number: int) -> bytes:
    """Return the hop of an uplink in paths."""
    return b"u%d" % number


def joiner(url: Url, name: bytes) -> Callable[[BrokerServer], Extension]:
    """Return the factory of a device's extension."""
    return partial(DeviceExtension, url=url, name=name)
