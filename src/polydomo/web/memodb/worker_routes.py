"""`/worker`: be a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from polydomo.web.api.problems import problem
from polydomo.web.api.request_options import client_of, headers_of, patience_of
from polydomo.web.connection import connection_of
from polydomo.web.memodb import openapi
from polydomo.web.memodb.cid import Cid
from polydomo.web.memodb.content_store import FUNC_BYTES, ContentStore
from polydomo.web.memodb.content_types import PASSING, choose, read_node, show_node
from polydomo.web.memodb.dagcbor import BadCbor, Node
from polydomo.web.memodb.rest_workers import RestWorkers
from polydomo.web.memodb.values import Value

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer


def add_routes(router: APIRouter, server: BrokerServer, library: ContentStore, hands: RestWorkers) -> None:
    """See the module's text."""

    @router.post(
        "/worker",
        summary="Ask for a call to do",
        responses=openapi.value(
            "A call to do, or null.",
            {"map": {"args": [{"cid": "uAXEAAQI"}, {"cid": "uAXEAAQI"}], "func": "test.add"}},
        )
        | openapi.fails(
            *openapi.READ,
            "invalid-worker-info",
            "unknown-cid",
            "too-many-requests",
            "memodb-full",
            "not-acceptable",
            "draining",
        ),
        openapi_extra=openapi.body(openapi.INFO, {"cid": "uAXEAEaFlZnVuY3OBaHRlc3QuYWRk"})
        | {"parameters": [openapi.PREFER]},
    )
    async def work(request: Request) -> Response:
        """The body is a link to what the worker can do, `{"map": {"funcs": ["test.add"]}}`, or that value itself. The
        answer is null at once if there is nothing to do, or after `Prefer: wait=N` seconds. The result is recorded with
        PUT to the call's path; who never does so loses the call when the job's time is over."""
        info, funcs = await _info(await read_node(request, server))
        choose(request, ("application/json", "application/cbor"))
        headers = headers_of(request.scope)
        wait = patience_of(headers.get(b"prefer"), server.settings.http.patience) or 0.0
        worker = hands.worker(client_of(request.scope, headers), info, funcs)
        call = await hands.next(worker, wait, connection_of(request.scope))
        answer = None if call is None else {"func": call.func, "args": list(call.args)}
        return show_node(request, answer, headers=PASSING)

    async def _info(node: Node) -> tuple[Cid, list[str]]:
        """What a worker can do, and the CID of that."""
        if isinstance(node, Cid):
            value = await library.value(node)
            if value is None:
                raise problem("unknown-cid", f"{node} is not in the store: store what you can do first")
            try:
                return node, _funcs(value.node())
            except BadCbor as error:
                raise problem("invalid-worker-info", str(error)) from None
        return Value.of_node(node).cid, _funcs(node)


def _funcs(info: Node) -> list[str]:
    funcs = info.get("funcs") if isinstance(info, dict) else None
    if not isinstance(funcs, list) or not funcs or not all(isinstance(func, str) and func for func in funcs):
        raise problem("invalid-worker-info", 'a map is needed with a list of names under "funcs"')
    for func in funcs:
        if len(func.encode()) > FUNC_BYTES or "\0" in func:
            shown = repr(func[:60])
            raise problem(
                "invalid-worker-info", f"{shown} is no function's name: 1 to {FUNC_BYTES} bytes, no zero"
            )
    return funcs
