"""The app: all routers, and one form for everything that goes wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from polydomo._version import __version__
from polydomo.server import endpoints
from polydomo.server.log import Log
from polydomo.web import memodb
from polydomo.web.api import (
    bulk,
    dead_letters,
    docs,
    files,
    health,
    inventory,
    jobs,
    metrics,
    peers,
    services,
    stream,
    workers,
)
from polydomo.web.api.origin_guard import Guard, origin_of
from polydomo.web.api.problems import Problem, problem
from polydomo.web.clients import WebClients
from polydomo.web.polling import PollingWorkers

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer
    from polydomo.server.settings import Settings

log = Log()

# How a status that the framework itself gives is called.
REASONS = {
    400: "malformed",
    403: "not-allowed",
    404: "not-found",
    405: "method-not-allowed",
    406: "not-acceptable",
    413: "too-large",
    415: "unsupported-media-type",
    416: "range",
    501: "not-supported",
    503: "not-ready",
}


# How long a browser may remember that a page of `http.origins` may do something, in seconds.
PREFLIGHT_AGE = 600


class App(FastAPI):
    """HEAD is answered wherever GET is, without the body; what a handler did not expect is logged and answered, and
    goes no further. `origins` says what is asked of every request before."""

    server: BrokerServer
    guard: Guard
    _shared: ASGIApp  # for pages of `http.origins`
    _settings: Settings | None = None  # those that `guard` was made from

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._settings is not self.server.settings:
            self._configure(self.server.settings)
        if scope["type"] == "http" and scope["method"] == "HEAD" and not scope["path"].endswith("/events"):
            scope = {**scope, "method": "GET", "polydomo.head": True}
            send = _headless(send)
        refusal = self.guard.check(scope)
        if refusal is not None:
            await refusal.response()(scope, receive, send)
            return
        app: ASGIApp = super().__call__
        if self.guard.origins and self.guard.shares_with(origin_of(scope) or b""):
            app = self._shared
        try:
            await app(scope, receive, send)
        except ClientDisconnect:
            pass
        except Exception as error:
            log.error("a request failed", path=scope.get("path", "")[:200], error=repr(error), exc_info=error)

    def _configure(self, settings: Settings) -> None:
        """Take over settings, which change when the broker reloads them."""
        self._settings = settings
        listening = [endpoints.parse_address(text).host for text in settings.broker.http]
        self.guard = Guard(settings.http.hosts, settings.http.origins, [host for host in listening if host])
        self._shared = CORSMiddleware(
            super().__call__,
            allow_origins=settings.http.origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["*"],
            max_age=PREFLIGHT_AGE,
        )


def make_app(server: BrokerServer) -> FastAPI:
    """Everything that is offered over HTTP."""
    app = App(
        title="Polydomo",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={
            Problem: _problem,
            RequestValidationError: _invalid,
            HTTPException: _http,
            Exception: _unexpected,
        },
    )
    app.server = server
    if server.only_devices:
        app.router.routes += [*health.make_router(server).routes, *metrics.make_router(server).routes]
        return app
    app.state.server = server
    app.state.clients = clients = WebClients(server)
    app.state.workers = polling = PollingWorkers(server)
    for router in (  # the busiest first: routes are tried in this order
        jobs.make_router(server, clients),
        workers.make_router(server, polling),
        bulk.make_router(server, clients),
        stream.make_router(server, clients),
        services.make_router(server),
        peers.make_router(server),
        dead_letters.make_router(server),
        inventory.make_router(server),
        files.make_router(server),
        health.make_router(server),
        metrics.make_router(server),
        docs.make_router(app),
        memodb.make_router(server, clients, polling),
    ):
        app.router.routes += router.routes  # flat: an included router is looked through for every request
    return app


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return error.response()


async def _invalid(request: Request, error: Exception) -> Response:
    """A parameter that is not what it must be: 400, and which."""
    assert isinstance(error, RequestValidationError)
    errors = [
        {"where": ".".join(str(part) for part in found["loc"]), "message": found["msg"]}
        for found in error.errors()
    ]
    detail = "; ".join(f"{found['where']}: {found['message']}" for found in errors[:3])
    return problem("malformed", detail, errors=errors[:20]).response()


async def _http(request: Request, error: Exception) -> Response:
    """What the framework refuses by itself."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    reason = REASONS.get(error.status_code)
    if reason is None:
        return Problem(error.status_code, error.detail, headers=headers).response()
    path = request.url.path[:200]
    detail = "" if error.detail in ("Not Found", "Method Not Allowed") else error.detail
    if reason == "not-found":
        detail = detail or f"there is nothing at {path}"
    if reason == "method-not-allowed":
        headers = {"allow": ", ".join(_methods(request))}
        detail = f"{path} is not for {request.method[:20]}"
    return problem(reason, detail, headers).response()


async def _unexpected(request: Request, error: Exception) -> Response:
    """Without anything from the inside: that is in the log."""
    return problem("internal").response()


def _methods(request: Request) -> list[str]:
    """What may be done with the request's path: several routes may share one. One without parameters is meant before
    those with some."""
    fitting = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    plain = [route for route in fitting if not route.param_convertors]
    found = {method for route in plain or fitting for method in route.methods}
    if "GET" in found:
        found.add("HEAD")
    return sorted(found)


def _headless(send: Send) -> Send:
    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_head
