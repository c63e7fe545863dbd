"""HTTP as a way into the house."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polydomo.server.doors import Door

if TYPE_CHECKING:
    from polydomo.server.house import House
    from polydomo.web.clients import WebClients
    from polydomo.web.polling import PollingWorkers
    from polydomo.web.server import Server


class HttpDoor(Door):
    """FastAPI on uvicorn's protocol, on the broker's own loop.

    While the broker finishes its jobs it still listens: workers that come with a new connection for every request
    bring their last results, and whoever asks `/readyz` hears that it is not ready. The core takes no new jobs then.
    """

    name = "http"

    def __init__(self, house: House) -> None:
        self.house = house
        self.bound: list[str] = []
        self.server: Server | None = None
        self.clients: WebClients | None = None
        self.workers: PollingWorkers | None = None

    async def open(self) -> None:
        from polydomo.web.api.app import make_app
        from polydomo.web.server import Server

        app = make_app(self.house)
        self.clients = getattr(app.state, "clients", None)
        self.workers = getattr(app.state, "workers", None)
        self.server = Server(self.house, app)
        self.bound = self.server.bound
        try:
            for text in self.house.settings.broker.http:
                await self.server.listen(text)
        except BaseException:
            await self.server.close()
            raise

    def shut(self) -> None:
        pass  # see the class

    async def close(self) -> None:
        if self.workers is not None:
            self.workers.close()
        if self.clients is not None:
            self.clients.close()
        if self.server is not None:
            await self.server.close()

    def inspect(self, now: float) -> None:
        if self.clients is not None:
            self.clients.inspect(now)

    def show(self) -> dict[str, Any]:
        return {"bound": []} if self.server is None else self.server.show()
