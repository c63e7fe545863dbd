"""`/call`: functions, what is known of their results, and how to have one found out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from polydomo.dialects.options import LONGEST
from polydomo.web.api.problems import problem
from polydomo.web.api.request_options import client_of, headers_of, patience_of
from polydomo.web.memodb import openapi
from polydomo.web.memodb.content_store import ContentStore
from polydomo.web.memodb.content_types import PASSING, read_link, read_node, show_node
from polydomo.web.memodb.evaluations import Evaluations
from polydomo.web.memodb.heads import listing
from polydomo.web.memodb.openapi import LINK, SETTINGS, After, ArgsPath, FuncPath
from polydomo.web.memodb.rest_workers import RestWorkers
from polydomo.web.memodb.routing import call_of, func_of, step

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

# How long a request to evaluate waits for the result if it does not say. MemoDB's own server does not wait at all, and
# its clients submit thousands of calls before they come for the first result; so it is for quick functions only.
SHORT: Final = 0.1

JOB: Final = (
    "expired",
    "worker-error",
    "queue-full",
    "too-many-jobs",
    "bad-service",
    "too-many-hops",
    "cancelled",
    "duplicate-id",
)


def add_routes(
    router: APIRouter,
    server: BrokerServer,
    library: ContentStore,
    evaluations: Evaluations,
    hands: RestWorkers,
) -> None:
    """See the module's text."""
    _add_lists(router, library)

    @router.get(
        "/call/{func}/{args}",
        summary="Get a call's result, if it is known",
        responses=openapi.value("A link to the result.", {"cid": "uAXEAAQQ"})
        | openapi.unchanged()
        | openapi.fails("invalid-or-unsupported-cid", "invalid-string", "not-found", "not-acceptable"),
    )
    async def show(request: Request, func: FuncPath, args: ArgsPath) -> Response:
        """Nothing is evaluated by this."""
        call = call_of(func, args)
        result = await library.result(call)
        if result is None:
            raise problem("not-found", "the call's result is not known; POST to its /evaluate")
        return show_node(request, result)

    @router.put(
        "/call/{func}/{args}",
        summary="Record a call's result",
        status_code=201,
        response_class=Response,
        responses=openapi.nothing("It is recorded.", 201)
        | openapi.fails(
            *openapi.READ,
            "invalid-or-unsupported-cid",
            "invalid-string",
            "expected-cid",
            "unknown-cid",
            "memodb-full",
        ),
        openapi_extra=openapi.body(LINK, {"cid": "uAXEAAQQ"}),
    )
    async def record(request: Request, func: FuncPath, args: ArgsPath) -> Response:
        """For workers: this ends the jobs that are this call. Its value must be stored before."""
        call = call_of(func, args)
        result = await read_link(request, server)
        value = None
        if hands.waiting(call):
            value = await library.value(result)
            if value is None:
                raise problem(
                    "unknown-cid", f"the result {result} is not in the store, and a client waits for it"
                )
        await library.record(call, result)
        if value is not None:
            hands.finish(call, value)
        await evaluations.settled(call)
        return Response(status_code=201, headers=PASSING)

    @router.delete(
        "/call/{func}/{args}",
        summary="Forget a call's result",
        status_code=204,
        response_class=Response,
        responses=openapi.nothing("It will be evaluated anew.", 204)
        | openapi.fails("invalid-or-unsupported-cid", "invalid-string", "not-found"),
    )
    async def forget(func: FuncPath, args: ArgsPath) -> Response:
        """Whoever asks for it next has it evaluated again."""
        if not await library.forget(call_of(func, args)):
            raise problem("not-found", "the call's result is not known")
        return Response(status_code=204, headers=PASSING)

    @router.post(
        "/call/{func}/{args}/evaluate",
        summary="Evaluate a call",
        responses=openapi.value("A link to the result.", {"cid": "uAXEAAQQ"})
        | openapi.nothing("A worker has it, or will have it: ask again.", 202)
        | openapi.fails(
            *openapi.READ,
            *JOB,
            "malformed",
            "invalid-or-unsupported-cid",
            "invalid-string",
            "unknown-cid",
            "memodb-full",
            "not-acceptable",
        ),
        openapi_extra=openapi.body(SETTINGS, {"map": {"timeout": 600}}, required=False)
        | {"parameters": [openapi.PREFER]},
    )
    async def evaluate(request: Request, func: FuncPath, args: ArgsPath) -> Response:
        """A result that is known is given at once. Otherwise the call is a job for the service of this name; ask again
        until it is 200, or wait (`Prefer: wait=N`). Whoever asks for the same call meanwhile gets the same result, and
        it is run once. A failure is told to one who asks; after that it is tried again."""
        call = call_of(func, args)
        timeout = _timeout(await read_node(request, server, {}))
        headers = headers_of(request.scope)
        wait = _wait(headers.get(b"prefer"), server.settings.http.patience)
        result = await evaluations.evaluate(call, client_of(request.scope, headers), wait, timeout)
        if result is None:
            return Response(status_code=202, headers=PASSING | {"retry-after": "1"})
        return show_node(request, result, headers=PASSING)


def _add_lists(router: APIRouter, library: ContentStore) -> None:
    @router.get(
        "/call",
        summary="List functions",
        responses=openapi.value("Their paths.", ["/call/test.add"])
        | openapi.unchanged()
        | openapi.fails("not-acceptable", "malformed"),
    )
    async def list_funcs(request: Request, after: After = "") -> Response:
        """Those of which a result is known. If there are more, the header `Link` says where."""
        funcs, more = await library.funcs(after)
        return listing(request, [f"/call/{step(func)}" for func in funcs], funcs[-1] if more else "")

    @router.get(
        "/call/{func}",
        summary="List a function's calls",
        responses=openapi.value("Their paths.", ["/call/test.add/uAXEAAQI,uAXEAAQI"])
        | openapi.unchanged()
        | openapi.fails("invalid-string", "invalid-or-unsupported-cid", "not-acceptable"),
    )
    async def list_calls(request: Request, func: FuncPath, after: After = "") -> Response:
        """Those of which the result is known. If there are more, the header `Link` says where."""
        name = func_of(func)
        calls, more = await library.calls(name, call_of(func, after) if after else None)
        paths = [f"/call/{step(name)}/{','.join(map(str, call.args))}" for call in calls]
        return listing(request, paths, paths[-1].rpartition("/")[2] if more else "")

    @router.delete(
        "/call/{func}",
        summary="Forget all results of a function",
        status_code=204,
        response_class=Response,
        responses=openapi.nothing("Its calls will be evaluated anew.", 204) | openapi.fails("invalid-string"),
    )
    async def forget_all(func: FuncPath) -> Response:
        """When the function is another now, or its results are not needed any more."""
        await library.forget_all(func_of(func))
        return Response(status_code=204, headers=PASSING)


def _wait(prefer: bytes | None, most: float) -> float:
    wanted = patience_of(prefer, most)
    if wanted is not None:
        return wanted
    return 0.0 if prefer is not None and b"respond-async" in prefer.lower() else SHORT


def _timeout(settings: object) -> float:
    """How long one attempt may run; 0: as the service has it."""
    if not isinstance(settings, dict):
        raise problem("malformed", 'the body is a map, as in {"map": {"timeout": 600}}, or nothing')
    timeout = settings.get("timeout", 0)
    if not isinstance(timeout, int) or isinstance(timeout, bool) or not 0 <= timeout <= LONGEST:
        raise problem("malformed", f"timeout is a whole number of seconds, at most {LONGEST:.0f}")
    return float(timeout)
