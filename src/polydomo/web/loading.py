"""Results and values on their way from the store to a connection.

The memory budget can only count what is there, and a store that is asked by hundreds of connections at once may have
read a lot before anybody could say so. So only a few are read at a time, and each is counted as its connection's before
the next one is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from starlette.requests import ClientDisconnect

if TYPE_CHECKING:
    from polydomo.web.connection import Connection

T = TypeVar("T")

# The store has one thread that reads: one is read while the one before is passed on.
AT_ONCE: Final = 2


class Loading:
    """All that is read for HTTP."""

    def __init__(self) -> None:
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def load(
        self, connection: Connection | None, read: Callable[[], Awaitable[T]], size: Callable[[T], int]
    ) -> T:
        """Return what `read` finds, counted as the connection's. ClientDisconnect: nobody waits for it any more."""
        async with self._gate:
            if connection is not None and connection.is_over:
                raise ClientDisconnect
            found = await read()
            if connection is not None:
                connection.keep(size(found))
                if connection.is_over:
                    raise ClientDisconnect
            return found
