"""Reserve of file descriptors for the store, the ledger and the log.

A new file gets the lowest free number, so a connection with a number near the limit means that nearly all are taken. A
connection that takes a descriptor of the reserve causes one in its handshake to be cut, perhaps itself. Without any
descriptor left, uvloop closes new connections silently, and asyncio's own loop logs a thousand errors per second.
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

# Size of the reserve; one descriptor in `SHARE` if there are few.
RESERVE: Final = 64
SHARE: Final = 8

EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE)


class Descriptors:
    """Watch on the descriptors of the process. `handshakes` are the connections that may be cut."""

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
        """Warn if no descriptor is left."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            if error.errno in EXHAUSTED:
                self.warn()

    def handle_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle exceptions of the event loop, such as asyncio's that a connection could not be accepted."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            self.warn()
        else:
            loop.default_exception_handler(context)

    def warn(self) -> None:
        """Log that descriptors are short, at most once a second."""
        now = time.monotonic()
        if now - self._logged >= 1.0:
            self._logged = now
            log.warning(
                "out of file descriptors",
                limit=descriptor_limit(),
                hint="raise LimitNOFILE= of the service or `ulimit -n`, or lower limits.connections",
            )


def descriptor_limit() -> int:
    """Return the current limit of descriptors."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else sys.maxsize
