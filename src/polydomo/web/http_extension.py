"""HTTP as an extension of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polydomo.server.extensions import Extension

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer
    from polydomo.web.api.app import HttpApp
    from polydomo.web.http_server import HttpServer


class HttpExtension(Extension):
    """FastAPI on uvicorn's protocol, on the broker's own loop.

    While the broker finishes its jobs, HTTP still listens: workers that use a new connection for every request
    deliver their last results, and `/readyz` reports that the broker is not ready. The core accepts no new jobs then.
    """

    name = "http"

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self.bound: list[str] = []
        self.app: HttpApp | None = None
        self.http_server: HttpServer | None = None

    async def open(self) -> None:
        from polydomo.web.api.app import make_app
        from polydomo.web.http_server import HttpServer

        self.app = make_app(self.server)
        self.http_server = HttpServer(self.server, self.app)
        self.bound = self.http_server.bound
        try:
            for text in self.server.settings.broker.http:
                await self.http_server.listen(text)
        except BaseException:
            await self.http_server.close()
            raise

    def shut(self) -> None:
        pass  # HTTP listens until `close`, see the class

    async def close(self) -> None:
        if self.app is not None:
            for part in (self.app.workers, self.app.clients):
                if part is not None:
                    part.close()
        if self.http_server is not None:
            await self.http_server.close()

    def inspect(self, now: float) -> None:
        if self.app is not None and self.app.clients is not None:
            self.app.clients.inspect()

    def show(self) -> dict[str, Any]:
        return {"bound": []} if self.http_server is None else self.http_server.show()
