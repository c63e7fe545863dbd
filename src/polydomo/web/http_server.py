"""HTTP as an extension of the server: listeners, and a periodic check of all connections.

uvicorn's own server is not used: its listeners, signal handlers and main loop would conflict with the broker's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from uvicorn.config import Config

from polydomo.server import endpoints
from polydomo.server.endpoints import TLS_SCHEME
from polydomo.server.extensions import Extension
from polydomo.server.listeners import Listeners
from polydomo.server.tls import accepting
from polydomo.web.api.app import HttpApp, make_app
from polydomo.web.connection import CLOSE_TIMEOUT, HttpConnection, HttpServerState

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

# Bounds of the interval between two checks of all connections, in seconds.
CHECK_MIN: Final = 0.05
CHECK_MAX: Final = 1.0


class HttpServer(Extension):
    """FastAPI on uvicorn's protocol, on the broker's own loop.

    While the broker finishes its jobs, HTTP still listens: workers that use a new connection for every request
    deliver their last results, and `/readyz` reports that the broker is not ready. The core accepts no new jobs then.
    """

    name = "http"

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self.state = HttpServerState(server)
        self.bound: list[str] = []
        self._app: HttpApp | None = None  # None: not open
        self._listeners = Listeners()
        self._timer: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        self._app = make_app(self.server)
        config = Config(
            self._app,
            http=HttpConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            proxy_headers=False,  # see `web.proxies`
            log_config=None,
            access_log=False,
        )
        config.load()
        self._check_all()
        try:
            for text in self.server.settings.broker.http:
                await self._listen(text, config)
        except BaseException:
            await self.close()
            raise

    def shut(self) -> None:
        pass  # HTTP listens until `close`, see the class

    async def _listen(self, text: str, config: Config) -> None:
        """Listen on HOST:PORT; port 0 or `*` means any free one."""
        endpoint, identification = endpoints.parse_address(text)
        connection: Callable[[], asyncio.Protocol] = partial(
            HttpConnection,
            config,
            self.state,
            {},
            self.server.loop,
            listener=text,
            identification=identification,
        )
        if endpoint.tls:
            connection = accepting(self.server, text, connection)
        bound = await self._listeners.listen(text, endpoint, connection)
        self.bound.append(bound.removeprefix("tcp://").replace(f"{TLS_SCHEME}://", "https://"))

    async def close(self) -> None:
        """Stop listening, let active requests end within CLOSE_TIMEOUT, then abort all connections."""
        loop = self.server.loop
        for part in () if self._app is None else (self._app.workers, self._app.clients):
            if part is not None:
                part.close()
        self.state.closing = True
        self._listeners.close()
        end = loop.time() + CLOSE_TIMEOUT
        for connection in self._connections():
            connection.finish()
        while (self.state.connections or self.state.tasks) and loop.time() < end:
            await asyncio.sleep(0.01)
        for connection in self._connections():
            connection.transport.abort()
        end = loop.time() + CLOSE_TIMEOUT
        while self.state.tasks and loop.time() < end:
            await asyncio.sleep(0.01)
        if self._timer is not None:
            self._timer.cancel()

    def inspect(self, now: float) -> None:
        if self._app is not None and self._app.clients is not None:
            self._app.clients.inspect()

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
        now = self.server.loop.time()
        for connection in self._connections():
            connection.check_limits(now)
        http = self.server.settings.http
        pause = min(http.slow, http.idle, self.server.settings.limits.stalled) / 4
        self._timer = self.server.loop.call_later(min(CHECK_MAX, max(CHECK_MIN, pause)), self._check_all)
