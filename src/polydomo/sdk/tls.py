"""TLS to a broker: the certificates of a URL, and the connection."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from polydomo.server.endpoints import Endpoint
from polydomo.server.tls_contexts import client_context
from polydomo.server.tls_transport import TlsTransport


class TlsFiles(NamedTuple):
    """PEM files for TLS. Empty: the system's authorities; no certificate of this side; its key is in the same file."""

    ca: str = ""
    certificate: str = ""
    key: str = ""


class _Handshake:
    """The watch of a client's handshake: `done` has its end."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def started(self, transport: TlsTransport) -> None:
        """Do nothing: the handshake may begin."""

    def finished(self, reason: str) -> str:
        if self.done.done():  # the caller was cancelled
            return "cancelled"
        if reason:
            self.done.set_exception(ConnectionError(reason))
        else:
            self.done.set_result(None)
        return reason


async def connect(endpoint: Endpoint, files: TlsFiles, inner: asyncio.Protocol) -> None:
    """Connect `inner` to a broker with TLS. Raises ConfigError if a file cannot be used, OSError if that fails.

    The files are read each time, so a renewed certificate is used by the next connection.
    """
    context = client_context(*files)
    watch = _Handshake()
    loop = asyncio.get_running_loop()
    _, tls = await loop.create_connection(
        lambda: TlsTransport(inner, context, watch, endpoint.host), endpoint.host, endpoint.port
    )
    try:
        await watch.done
    except BaseException:
        tls.abort()
        raise
