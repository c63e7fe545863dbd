"""Services: what is offered, how it goes, pause and resume, what memoised ones remember."""

from __future__ import annotations

import asyncio
from heapq import nsmallest
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from polydomo.core.counts import Counts
from polydomo.core.names import parse_name, printable
from polydomo.core.policy import FOREVER, Policy
from polydomo.core.service import Service
from polydomo.services.builtin import is_internal
from polydomo.services.management import past_row, service_row
from polydomo.services.slices import chunks
from polydomo.web.api.bodies import read_body
from polydomo.web.api.json_responses import MOST_ROWS, ROWS, ask, show, show_now
from polydomo.web.api.openapi import Doc, cached, failing, shows
from polydomo.web.api.problems import problem
from polydomo.wire.frames import EMPTY_BODY

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

# What is shown of a service's settings. (Compiled classes have no `__slots__` to ask.)
POLICY = (
    "wait",
    "timeout",
    "retries",
    "queue",
    "liveness_busy",
    "durable",
    "backoff",
    "grace",
    "retention",
    "ageing",
    "memo",
    "memo_ttl",
    "memo_bytes",
)

# Workers of one service that are named.
NAMED = 1000


class ServiceName(PathConvertor):
    """Names have slashes as they like, but what stands behind the last one may be another path of ours."""

    regex = r"(?!.*/(?:jobs|bulk|memo|pause|resume)$).+"


register_url_convertor("service", ServiceName())

Name = Annotated[str, Path(description="the service's name, as it is shown", examples=["echo"], min_length=1)]
Limit = Annotated[int, Query(description="rows in the answer", ge=1, le=MOST_ROWS)]


def make_router(server: BrokerServer) -> APIRouter:
    """See the module's text."""
    router = APIRouter(prefix="/v1/services", tags=["services"], default_response_class=Response)
    broker = server.broker

    @router.get("", summary="List services", responses=cached("Services") | failing("malformed"))
    async def list_services(
        request: Request,
        limit: Limit = ROWS,
        after: Annotated[str, Query(description="only names behind this one: the `next` of a page")] = "",
    ) -> Response:
        """Every service that has workers or jobs, or had some lately, by name. The broker's own are left out."""
        known = [service.name for service in broker.services.values() if not service.internal]
        found: list[tuple[str, bytes]] = []
        for names in chunks([*known, *broker.past.named]):
            pairs = [(printable(name), name) for name in names]
            found = nsmallest(limit + 1, [*found, *(pair for pair in pairs if pair[0] > after)])
            await asyncio.sleep(0)
        rows = [_row(name) for _, name in found[:limit]]
        return show(request, {"services": rows, "next": rows[-1]["name"] if len(found) > limit else None})

    @router.get(
        "/{service:path}/memo",
        summary="See what is remembered",
        responses=cached("Memo") | failing("not-found"),
    )
    async def show_memo(request: Request, service: Name) -> Response:
        """Of a memoised service: how many answers are kept, how often they were used, what that saved."""
        return show(request, await _memo(service))

    @router.delete(
        "/{service:path}/memo",
        summary="Forget remembered answers",
        responses=shows("Forgotten") | failing("malformed", "too-large", "unsupported-media-type"),
        openapi_extra=Doc.OPTIONAL_BODY,
    )
    async def forget_memo(request: Request, service: Name) -> Response:
        """All of a service's; with a body only the answer to the request that has this body."""
        body = await read_body(request)
        server.advance()
        count = broker.memos.forget(parse_name(service), None if body == EMPTY_BODY else body)
        return show_now({"name": service, "forgotten": count})

    @router.post(
        "/{service:path}/pause", summary="Pause a service", responses=shows("Paused") | failing("not-found")
    )
    async def pause(service: Name) -> Response:
        """Its jobs wait until it is resumed; those that run go on."""
        return show_now(await _known("pause_service", service))

    @router.post(
        "/{service:path}/resume", summary="Resume a service", responses=shows("Paused") | failing("not-found")
    )
    async def resume(service: Name) -> Response:
        """Give its jobs to workers again."""
        return show_now(await _known("resume_service", service))

    @router.get(
        "/{service:service}", summary="See a service", responses=cached("Service") | failing("not-found")
    )
    async def show_service(request: Request, service: Name) -> Response:
        """One service with its settings and its workers."""
        found = _find(service)
        row = _row(parse_name(service))
        workers = [] if found is None else found.workers
        row["worker_names"] = sorted(printable(worker.name) for worker in workers)[:NAMED]
        policy = broker.policy_of(parse_name(service)) if found is None else found.policy
        row["policy"] = shown(policy)
        row["memo"] = broker.memos.show(parse_name(service)) if policy.memo else None
        return show(request, row)

    def _row(name: bytes) -> dict[str, Any]:
        service = broker.services.get(name)
        if service is not None:
            return service_row(service)
        return past_row(name, broker.past.named.get(name) or Counts())

    def _find(name: str) -> Service | None:
        """The service; None if there is only a configuration for it, or it was there once."""
        key = parse_name(name)
        service = broker.services.get(key)
        if is_internal(key) or (
            service is None and key not in broker.policies and key not in broker.past.named
        ):
            raise _no_service(name)
        return service

    async def _memo(name: str) -> dict[str, Any]:
        key = parse_name(name)
        if key not in broker.memos.shelves:
            _find(name)
        policy = broker.policy_of(key)
        return {"name": name, "on": policy.memo, **broker.memos.show(key)}

    async def _known(task: str, name: str) -> Any:
        try:
            return await ask(server, task, name)
        except ValueError as error:
            raise _no_service(name) from error

    return router


def shown(policy: Policy) -> dict[str, Any]:
    """For people; null: without a limit."""
    found = {name: getattr(policy, name) for name in POLICY}
    return {name: None if value == FOREVER else value for name, value in found.items()}


def _no_service(name: str) -> Exception:
    return problem("not-found", f"nobody offers {name[:100]!r}, and no job waits for it")
