"""WMP's worker side on an event loop: sends the protocol's output, and calls it when it is due."""

from __future__ import annotations

from collections.abc import Mapping

from polydomo.dialects.wmp.worker import NEVER, WmpWorkerProtocol
from polydomo.sdk.clock import AsyncClock, TimerHandle
from polydomo.sdk.connection import Dealer


class WmpDriver:
    """Drives one protocol, whose links are the `dealers`. Its owner calls `flush` after every call of the protocol."""

    def __init__(self, protocol: WmpWorkerProtocol, dealers: Mapping[int, Dealer], clock: AsyncClock) -> None:
        self._protocol = protocol
        self._dealers = dealers
        self._clock = clock
        self._timer: TimerHandle | None = None
        self._timer_at = NEVER

    def flush(self) -> None:
        """Send the protocol's output and set the timer for its next tick."""
        for number, data in self._protocol.take_output():
            dealer = self._dealers.get(number)
            if dealer is not None:
                dealer.send(data)
        due = self._protocol.due
        if due < self._timer_at:
            self.close()
            self._timer_at = due
            self._timer = self._clock.call_at(due, self._tick)

    def close(self) -> None:
        """Stop the timer of the next tick."""
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self._timer_at = NEVER
        now = self._clock.time()
        if self._protocol.due <= now:
            self._protocol.tick(now)
        self.flush()
