"""A WMP device as a program: a server whose door leads on.

Below, a server with its listeners and limits, in which no protocol is spoken but WMP; above, a connection to each
manager. What lies between is `dialects.wmp.device`.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from functools import partial
from typing import Any

from polydomo.dialects.session import INSTANCE_PROPERTY, PeerConnection, Session, SessionContext
from polydomo.dialects.wmp import messages
from polydomo.dialects.wmp.device import Device
from polydomo.errors import ProtocolError
from polydomo.sdk.clock import REAL_TIME
from polydomo.sdk.connection import Dealer
from polydomo.sdk.reconnect import ConnectionOwner, maintain_connection
from polydomo.sdk.url import Url
from polydomo.server.extensions import Extension, Metric
from polydomo.server.log import Log
from polydomo.server.server import BrokerServer
from polydomo.wire.frames import Message

log = Log()


def make_name() -> bytes:
    """One that no other device has."""
    return b"device-" + os.urandom(6).hex().encode()


class DeviceExtension(Extension, ConnectionOwner):
    """See the module's text."""

    name = "device"

    def __init__(self, server: BrokerServer, url: Url, name: bytes) -> None:
        self.server = server
        self.url = url
        self.device = Device(name)
        self.identity = name
        self.properties = {INSTANCE_PROPERTY: secrets.token_hex(8).encode()}
        self.bound: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._up: dict[int, Dealer] = {}
        self._troubled: set[int] = set()
        server.only_devices = True
        server.context.factories = {}
        server.context.fallback = self._open_session

    # A door's side

    async def open(self) -> None:
        self._tasks = [
            asyncio.create_task(maintain_connection(number, place, self, REAL_TIME))
            for number, place in enumerate(self.url.addresses)
        ]

    def shut(self) -> None:
        """Nothing is kept here: whoever is below finds out by the connection's end."""

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def show(self) -> dict[str, Any]:
        device = self.device
        return {
            "bound": [],
            "name": device.name.decode(),
            "above": [str(self.url.addresses[number]) for number in sorted(self._up)],
            "below": len(device.below),
            "passed": sum(device.passed),
            "lost": device.lost,
            "refused": device.refused,
            "loops": device.loops,
        }

    def figures(self) -> list[Metric]:
        device = self.device
        passed: dict[tuple[str, ...], float] = {
            (name,): float(count) for name, count in zip(messages.NAMES, device.passed, strict=True) if name
        }
        return [
            Metric("polydomo_device_messages", "Messages passed on, by command.", passed, ("command",)),
            Metric("polydomo_device_lost", "Messages for somebody who was not there.", {(): device.lost}),
            Metric("polydomo_device_refused", "Messages that could not be passed on.", {(): device.refused}),
            Metric("polydomo_device_loops", "Messages that had been here before.", {(): device.loops}),
            Metric("polydomo_device_above", "Managers connected.", {(): len(self._up)}, counter=False),
            Metric("polydomo_device_below", "Peers connected.", {(): len(device.below)}, counter=False),
        ]

    # The uplinks' side

    def on_connected(self, number: int, dealer: Dealer) -> None:
        self._up[number] = dealer
        self._troubled.discard(number)
        log.info("connected", manager=str(self.url.addresses[number]))
        self.device.join_above(hop_of(number), dealer.send)

    def on_disconnected(self, number: int, reason: str) -> None:
        del self._up[number]
        self.device.part_above(hop_of(number))
        log.warning("manager lost", manager=str(self.url.addresses[number]), reason=reason)

    def on_unreachable(self, number: int, reason: str) -> None:
        if number not in self._troubled:
            self._troubled.add(number)
            log.warning("no manager", manager=str(self.url.addresses[number]), reason=reason)

    def on_message(self, number: int, message: Message) -> None:
        try:
            self.device.from_above(hop_of(number), message)
        except ProtocolError as error:
            log.warning("message dropped", manager=str(self.url.addresses[number]), reason=error.message)

    def _open_session(self, context: SessionContext, link: PeerConnection) -> Session:
        return DeviceSession(context, link, self.device)


class DeviceSession(Session):
    """One peer below."""

    def __init__(self, context: SessionContext, link: PeerConnection, device: Device) -> None:
        super().__init__(context, link)
        self.device = device
        device.join_below(link.identity, link.send)

    def receive_expected(self, body: bytes) -> None:
        """Nothing is expected here."""

    def receive(self, message: Message) -> bool:
        try:
            self.device.from_below(self.link.identity, message)
        except ProtocolError as error:
            self.link.report_violation(error.message)
        return True

    def lost(self) -> bool:
        self.device.part_below(self.link.identity)
        return False

    def reattach(self, link: PeerConnection) -> None:
        """It leaves with its connection."""

    def abandon(self) -> None:
        """There is no client here."""

    def is_worker(self) -> bool:
        return True

    def set_reading_paused(self, reading_paused: bool) -> None:
        """Nobody's silence means anything here."""


def hop_of(number: int) -> bytes:
    """What stands for a manager in paths."""
    return b"u%d" % number


def joiner(url: Url, name: bytes) -> Any:
    """Makes a server a device."""
    return partial(DeviceExtension, url=url, name=name)
