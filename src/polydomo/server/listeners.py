"""Listening sockets of a server: TCP, and Unix sockets with their files."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from polydomo.errors import ConfigError
from polydomo.server.endpoints import Endpoint

BACKLOG = 1024


class Listeners:
    """Sockets that accept connections until `close`."""

    def __init__(self) -> None:
        self._servers: list[asyncio.AbstractServer] = []
        self._files: list[str] = []  # of Unix sockets

    async def listen(self, text: str, endpoint: Endpoint, peer: Callable[[], asyncio.Protocol]) -> str:
        """Listen on an endpoint, given as `text`, and return it with the port that was bound.

        Raises ConfigError if that fails.
        """
        try:
            if endpoint.is_ipc:
                await self._listen_ipc(endpoint.unix_path, peer)
                return str(endpoint)
            server = await asyncio.get_running_loop().create_server(
                peer, endpoint.host or None, endpoint.port, backlog=BACKLOG
            )
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {text}: {error.strerror or error}", hint="is another broker running there?"
            ) from error
        self._servers.append(server)
        port = server.sockets[0].getsockname()[1]
        return str(endpoint._replace(host=endpoint.host or "*", port=port))

    def close(self) -> None:
        """Accept no more connections, and remove the files of Unix sockets."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for path in self._files:
            with suppress(OSError):  # on a read-only file system the next broker replaces the file
                Path(path).unlink(missing_ok=True)
        self._files.clear()

    async def _listen_ipc(self, path: str, peer: Callable[[], asyncio.Protocol]) -> None:
        is_file = not path.startswith("\0")
        if is_file and Path(path).is_socket():
            if await _is_served(path):
                raise OSError(errno.EADDRINUSE, "another process is listening there")
            Path(path).unlink()  # left by a broker that was killed
        server = await asyncio.get_running_loop().create_unix_server(peer, path, backlog=BACKLOG)
        self._servers.append(server)
        if is_file:
            self._files.append(path)


async def _is_served(path: str) -> bool:
    """Return whether a process is listening on this socket file."""
    try:
        _, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return False
    writer.close()
    return True
