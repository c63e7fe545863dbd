"""The name of a worker at its brokers, and what happens if another worker has the same.

A named worker sends a random instance id in its handshake (`INSTANCE_PROPERTY`). It lets a broker distinguish a worker
that reconnects, and takes its name over from its own broken connection, from a second worker of the same name. The
second is refused while the first is connected. It tries again for a while, as the first may be gone without the broker
having noticed, and then continues under another name, or ends.
"""

from __future__ import annotations

import logging
import secrets
from typing import Final

from polydomo.dialects.session import INSTANCE_PROPERTY
from polydomo.errors import NameTaken

log = logging.getLogger("polydomo.sdk")

# Seconds for which a refused name is tried again: longer than a broker takes to notice that its owner is gone.
RETRY_SECONDS: Final = 5.0

# Seconds between two attempts, where the connection's own pauses do not apply.
PAUSE: Final = 1.0


class WorkerName:
    """The name of one worker. `stops`: raise NameTaken rather than take another name."""

    def __init__(self, name: str, stops: bool = False) -> None:
        self.name = name
        self._instance = secrets.token_hex(16)
        self._stops = stops
        self._refused_since: float | None = None

    @property
    def properties(self) -> dict[bytes, bytes]:
        """The properties of a named worker's handshake."""
        return {INSTANCE_PROPERTY: self._instance.encode()} if self.name else {}

    def accepted(self) -> None:
        """Record that a broker has accepted the name."""
        self._refused_since = None

    def refused(self, now: float) -> None:
        """Record that another worker has the name. After a while, take another name, or raise NameTaken."""
        if self._refused_since is None:
            self._refused_since = now
            log.warning("the name %r is refused: another worker has it; trying again for a while", self.name)
        elif now - self._refused_since >= RETRY_SECONDS:
            if self._stops:
                raise NameTaken(f"another worker has the name {self.name!r}")
            taken, self.name = self.name, f"{self.name}-{self._instance[:6]}"
            self._refused_since = None
            log.warning("another worker has the name %r; continuing as %r", taken, self.name)
