"""Access to the routes of HTTP: each request has a principal and is admitted by the route's rule before its handler
runs.

The rules are in `services.access`. A route without one cannot be added.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from polydomo.core.failure import DENIED
from polydomo.core.principals import ANONYMOUS
from polydomo.services.access import NOT_ASKED, ROUTES, Rule
from polydomo.services.authorizer import AccessDenied, Authorizer, NotRecorded, UnknownObject
from polydomo.web.api.json_responses import store_errors
from polydomo.web.api.problems import HttpProblem, problem
from polydomo.web.authentication import unauthenticated
from polydomo.web.callers import caller_name, caller_of
from polydomo.web.memodb.routing import RawPathRoute


class GuardedRoute:
    """The app of a route behind its rules."""

    def __init__(self, route: Route, authorizer: Authorizer) -> None:
        self._app = route.app
        self._is_raw = isinstance(route, RawPathRoute)
        self._authorizer = authorizer
        self._rules = {
            method: rule_of("GET" if method == "HEAD" else method, route.path)
            for method in sorted(route.methods or ())
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        rule = self._rules[scope["method"]]
        if rule.about not in NOT_ASKED:
            await self._admit(rule, scope)
        await self._app(scope, receive, send)

    async def _admit(self, rule: Rule, scope: Scope) -> None:
        """Return when the request may be handled; raise HttpProblem if it may not."""
        given: dict[str, Any] = scope["path_params"]
        if self._is_raw:
            given = {name: unquote_to_bytes(text) for name, text in given.items()}
        action = f"{scope['method']} {scope['path']}"
        peer = scope.get("client")
        try:
            admission = self._authorizer.admit(
                caller_of(self._authorizer.broker, scope),
                rule,
                action,
                given,
                "" if peer is None else str(peer[0]),
            )
            if admission is not None:
                with store_errors():
                    await admission
        except AccessDenied as error:
            raise denied(scope, str(error)) from None
        except NotRecorded as error:
            raise problem("not-recorded", str(error)) from None
        except UnknownObject as error:
            raise problem("not-found", f"there is {error}, or it is no longer stored") from None


def guard(routes: Iterable[BaseRoute], authorizer: Authorizer) -> None:
    """Put routes behind their rules. Raises LookupError for a route without one."""
    for route in routes:
        if not isinstance(route, Route):
            raise LookupError(f"{route} is no route with methods, so it can have no rule")
        route.app = GuardedRoute(route, authorizer)


def rule_of(method: str, path: str) -> Rule:
    """Return the rule of a route; raise LookupError if it has none."""
    rule = ROUTES.get((method, path))
    if rule is None:
        raise LookupError(f"the route {method} {path} has no rule in services.access")
    return rule


def denied(scope: Scope, detail: str) -> HttpProblem:
    """Return the problem of a refused request: 401 asks somebody who is not known for credentials."""
    if caller_name(scope) == ANONYMOUS:
        return unauthenticated(detail)
    return problem(DENIED, detail)


def as_seen(scope: Scope, error: HttpProblem) -> HttpProblem:
    """Return a problem for the request's principal: a job that was denied to nobody in particular is a 401."""
    if error.members.get("reason") == DENIED and caller_name(scope) == ANONYMOUS:
        return denied(scope, error.detail)
    return error
