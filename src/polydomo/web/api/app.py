"""The ASGI app: all routers, and problem documents for all errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
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
from polydomo.web.access import as_seen, guard
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
from polydomo.web.api.origin_guard import OriginGuard
from polydomo.web.api.problems import HttpProblem, problem
from polydomo.web.authentication import Authentication
from polydomo.web.callers import PRINCIPAL, caller_of
from polydomo.web.clients import WebClients
from polydomo.web.connection import SCOPE as CONNECTION
from polydomo.web.polling import PollingWorkers

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer
    from polydomo.server.settings import Settings

log = Log()

# Seconds for which a browser may cache a preflight response.
PREFLIGHT_AGE = 600

# Paths of probes, which need no authentication either.
PROBES = ("/healthz", "/readyz")


class HttpApp(FastAPI):
    """FastAPI with HEAD for every GET, checks of `Host` and `Origin` (`origin_guard`), and logging of unexpected
    errors, which do not propagate to the connection."""

    server: BrokerServer
    clients: WebClients | None = None
    workers: PollingWorkers | None = None
    guard: OriginGuard
    authentication: Authentication
    _with_cors: ASGIApp  # for pages of `http.origins`
    _settings: Settings | None = None  # that `guard` was made from

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._settings is not self.server.settings:
            self._configure(self.server.settings)
        if scope["type"] == "http" and scope["method"] == "HEAD" and not scope["path"].endswith("/events"):
            scope = {**scope, "method": "GET", "polydomo.head": True}
            send = _without_body(send)
        refusal = self.guard.check(scope)
        if refusal is not None:
            await refusal.response()(scope, receive, send)
            return
        try:
            scope[PRINCIPAL] = self.authentication.principal_of(scope)
        except HttpProblem as refused:
            await refused.response()(scope, receive, send)
            return
        if not self._is_counted(scope):
            detail = "the principal has as many connections as its quota allows"
            await problem("quota", detail, {"connection": "close"}).response()(scope, receive, send)
            return
        app: ASGIApp = super().__call__
        if self.guard.origins and self.guard.shares_with(Headers(scope=scope).get("origin", "")):
            app = self._with_cors
        try:
            await app(scope, receive, send)
        except ClientDisconnect:
            pass
        except Exception as error:
            log.error("request failed", path=scope.get("path", "")[:200], error=repr(error), exc_info=error)

    def _is_counted(self, scope: Scope) -> bool:
        """Count the connection for the request's principal. False: it may have no more. Probes are always answered."""
        connection = scope.get(CONNECTION)
        if connection is None or scope["path"] in PROBES:
            return True
        counted: bool = connection.count_for(caller_of(self.server.broker, scope))
        return counted

    def _configure(self, settings: Settings) -> None:
        """Apply settings, which change when the broker reloads them."""
        self._settings = settings
        listening = [endpoints.parse_address(text).endpoint.host for text in settings.broker.http]
        self.guard = OriginGuard(
            settings.http.hosts, settings.http.origins, [host for host in listening if host]
        )
        self._with_cors = CORSMiddleware(
            super().__call__,
            allow_origins=settings.http.origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["*"],
            max_age=PREFLIGHT_AGE,
        )


def make_app(server: BrokerServer) -> HttpApp:
    """Return the app of a server."""
    app = HttpApp(
        title="Polydomo",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={
            HttpProblem: _problem,
            RequestValidationError: _invalid,
            HTTPException: _http,
            Exception: _unexpected,
        },
    )
    app.server = server
    app.authentication = Authentication(server)
    if server.only_devices:
        app.router.routes += [*health.make_router(server).routes, *metrics.make_router(server).routes]
        guard(app.router.routes, server.management.authorizer)
        return app
    app.clients = clients = WebClients(server)
    app.workers = polling = PollingWorkers(server)
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
        app.router.routes += router.routes  # flat: an included router would be searched for every request
    guard(app.router.routes, server.management.authorizer)
    return app


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpProblem)
    return as_seen(request.scope, error).response()


async def _invalid(request: Request, error: Exception) -> Response:
    """Return 400 for invalid parameters."""
    assert isinstance(error, RequestValidationError)
    errors = [
        {"where": ".".join(str(part) for part in found["loc"]), "message": found["msg"]}
        for found in error.errors()
    ]
    detail = "; ".join(f"{found['where']}: {found['message']}" for found in errors[:3])
    return problem("malformed", detail, errors=errors[:20]).response()


async def _http(request: Request, error: Exception) -> Response:
    """Return a problem for an error of the framework, which are unknown paths and methods."""
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    if error.status_code == 404:
        return problem("not-found", f"there is no resource {path}").response()
    if error.status_code == 405:
        detail = f"{path} does not support {request.method[:20]}"
        return problem("method-not-allowed", detail, {"allow": ", ".join(_methods(request))}).response()
    return HttpProblem(error.status_code, error.detail, headers=error.headers).response()


async def _unexpected(request: Request, error: Exception) -> Response:
    """Return 500 without details, which are in the log."""
    return problem("internal").response()


def _methods(request: Request) -> list[str]:
    """Return the methods of the request's path. Routes without parameters take precedence over those with some."""
    matching = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    plain = [route for route in matching if not route.param_convertors]
    found = {method for route in plain or matching for method in route.methods}
    if "GET" in found:
        found.add("HEAD")
    return sorted(found)


def _without_body(send: Send) -> Send:
    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_head
