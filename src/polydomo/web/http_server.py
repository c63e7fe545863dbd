"""The HTTP server: listeners on the broker's own loop, and a look at all connections now and then.

There is no uvicorn server: its listening, signals and main loop would be in the server's way.
"""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from uvicorn.config import Config

from polydomo.errors import ConfigError
from polydomo.server import endpoints
from polydomo.web.connection import GOODBYE, Connection, State

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from polydomo.server.server import BrokerServer

# How often connections are looked at, at the most and at the least.
LOOK_MIN: Final = 0.05
LOOK_MAX: Final = 1.0


class HttpServer:
    """Listens, looks at its connections, and closes them in the end."""

    def __init__(self, server: BrokerServer, app: ASGIApp) -> None:
        self.server = server
        self.loop = server.loop
        self.state = State(server)
        self.bound: list[str] = []
        self._listeners: list[asyncio.AbstractServer] = []
        self._timer: asyncio.TimerHandle | None = None
        self._config = Config(
            app,
            http=Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            proxy_headers=False,  # see `web.proxies`
            log_config=None,
            access_log=False,
        )
        self._config.load()

    async def listen(self, text: str) -> None:
        """At HOST:PORT; the port may be 0 or `*` for any that is free."""
        try:
            endpoint = endpoints.parse(f"tcp://{text}", binding=True)
        except ConfigError:
            raise ConfigError(
                f"{text!r} is no place for HTTP", hint="write 127.0.0.1:8080, [::1]:8080 or *:8080"
            ) from None
        try:
            listener = await self.loop.create_server(
                partial(Connection, self._config, self.state, {}, self.loop, listener=text),
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
            self._look()

    async def close(self) -> None:
        """No new connections; those that are here have a moment for what they are at."""
        self.state.closing = True
        for listener in self._listeners:
            listener.close()
        end = self.loop.time() + GOODBYE
        for connection in self._connections():
            connection.goodbye()
        while (self.state.connections or self.state.tasks) and self.loop.time() < end:
            await asyncio.sleep(0.01)
        for connection in self._connections():
            connection.transport.abort()
        end = self.loop.time() + GOODBYE
        while self.state.tasks and self.loop.time() < end:
            await asyncio.sleep(0.01)
        if self._timer is not None:
            self._timer.cancel()

    def show(self) -> dict[str, Any]:
        """For people."""
        state = self.state
        return {
            "bound": list(self.bound),
            "connections": len(state.connections),
            "requests": state.total_requests,
            "refused": state.refused,
            "evicted": state.crowd.evicted,
            "cut": state.cut,
        }

    def _connections(self) -> list[Connection]:
        return [one for one in self.state.connections if isinstance(one, Connection)]

    def _look(self) -> None:
        """At every connection, and at the time of day, which every response carries (RFC 9110 §6.6.1)."""
        self.state.configure()
        self.state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        now = self.loop.time()
        for connection in self._connections():
            connection.look(now)
        http = self.server.settings.http
        pause = min(http.slow, http.idle, self.server.settings.limits.stalled) / 4
        self._timer = self.loop.call_later(min(LOOK_MAX, max(LOOK_MIN, pause)), self._look)
