"""An intermediate device: a manager to those below, a worker to those above (WMP §Intermediate devices). Without a
socket and without a clock.

READY, which begins a conversation, goes to all above; everything else goes where its path says. Each message gets the
hop it came from laid on its way back. Headers and payloads pass unread.

A device keeps the last READY of each worker and says it to a manager that comes later, or comes back. What it cannot
know it says too: who is gone below is gone for all above. A message that comes back to where it has been is refused,
by the device's own name in its path, and any that has gone too far by its length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from polydomo.dialects.wmp import messages
from polydomo.dialects.wmp.messages import FROM_MANAGERS, FROM_WORKERS, GONE, HOPS, PROTOCOL, READY
from polydomo.errors import ProtocolError
from polydomo.wire.frames import Message, frame

# READYs that are kept; of more workers than this only those already known are said again.
KEPT: Final = 100_000

Send = Callable[[bytes], object]


class Device:
    """See the module's text. `name` is its identity towards those above, and must be unique."""

    def __init__(self, name: bytes, hops: int = HOPS) -> None:
        self.name = name
        self.hops = hops
        self.above: dict[bytes, Send] = {}  # by the hop that stands for them in paths
        self.below: dict[bytes, Send] = {}  # by identity
        self.passed = [0] * (messages.CANCEL + 1)  # messages, by command
        self.lost = 0  # for somebody who is not here
        self.refused = 0  # bad ones
        self.loops = 0  # that had been here before
        # By peer below and path behind it: the last READY of each worker, as it went up.
        self._ready: dict[bytes, dict[tuple[bytes, ...], bytes]] = {}
        self._kept = 0  # of these

    # Connections

    def join_above(self, hop: bytes, send: Send) -> None:
        """A manager, or a device before it: it hears of everybody who is ready."""
        self.above[hop] = send
        for behind in self._ready.values():
            for data in behind.values():
                send(data)

    def part_above(self, hop: bytes) -> None:
        """It is gone."""
        self.above.pop(hop, None)

    def join_below(self, identity: bytes, send: Send) -> None:
        """A worker, or a device before some."""
        self.below[identity] = send

    def part_below(self, identity: bytes) -> None:
        """It is gone, and everybody behind it."""
        if self.below.pop(identity, None) is None:
            return
        behind = self._ready.pop(identity, None)
        if behind is not None:
            self._kept -= len(behind)
            self._spread(messages.write([], READY, [identity], GONE, b""))

    # Messages. Nothing is taken apart but the paths: what is passed on is cut out of what came.

    def from_below(self, identity: bytes, message: Message) -> None:
        """Up. ProtocolError if it cannot be passed on at all."""
        way = self._look(message)
        command = way.command
        if command not in FROM_WORKERS:
            raise self._refusal(f"{messages.NAMES[command]} from below, where only workers are")
        if self.name in way.source:
            self.loops += 1
            raise self._refusal("a message that has been here before: devices are connected in a circle")
        if way.hop:
            send = self.above.get(way.hop)
            if send is None:
                self.lost += 1
                return
            self.passed[command] += 1
            send(way.passed_on(identity))
        elif command == READY:
            data = way.passed_on(identity)
            self._note(identity, tuple(way.source), data, way.headers())
            self.passed[READY] += 1
            self._spread(data)
        else:
            raise self._refusal(f"{messages.NAMES[command]} without a path to its manager")

    def from_above(self, hop: bytes, message: Message) -> None:
        """Down. ProtocolError if it cannot be passed on at all."""
        way = self._look(message)
        command = way.command
        if command not in FROM_MANAGERS:
            raise self._refusal(f"{messages.NAMES[command]} from above, where only managers are")
        if not way.hop:
            raise self._refusal(f"{messages.NAMES[command]} without a path to its worker")
        send = self.below.get(way.hop)
        if send is None:
            self.lost += 1
            back = self.above.get(hop)
            if back is not None:
                back(messages.write(way.source, READY, [way.hop], GONE, b""))
            return
        self.passed[command] += 1
        send(way.passed_on(hop))

    # Inside

    def _look(self, message: Message) -> RoutedMessage:
        try:
            return RoutedMessage(message, self.hops)
        except ProtocolError:
            self.refused += 1
            raise

    def _refusal(self, reason: str) -> ProtocolError:
        self.refused += 1
        return ProtocolError(f"WMP {reason}")

    def _note(self, identity: bytes, path: tuple[bytes, ...], data: bytes, headers: bytes) -> None:
        """Remember it for managers that come later, and forget those who are gone."""
        behind = self._ready.get(identity)
        if messages.says_gone(headers):
            if behind is not None:
                for other in [other for other in behind if other[: len(path)] == path]:
                    del behind[other]
                    self._kept -= 1
                if not behind:
                    del self._ready[identity]
        elif messages.names_roles(headers):
            known = behind is not None and path in behind
            if known or self._kept < KEPT:
                self._kept += not known
                self._ready.setdefault(identity, {})[path] = data

    def _spread(self, data: bytes) -> None:
        for send in list(self.above.values()):
            send(data)


class RoutedMessage:
    """Where a message goes and where it comes from, by positions in its bytes."""

    __slots__ = ("_begin", "_data", "_end", "_middle", "_tail", "command", "hop", "source")

    def __init__(self, message: Message, hops: int) -> None:
        self._data = message.data
        self._end = message.end
        self._begin = message.pos  # of what is passed on
        first = message.take()
        if first is None:
            raise ProtocolError("a WMP message without anything")
        self.hop = first  # the next one; empty: it is for whoever gets it
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

    def passed_on(self, origin: bytes) -> bytes:
        """Without the hop that it has reached, and with the one that it came from."""
        data = self._data
        return data[self._begin : self._middle] + frame(origin, True) + data[self._middle : self._end]

    def headers(self) -> bytes:
        """Of READY, to see who is gone."""
        return Message(self._data, self._tail, self._end).take() or b""
