"""Services: list, show, pause, resume, and their result caches."""

from __future__ import annotations

import asyncio
from heapq import nsmallest
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from polydomo.core.counts import Counts
from polydomo.core.model import Service
from polydomo.core.names import parse_name, printable
from polydomo.core.policy import FOREVER, Policy
from polydomo.services.builtin import is_internal
from polydomo.services.management import past_row, service_row
from polydomo.services.slices import chunks
from polydomo.web.api.bodies import OCTETS, read_body
from polydomo.web.api.json_responses import json_cached, json_uncached, run_task, view_of
from polydomo.web.api.openapi import ROWS, Limit, cached, documented, failing, frames_body
from polydomo.web.api.problems import problem
from polydomo.web.api.schemas import POLICY
from polydomo.wire.frames import EMPTY_BODY

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

# Limit of worker names in a service's document.
NAMES_MAX = 1000


class ServiceNameConvertor(PathConvertor):
    """A path parameter that may contain slashes, but does not end like another route of a service."""

    regex = r"(?!.*/(?:jobs|bulk|memo|pause|resume)$).+"


register_url_convertor("service", ServiceNameConvertor())

Name = Annotated[str, Path(description="the service's name, as listed", examples=["echo"], min_length=1)]


def make_router(server: BrokerServer) -> APIRouter:
    """Return the routes under `/v1/services`."""
    router = APIRouter(prefix="/v1/services", tags=["services"], default_response_class=Response)
    broker = server.broker

    @router.get("", summary="List services", responses=cached("Services"))
    async def list_services(
        request: Request,
        limit: Limit = ROWS,
        after: Annotated[str, Query(description="only names after this one: the `next` of a page")] = "",
    ) -> Response:
        """List services that have workers or jobs, or had some lately, by name. The broker's own are omitted."""
        view = view_of(server, request)
        known = [service.name for service in broker.services.values() if not service.internal]
        found: list[tuple[str, bytes]] = []
        for names in chunks([*known, *broker.services.past.named]):
            pairs = [(printable(name), name) for name in names if view.service(name)]
            found = nsmallest(limit + 1, [*found, *(pair for pair in pairs if pair[0] > after)])
            await asyncio.sleep(0)
        rows = [_row(name) for _, name in found[:limit]]
        return json_cached(
            request, {"services": rows, "next": rows[-1]["name"] if len(found) > limit else None}
        )

    @router.get("/{service:path}/memo", summary="Show a result cache", responses=cached("Memo"))
    async def show_memo(request: Request, service: Name) -> Response:
        """Show how many results of a memoised service are cached, how often they were used, and what that saved."""
        key = parse_name(service)
        if key not in broker.control.caches():
            _find(service)
        return json_cached(
            request,
            {
                "name": service,
                "on": broker.services.policy_of(key).memo,
                **broker.control.cache_of(key).show(),
            },
        )

    @router.delete(
        "/{service:path}/memo",
        summary="Clear a result cache",
        responses=documented("Forgotten") | failing("too-large", "unsupported-media-type"),
        openapi_extra=frames_body(OCTETS),
    )
    async def forget_memo(request: Request, service: Name) -> Response:
        """Remove all cached results of a service; with a body, only the result of the request with this body."""
        body = await read_body(request)
        server.advance()
        count = broker.control.forget_results(parse_name(service), None if body == EMPTY_BODY else body)
        return json_uncached({"name": service, "forgotten": count})

    @router.post("/{service:path}/pause", summary="Pause a service", responses=documented("Paused"))
    async def pause(request: Request, service: Name) -> Response:
        """Let the service's jobs wait until it is resumed; running jobs continue."""
        return json_uncached(await _run(request, "pause_service", service))

    @router.post("/{service:path}/resume", summary="Resume a service", responses=documented("Paused"))
    async def resume(request: Request, service: Name) -> Response:
        """Dispatch the service's jobs again."""
        return json_uncached(await _run(request, "resume_service", service))

    @router.get("/{service:service}", summary="Show a service", responses=cached("Service"))
    async def show_service(request: Request, service: Name) -> Response:
        """Show a service with its settings and its workers."""
        found = _find(service)
        row = _row(parse_name(service))
        workers = [] if found is None else found.workers
        row["worker_names"] = sorted(printable(worker.name) for worker in workers)[:NAMES_MAX]
        policy = broker.services.policy_of(parse_name(service)) if found is None else found.policy
        row["policy"] = policy_json(policy)
        row["memo"] = broker.control.cache_of(parse_name(service)).show() if policy.memo else None
        return json_cached(request, row)

    def _row(name: bytes) -> dict[str, Any]:
        service = broker.services.get(name)
        if service is not None:
            return service_row(service)
        return past_row(name, broker.services.past.named.get(name) or Counts())

    def _find(name: str) -> Service | None:
        """Return the service; None if it is only configured, or existed before."""
        key = parse_name(name)
        service = broker.services.get(key)
        if is_internal(key) or (
            service is None and key not in broker.services.policies and key not in broker.services.past.named
        ):
            raise _no_service(name)
        return service

    async def _run(request: Request, task: str, name: str) -> Any:
        try:
            return await run_task(server, request, task, name)
        except ValueError as error:
            raise _no_service(name) from error

    return router


def policy_json(policy: Policy) -> dict[str, Any]:
    """Return the settings of a service; null means no limit."""
    found = {name: getattr(policy, name) for name in POLICY}
    return {name: None if value == FOREVER else value for name, value in found.items()}


def _no_service(name: str) -> Exception:
    return problem("not-found", f"there is no service {name[:100]!r}: it has no worker and no job")
