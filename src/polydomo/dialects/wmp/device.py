"""Intermediate device: a manager to the peers below, a worker to those above (WMP §Intermediate devices). It has no
socket and no clock.

READY goes to all peers above, everything else where its path leads. To each message's source the device adds the hop
that it came from. Headers and payloads are forwarded unread.

A device keeps the last READY of each worker and sends it to managers that connect later, or again. When a peer below is
lost, the device reports that to all above. A message that has passed this device before, by the device's name in its
path, or whose path is too long, is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from polydomo.dialects.wmp import messages
from polydomo.dialects.wmp.messages import FROM_MANAGERS, FROM_WORKERS, GONE, HOPS, PROTOCOL, READY
from polydomo.errors import ProtocolError
from polydomo.wire.frames import Message, frame

# READYs that are kept; those of further workers are only forwarded.
KEPT: Final = 100_000

Send = Callable[[bytes], object]


class Device:
    """Routes of one device. `name` is its identity for the peers above, and must be unique."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.above: dict[bytes, Send] = {}  # by their hop in paths
        self.below: dict[bytes, Send] = {}  # by identity
        self.passed = [0] * (messages.CANCEL + 1)  # messages forwarded, by command
        self.lost = 0  # messages for peers that are not connected
        self.refused = 0  # invalid messages
        self.loops = 0  # messages that had passed before
        # By peer below and path below it: the last READY of each worker, as forwarded.
        self._ready: dict[bytes, dict[tuple[bytes, ...], bytes]] = {}
        self._kept = 0  # number of READYs in there

    # Connections

    def add_above(self, hop: bytes, send: Send) -> None:
        """Add a manager, or a device below one, and send it the READYs of all workers."""
        self.above[hop] = send
        for readies in self._ready.values():
            for data in readies.values():
                send(data)

    def remove_above(self, hop: bytes) -> None:
        self.above.pop(hop, None)

    def add_below(self, identity: bytes, send: Send) -> None:
        """Add a worker, or a device above some."""
        self.below[identity] = send

    def remove_below(self, identity: bytes) -> None:
        """Remove a peer, and report it and all below it as gone."""
        if self.below.pop(identity, None) is None:
            return
        readies = self._ready.pop(identity, None)
        if readies is not None:
            self._kept -= len(readies)
            self._send_up(messages.write([], READY, [identity], GONE, b""))

    # Messages. Only their paths are parsed: what is forwarded is cut out of what came.

    def from_below(self, identity: bytes, message: Message) -> None:
        """Forward a message up; raise ProtocolError if it is invalid."""
        routed = self._parse(message)
        command = routed.command
        if command not in FROM_WORKERS:
            raise self._refusal(f"{messages.NAMES[command]} from below, where only workers may be")
        if self.name in routed.source:
            self.loops += 1
            raise self._refusal("message has passed this device before: devices are connected in a circle")
        if routed.hop:
            send = self.above.get(routed.hop)
            if send is None:
                self.lost += 1
                return
            self.passed[command] += 1
            send(routed.forwarded(identity))
        elif command == READY:
            data = routed.forwarded(identity)
            self._keep(identity, tuple(routed.source), data, routed.headers())
            self.passed[READY] += 1
            self._send_up(data)
        else:
            raise self._refusal(f"{messages.NAMES[command]} without a path to its manager")

    def from_above(self, hop: bytes, message: Message) -> None:
        """Forward a message down; raise ProtocolError if it is invalid."""
        routed = self._parse(message)
        command = routed.command
        if command not in FROM_MANAGERS:
            raise self._refusal(f"{messages.NAMES[command]} from above, where only managers may be")
        if not routed.hop:
            raise self._refusal(f"{messages.NAMES[command]} without a path to its worker")
        send = self.below.get(routed.hop)
        if send is None:
            self.lost += 1
            back = self.above.get(hop)
            if back is not None:
                back(messages.write(routed.source, READY, [routed.hop], GONE, b""))
            return
        self.passed[command] += 1
        send(routed.forwarded(hop))

    # Inside

    def _parse(self, message: Message) -> RoutedMessage:
        try:
            return RoutedMessage(message, HOPS)
        except ProtocolError:
            self.refused += 1
            raise

    def _refusal(self, reason: str) -> ProtocolError:
        self.refused += 1
        return ProtocolError(f"WMP {reason}")

    def _keep(self, identity: bytes, path: tuple[bytes, ...], data: bytes, headers: bytes) -> None:
        """Keep a READY for managers that connect later; forget those of peers that are gone."""
        readies = self._ready.get(identity)
        if messages.says_gone(headers):
            if readies is not None:
                for other in [other for other in readies if other[: len(path)] == path]:
                    del readies[other]
                    self._kept -= 1
                if not readies:
                    del self._ready[identity]
        elif messages.names_roles(headers):
            known = readies is not None and path in readies
            if known or self._kept < KEPT:
                self._kept += not known
                self._ready.setdefault(identity, {})[path] = data

    def _send_up(self, data: bytes) -> None:
        for send in list(self.above.values()):
            send(data)


class RoutedMessage:
    """Destination and source of a message, as positions in its bytes."""

    __slots__ = ("_begin", "_data", "_end", "_middle", "_tail", "command", "hop", "source")

    def __init__(self, message: Message, hops: int) -> None:
        self._data = message.data
        self._end = message.end
        self._begin = message.pos  # of what is forwarded
        first = message.take()
        if first is None:
            raise ProtocolError("an empty WMP message")
        self.hop = first  # the next one; empty: the message has reached its destination
        if first:
            self._begin = message.pos
            messages.path(message, hops - 1)
        if message.take() != PROTOCOL:
            raise ProtocolError("a WMP message without its header")
        command = message.take()
        if command is None or len(command) != 1 or not READY <= command[0] <= messages.CANCEL:
            raise ProtocolError("a WMP message with an unknown command")
        self.command = command[0]
        self._middle = message.pos  # where the source begins
        self.source = messages.path(message, hops)
        self._tail = message.pos
        if message.pos >= message.end:
            raise ProtocolError("a WMP message without headers")

    def forwarded(self, origin: bytes) -> bytes:
        """Return the message without the hop that it has reached, and with the one that it came from."""
        data = self._data
        return data[self._begin : self._middle] + frame(origin, True) + data[self._middle : self._end]

    def headers(self) -> bytes:
        """Return the headers of the message."""
        return Message(self._data, self._tail, self._end).take() or b""
