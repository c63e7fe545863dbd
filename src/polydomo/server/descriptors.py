"""File descriptors: what happens when connections have taken nearly all of them.

A new file gets the lowest number that is free, so a connection with a number near the limit says that all others are
taken. A few are kept free for the store, the ledger and the log: a connection that gets one of those pushes out one
that is in its handshake, perhaps itself. When not even those are left, uvloop closes newcomers without a word, and
asyncio's loop complains a thousand times a second.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import sys
import time
from typing import Any, Final

from polydomo.server.admission import Admission
from polydomo.server.log import Log

log = Log()

# Descriptors that connections leave to others, at the most; one in `SHARE` where there are few.
RESERVE: Final = 64
SHARE: Final = 8

EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)


class Descriptors:
    """Watch over the process's descriptors. `handshakes` are the connections that may have to go."""

    def __init__(self, handshakes: Admission[Any]) -> None:
        self._handshakes = handshakes
        self._logged = 0.0

    def check(self, transport: asyncio.BaseTransport) -> None:
        """Cut a connection in its handshake if the new one took a descriptor of the reserve."""
        sock = transport.get_extra_info("socket")
        limit = descriptor_limit()
        if sock is not None and sock.fileno() >= limit - min(RESERVE, limit // SHARE):
            self.warn()
            self._handshakes.evict(f"out of file descriptors: there are {limit}")

    def inspect(self) -> None:
        """Look whether there is one left; called every few seconds."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            if error.errno in EXHAUSTED:
                self.warn()

    def handle_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Be the event loop's exception handler: asyncio says here that it could not accept a connection."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            self.warn()
        else:
            loop.default_exception_handler(context)

    def warn(self) -> None:
        """Say so, at most once a second."""
        now = time.monotonic()
        if now - self._logged >= 1.0:
            self._logged = now
            log.warning(
                "out of file descriptors",
                limit=descriptor_limit(),
                hint="raise LimitNOFILE= of the service or `ulimit -n`, or lower limits.connections",
            )


def descriptor_limit() -> int:
    """Return how many the process may have now."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else sys.maxsize
