"""TLS of a server: its certificate, the certificates of its clients, and the handshakes of its listeners.

A connection in its TLS handshake is admitted, limited and logged like one in the handshake of its protocol, which
begins after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from polydomo.errors import ConfigError
from polydomo.server.admission import Admission, Entrant, site_of
from polydomo.server.auditing import Auditing
from polydomo.server.descriptors import Descriptors
from polydomo.server.host import ServerHost
from polydomo.server.identification import certificate_error
from polydomo.server.log import Log
from polydomo.server.peer_log import PeerAddress, address_of
from polydomo.server.security_settings import TlsSection
from polydomo.server.settings import Settings
from polydomo.server.tls_contexts import server_context
from polydomo.server.tls_transport import TlsTransport

log = Log()


class TlsHost(ServerHost, Protocol):
    """Server as its TLS listeners see it."""

    handshakes: Admission[Entrant]  # connections in a handshake
    descriptors: Descriptors
    tls: ServerTls | None  # None: no listener has TLS
    audit: Auditing

    def log_peer(self, event: str, peer: PeerAddress, reason: str) -> None:
        """Log an event of one peer and record it in the ledger."""


class ServerTls:
    """The certificate in use. Raises ConfigError if it cannot be read."""

    def __init__(self, section: TlsSection) -> None:
        self.context = server_context(section)

    def configure(self, settings: Settings) -> None:
        """Read the files again, for new connections. With mistakes, the old certificate stays in use."""
        try:
            self.context = server_context(settings.tls)
        except ConfigError as error:
            log.error("the old certificate stays in use", reason=error.message, hint=error.advice)


class TlsHandshake:
    """Handshake of a server with one peer; counts as one of `limits.unauthenticated`."""

    def __init__(self, server: TlsHost, listener: str) -> None:
        self.server = server
        self.listener = listener
        self.address = ""
        self._transport: TlsTransport
        self._timer: asyncio.TimerHandle | None = None

    def started(self, transport: TlsTransport) -> None:
        server = self.server
        self._transport = transport
        self.address = address_of(transport)
        server.handshakes.enter(self, site_of(transport.get_extra_info("peername"), self.listener))
        self._timer = server.loop.call_later(server.settings.limits.handshake, self._expired)
        server.descriptors.check(transport)

    def finished(self, reason: str) -> str:
        self.server.handshakes.leave(self)
        if self._timer is not None:
            self._timer.cancel()
        reason = reason or certificate_error(self._transport.get_extra_info("peercert"))
        if reason and not self._transport.is_closing():
            self.server.log_peer("peer refused", self, reason)
            if self.server.settings.tls.client_ca:
                self.server.audit.refused(self.address, reason)
        return reason

    def cut(self, reason: str) -> None:
        self.server.log_peer("peer cut", self, reason)
        self._transport.abort()

    def _expired(self) -> None:
        self.cut(f"no TLS handshake within {self.server.settings.limits.handshake:g} s")


def accepting(
    server: TlsHost, listener: str, inner: Callable[[], asyncio.Protocol]
) -> Callable[[], TlsTransport]:
    """Return the factory of a listener's connections; their protocol after the handshake is what `inner` makes."""

    def accept() -> TlsTransport:
        assert server.tls is not None, "a server with such listeners has a certificate"
        return TlsTransport(inner(), server.tls.context, TlsHandshake(server, listener))

    return accept
