"""Bounded loading of results and values from the store for HTTP connections.

The memory budget counts only what is in memory, and a store that serves hundreds of connections at once may have read
a lot before it is counted. Therefore only a few objects are read at a time, and each is counted as its connection's
before the next one is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from starlette.requests import ClientDisconnect

if TYPE_CHECKING:
    from polydomo.web.connection import HttpConnection

T = TypeVar("T")

# The store has one reading thread: one object is read while the previous one is passed on.
CONCURRENT: Final = 2


class BoundedLoader:
    """All reads of results and values for HTTP."""

    def __init__(self) -> None:
        self._semaphore = asyncio.Semaphore(CONCURRENT)

    async def load(
        self, connection: HttpConnection, read: Callable[[], Awaitable[T]], size: Callable[[T], int]
    ) -> T:
        """Return what `read` finds, counted as the connection's; raise ClientDisconnect if the peer is gone."""
        async with self._semaphore:
            if connection.is_closed:
                raise ClientDisconnect
            found = await read()
            connection.hold(size(found))
            if connection.is_closed:
                raise ClientDisconnect
            return found
