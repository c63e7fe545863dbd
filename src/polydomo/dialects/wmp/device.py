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
from polydomo.dialects.wmp.messages import FROM_MANAGERS, FROM_WORKERS, GONE, HOPS, READY, Parcel
from polydomo.errors import ProtocolError
from polydomo.wire.frames import Message

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
        self._ready: dict[tuple[bytes, ...], Parcel] = {}

    # Connections

    def join_above(self, hop: bytes, send: Send) -> None:
        """A manager, or a device before it: it hears of everybody who is ready."""
        self.above[hop] = send
        for parcel in self._ready.values():
            send(parcel.write())

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
        behind = [path for path in self._ready if path[0] == identity]
        for path in behind:
            del self._ready[path]
        if behind:
            self._spread(Parcel([], READY, [identity], GONE, b""))

    # Messages

    def from_below(self, identity: bytes, message: Message) -> None:
        """Up. ProtocolError if it cannot be passed on at all."""
        parcel = self._read(message)
        if parcel.command not in FROM_WORKERS:
            raise self._refusal(f"{messages.NAMES[parcel.command]} from below, where only workers are")
        if self.name in parcel.source:
            self.loops += 1
            raise self._refusal("a message that has been here before: devices are connected in a circle")
        parcel.source.insert(0, identity)
        if parcel.destination:
            send = self.above.get(parcel.destination.pop(0))
            if send is None:
                self.lost += 1
                return
            self.passed[parcel.command] += 1
            send(parcel.write())
        elif parcel.command == READY:
            self._note(parcel)
            self.passed[READY] += 1
            self._spread(parcel)
        else:
            raise self._refusal(f"{messages.NAMES[parcel.command]} without a path to its manager")

    def from_above(self, hop: bytes, message: Message) -> None:
        """Down. ProtocolError if it cannot be passed on at all."""
        parcel = self._read(message)
        if parcel.command not in FROM_MANAGERS:
            raise self._refusal(f"{messages.NAMES[parcel.command]} from above, where only managers are")
        if not parcel.destination:
            raise self._refusal(f"{messages.NAMES[parcel.command]} without a path to its worker")
        identity = parcel.destination.pop(0)
        send = self.below.get(identity)
        if send is None:
            self.lost += 1
            back = self.above.get(hop)
            if back is not None:
                back(messages.write(parcel.source, READY, [identity], GONE, b""))
            return
        parcel.source.insert(0, hop)
        self.passed[parcel.command] += 1
        send(parcel.write())

    # Inside

    def _read(self, message: Message) -> Parcel:
        try:
            return messages.read(message, self.hops)
        except ProtocolError:
            self.refused += 1
            raise

    def _refusal(self, reason: str) -> ProtocolError:
        self.refused += 1
        return ProtocolError(f"WMP {reason}")

    def _note(self, parcel: Parcel) -> None:
        """Remember it for managers that come later, and forget those who are gone."""
        path = tuple(parcel.source)
        if parcel.headers == GONE:
            for other in [other for other in self._ready if other[: len(path)] == path]:
                del self._ready[other]
        elif path in self._ready or len(self._ready) < KEPT:
            self._ready[path] = parcel

    def _spread(self, parcel: Parcel) -> None:
        data = parcel.write()
        for send in list(self.above.values()):
            send(data)
