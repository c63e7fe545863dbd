"""Routes under `/call`: functions, known results, and evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from polydomo.core.principals import CALL
from polydomo.dialects.options import LONGEST
from polydomo.web.api.json_responses import view_of
from polydomo.web.api.openapi import no_content
from polydomo.web.api.problems import problem
from polydomo.web.api.request_options import client_of, headers_of, preferred_wait
from polydomo.web.callers import caller_name, caller_site
from polydomo.web.memodb import openapi
from polydomo.web.memodb.content_store import ContentStore
from polydomo.web.memodb.content_types import UNCACHED, node_response, read_link, read_node
from polydomo.web.memodb.evaluations import Evaluations
from polydomo.web.memodb.heads import listing
from polydomo.web.memodb.rest_workers import RestWorkers
from polydomo.web.memodb.routing import call_of, func_of, path_segment

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

# Seconds that an evaluation waits by default. MemoDB's own server does not wait at all, and its clients submit
# thousands of calls before they request the first result; so the wait is for quick functions only.
DEFAULT_WAIT: Final = 0.1

JOB: Final = (
    "expired",
    "worker-error",
    "queue-full",
    "too-many-jobs",
    "quota",
    "bad-service",
    "too-many-hops",
    "cancelled",
    "duplicate-id",
    "memodb-full",
)


def add_routes(
    router: APIRouter,
    server: BrokerServer,
    content: ContentStore,
    evaluations: Evaluations,
    rest_workers: RestWorkers,
) -> None:
    """Add the routes under `/call`."""
    _add_lists(router, server, content)

    @router.get(
        "/call/{func}/{args}",
        summary="Get a call's known result",
        responses=openapi.shows("A link to the result.", {"cid": "uAXEAAQQ"}, *openapi.CID_PATH),
    )
    async def show(request: Request, func: openapi.FuncPath, args: openapi.ArgsPath) -> Response:
        """Return a known result; nothing is evaluated."""
        call = call_of(func, args)
        result = await content.result(call)
        if result is None:
            raise problem("not-found", "the call's result is not known; POST to its /evaluate")
        return node_response(request, result)

    @router.put(
        "/call/{func}/{args}",
        summary="Record a call's result",
        responses=no_content("The result is recorded.", 201)
        | openapi.failing(
            *openapi.READ, *openapi.CID_PATH, "expected-cid", "unknown-cid", "conflict", "memodb-full"
        ),
        openapi_extra=openapi.value_body(openapi.LINK, {"cid": "uAXEAAQQ"}),
    )
    async def record(request: Request, func: openapi.FuncPath, args: openapi.ArgsPath) -> Response:
        """Record a result, which ends all jobs of this call. Its value must be stored before."""
        call = call_of(func, args)
        result = await read_link(request, server)
        value = None
        principal, site = caller_name(request.scope), caller_site(request.scope)
        if rest_workers.is_waiting(call):
            if not rest_workers.may_finish(call, principal, site):
                raise problem("conflict", "another worker evaluates this call")
            value = await content.value(result)
            if value is None:
                raise problem("unknown-cid", f"the result {result} is not in the store; store it first")
        await content.record(call, result)
        if value is not None:
            rest_workers.finish(call, value, principal, site)
        await evaluations.cancel_job(call)
        return Response(status_code=201, headers=UNCACHED)

    @router.delete(
        "/call/{func}/{args}",
        summary="Delete a call's result",
        responses=no_content("The call will be evaluated again.") | openapi.failing(*openapi.CID_PATH),
    )
    async def forget(func: openapi.FuncPath, args: openapi.ArgsPath) -> Response:
        """Delete a result, so that the call is evaluated at the next request."""
        if not await content.forget(call_of(func, args)):
            raise problem("not-found", "the call's result is not known")
        return Response(status_code=204, headers=UNCACHED)

    @router.post(
        "/call/{func}/{args}/evaluate",
        summary="Evaluate a call",
        responses=openapi.returns("A link to the result.", {"cid": "uAXEAAQQ"})
        | no_content("The call is queued or running: request it again.", 202)
        | openapi.failing(
            *openapi.READ, *JOB, *openapi.CID_PATH, "malformed", "unknown-cid", "not-acceptable"
        ),
        openapi_extra=openapi.value_body(openapi.SETTINGS, {"map": {"timeout": 600}}, required=False)
        | {"parameters": [openapi.PREFER]},
    )
    async def evaluate(request: Request, func: openapi.FuncPath, args: openapi.ArgsPath) -> Response:
        """Return a known result at once. Otherwise the call becomes a job for the service of this name; repeat the
        request until it returns 200, or wait (`Prefer: wait=N`). Concurrent requests for the same call share one job.
        A failure is returned once; after that the call can be evaluated again."""
        call = call_of(func, args)
        timeout = _timeout(await read_node(request, server, {}))
        headers = headers_of(request.scope)
        wait = _wait(headers.get(b"prefer"), server.settings.http.patience)
        result = await evaluations.evaluate(
            call, client_of(request.scope, headers), caller_name(request.scope), wait, timeout
        )
        if result is None:
            return Response(status_code=202, headers=UNCACHED | {"retry-after": "1"})
        return node_response(request, result, headers=UNCACHED)


def _add_lists(router: APIRouter, server: BrokerServer, content: ContentStore) -> None:
    @router.get(
        "/call", summary="List functions", responses=openapi.shows("Their paths.", ["/call/test.add"])
    )
    async def list_funcs(request: Request, after: openapi.After = "") -> Response:
        """List functions with known results. The header `Link` leads to the next page."""
        funcs, more = await content.funcs(after)
        view = view_of(server, request)
        paths = [f"/call/{path_segment(func)}" for func in funcs if view.service(func.encode(), CALL)]
        return listing(request, paths, funcs[-1] if more else "")

    @router.get(
        "/call/{func}",
        summary="List a function's calls",
        responses=openapi.shows(
            "Their paths.",
            ["/call/test.add/uAXEAAQI,uAXEAAQI"],
            *openapi.CID_PATH,
        ),
    )
    async def list_calls(request: Request, func: openapi.FuncPath, after: openapi.After = "") -> Response:
        """List calls with a known result. The header `Link` leads to the next page."""
        name = func_of(func)
        calls, more = await content.calls(name, call_of(func, after) if after else None)
        paths = [f"/call/{path_segment(name)}/{','.join(map(str, call.args))}" for call in calls]
        return listing(request, paths, paths[-1].rpartition("/")[2] if more else "")

    @router.delete(
        "/call/{func}",
        summary="Delete all results of a function",
        responses=no_content("The results are deleted.") | openapi.failing("invalid-string"),
    )
    async def forget_all(func: openapi.FuncPath) -> Response:
        """Delete all results, because the function has changed or they are no longer needed."""
        await content.forget_all(func_of(func))
        return Response(status_code=204, headers=UNCACHED)


def _wait(prefer: bytes | None, most: float) -> float:
    wanted = preferred_wait(prefer, most)
    if wanted is not None:
        return wanted
    return 0.0 if prefer is not None and b"respond-async" in prefer.lower() else DEFAULT_WAIT


def _timeout(settings: object) -> float:
    """Return the timeout of one attempt; 0 means the service's default."""
    if not isinstance(settings, dict):
        raise problem("malformed", 'the body is a map, as in {"map": {"timeout": 600}}, or nothing')
    timeout = settings.get("timeout", 0)
    if not isinstance(timeout, int) or isinstance(timeout, bool) or not 0 <= timeout <= LONGEST:
        raise problem("malformed", f"timeout is a whole number of seconds, at most {LONGEST:.0f}")
    return float(timeout)
