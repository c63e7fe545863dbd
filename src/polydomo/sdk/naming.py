"""The name that a worker has at its brokers, and what it does if another worker has the same.

A named worker tells its brokers which one it is (`INSTANCE_PROPERTY`), so that they can tell one that comes back, and
takes its name over from its own broken connection, from a second one that was given the same name. The second is
refused while the first is there. It tries again for a while, as the first may be gone and the broker not know it yet,
and then goes on under a name of its own, or ends.
"""

from __future__ import annotations

import logging
import secrets
from typing import Final

from polydomo.dialects.session import INSTANCE_PROPERTY
from polydomo.errors import NameTaken

log = logging.getLogger("polydomo.sdk")

# Seconds for which a name that is taken is tried again: more than a broker needs to see that its owner is gone.
PATIENCE: Final = 5.0

# Seconds between two tries, where the connection's own pauses do not apply.
PAUSE: Final = 1.0


class Naming:
    """Of one worker. `stops`: it would rather end than have another name."""

    def __init__(self, name: str, stops: bool = False) -> None:
        self.name = name
        self._instance = secrets.token_hex(8)
        self._stops = stops
        self._since: float | None = None  # when the name was first refused

    @property
    def properties(self) -> dict[bytes, bytes]:
        """What a named worker tells in its handshake."""
        return {INSTANCE_PROPERTY: self._instance.encode()} if self.name else {}

    def accepted(self) -> None:
        """Note that a broker knows the worker by its name."""
        self._since = None

    def refused(self, now: float) -> None:
        """Note that another worker has the name; after a while, take another. Raises NameTaken if it must not."""
        if self._since is None:
            self._since = now
            log.warning("the name %r is refused: another worker has it; trying again for a while", self.name)
        elif now - self._since >= PATIENCE:
            if self._stops:
                raise NameTaken(f"another worker has the name {self.name!r}")
            taken, self.name = self.name, f"{self.name}-{self._instance[:6]}"
            self._since = None
            log.warning("another worker has the name %r; going on as %r", taken, self.name)
