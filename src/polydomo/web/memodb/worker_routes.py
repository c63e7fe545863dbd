"""The route `/worker`, for workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from polydomo.web.api.problems import problem
from polydomo.web.api.request_options import client_of, headers_of, preferred_wait
from polydomo.web.callers import caller_name, caller_site
from polydomo.web.connection import connection_of
from polydomo.web.memodb import openapi
from polydomo.web.memodb.cid import Cid
from polydomo.web.memodb.content_store import FUNC_BYTES, ContentStore
from polydomo.web.memodb.content_types import UNCACHED, choose_type, node_response, read_node
from polydomo.web.memodb.dagcbor import BadCbor, Node
from polydomo.web.memodb.rest_workers import RestWorkers
from polydomo.web.memodb.values import Value

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer


def add_routes(
    router: APIRouter, server: BrokerServer, content: ContentStore, rest_workers: RestWorkers
) -> None:
    """Add the route `/worker`."""

    @router.post(
        "/worker",
        summary="Poll for a call",
        responses=openapi.returns(
            "A call to evaluate, or null.",
            {"map": {"args": [{"cid": "uAXEAAQI"}, {"cid": "uAXEAAQI"}], "func": "test.add"}},
        )
        | openapi.failing(
            *openapi.READ,
            "invalid-worker-info",
            "unknown-cid",
            "too-many-requests",
            "memodb-full",
            "not-acceptable",
        ),
        openapi_extra=openapi.value_body(openapi.INFO, {"cid": "uAXEAEaFlZnVuY3OBaHRlc3QuYWRk"})
        | {"parameters": [openapi.PREFER]},
    )
    async def work(request: Request) -> Response:
        """Return a call to evaluate. The body is a link to the worker's functions, `{"map": {"funcs": ["test.add"]}}`,
        or that value itself. Without a call the response is null, at once or after `Prefer: wait=N` seconds. The worker
        records the result with PUT to the call's path before the job's timeout."""
        info, funcs = await _info(await read_node(request, server))
        choose_type(request, ("application/json", "application/cbor"))
        headers = headers_of(request.scope)
        wait = preferred_wait(headers.get(b"prefer"), server.settings.http.patience) or 0.0
        worker = rest_workers.worker(
            client_of(request.scope, headers),
            caller_site(request.scope),
            caller_name(request.scope),
            info,
            funcs,
        )
        call = await rest_workers.next(worker, wait, connection_of(request.scope))
        node = None if call is None else {"func": call.func, "args": list(call.args)}
        return node_response(request, node, headers=UNCACHED)

    async def _info(node: Node) -> tuple[Cid, list[str]]:
        """Return a worker's functions, and the CID of their list."""
        if isinstance(node, Cid):
            value = await content.value(node)
            if value is None:
                raise problem("unknown-cid", f"{node} is not in the store: store the list of functions first")
            try:
                return node, _funcs(value.node())
            except BadCbor as error:
                raise problem("invalid-worker-info", str(error)) from None
        return Value.of_node(node).cid, _funcs(node)


def _funcs(info: Node) -> list[str]:
    funcs = info.get("funcs") if isinstance(info, dict) else None
    if not isinstance(funcs, list) or not funcs or not all(isinstance(func, str) and func for func in funcs):
        raise problem("invalid-worker-info", 'a map with a list of names under "funcs" is required')
    for func in funcs:
        if len(func.encode()) > FUNC_BYTES or "\0" in func:
            raise problem(
                "invalid-worker-info", f"{func[:60]!r} is not a name of 1 to {FUNC_BYTES} bytes without zeros"
            )
    return funcs
