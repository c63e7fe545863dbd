"""HTTP as a way into the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polydomo.server.extensions import Extension

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer
    from polydomo.web.clients import WebClients
    from polydomo.web.http_server import HttpServer
    from polydomo.web.polling import PollingWorkers


class HttpExtension(Extension):
    """FastAPI on uvicorn's protocol, on the broker's own loop.

    While the broker finishes its jobs it still listens: workers that come with a new connection for every request
    bring their last results, and whoever asks `/readyz` hears that it is not ready. The core takes no new jobs then.
    """

    name = "http"

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self.bound: list[str] = []
        self.http_server: HttpServer | None = None
        self.clients: WebClients | None = None
        self.workers: PollingWorkers | None = None

    async def open(self) -> None:
        from polydomo.web.api.app import make_app
        from polydomo.web.http_server import HttpServer

        app = make_app(self.server)
        self.clients = getattr(app.state, "clients", None)
        self.workers = getattr(app.state, "workers", None)
        self.http_server = HttpServer(self.server, app)
        self.bound = self.http_server.bound
        try:
            for text in self.server.settings.broker.http:
                await self.http_server.listen(text)
        except BaseException:
            await self.http_server.close()
            raise

    def shut(self) -> None:
        pass  # see the class

    async def close(self) -> None:
        if self.workers is not None:
            self.workers.close()
        if self.clients is not None:
            self.clients.close()
        if self.http_server is not None:
            await self.http_server.close()

    def inspect(self, now: float) -> None:
        if self.clients is not None:
            self.clients.inspect(now)

    def show(self) -> dict[str, Any]:
        return {"bound": []} if self.http_server is None else self.http_server.show()
