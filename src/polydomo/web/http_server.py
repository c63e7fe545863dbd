"""The HTTP server: listeners on the broker's own loop, and a periodic check of all connections.

uvicorn's own server is not used: its listeners, signal handlers and main loop would conflict with the broker's.
"""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from uvicorn.config import Config

from polydomo.errors import ConfigError
from polydomo.server import endpoints
from polydomo.web.connection import CLOSE_TIMEOUT, HttpConnection, HttpServerState

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from polydomo.server.server import BrokerServer

# Bounds of the interval between two checks of all connections, in seconds.
CHECK_MIN: Final = 0.05
CHECK_MAX: Final = 1.0


class HttpServer:
    """Listeners and connections of HTTP."""

    def __init__(self, server: BrokerServer, app: ASGIApp) -> None:
        self.server = server
        self.loop = server.loop
        self.state = HttpServerState(server)
        self.bound: list[str] = []
        self._listeners: list[asyncio.AbstractServer] = []
        self._timer: asyncio.TimerHandle | None = None
        self._config = Config(
            app,
            http=HttpConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            proxy_headers=False,  # see `web.proxies`
            log_config=None,
            access_log=False,
        )
        self._config.load()

    async def listen(self, text: str) -> None:
        """Listen on HOST:PORT; port 0 or `*` means any free one."""
        try:
            endpoint = endpoints.parse(f"tcp://{text}", binding=True)
        except ConfigError:
            raise ConfigError(
                f"{text!r} is not an HTTP address", hint="write 127.0.0.1:8080, [::1]:8080 or *:8080"
            ) from None
        try:
            listener = await self.loop.create_server(
                partial(HttpConnection, self._config, self.state, {}, self.loop, listener=text),
                endpoint.host or None,
                endpoint.port,
                backlog=1024,
            )
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {text}: {error.strerror or error}", hint="is another broker running there?"
            ) from error
        self._listeners.append(listener)
        port = listener.sockets[0].getsockname()[1]
        shown = str(endpoint._replace(host=endpoint.host or "*", port=port))
        self.bound.append(shown.removeprefix("tcp://"))
        if self._timer is None:
            self._check_all()

    async def close(self) -> None:
        """Stop listening, let active requests end within CLOSE_TIMEOUT, then abort all connections."""
        self.state.closing = True
        for listener in self._listeners:
            listener.close()
        end = self.loop.time() + CLOSE_TIMEOUT
        for connection in self._connections():
            connection.finish()
        while (self.state.connections or self.state.tasks) and self.loop.time() < end:
            await asyncio.sleep(0.01)
        for connection in self._connections():
            connection.transport.abort()
        end = self.loop.time() + CLOSE_TIMEOUT
        while self.state.tasks and self.loop.time() < end:
            await asyncio.sleep(0.01)
        if self._timer is not None:
            self._timer.cancel()

    def show(self) -> dict[str, Any]:
        """Return counters for the management service."""
        state = self.state
        return {
            "bound": list(self.bound),
            "connections": len(state.connections),
            "requests": state.total_requests,
            "refused": state.refused,
            "evicted": state.admission.evicted,
            "cut": state.cut,
        }

    def _connections(self) -> list[HttpConnection]:
        return [one for one in self.state.connections if isinstance(one, HttpConnection)]

    def _check_all(self) -> None:
        """Check every connection, and update the date that every response carries (RFC 9110 §6.6.1)."""
        self.state.configure()
        self.state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        now = self.loop.time()
        for connection in self._connections():
            connection.check_limits(now)
        http = self.server.settings.http
        pause = min(http.slow, http.idle, self.server.settings.limits.stalled) / 4
        self._timer = self.loop.call_later(min(CHECK_MAX, max(CHECK_MIN, pause)), self._check_all)
