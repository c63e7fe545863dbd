"""Dead letters: durable jobs that used up their attempts. They are kept until they are resent or deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from polydomo.store.records import DEAD, JobRecord
from polydomo.web.api import openapi
from polydomo.web.api.json_responses import json_cached, json_uncached, run_task, store_errors
from polydomo.web.api.problems import problem
from polydomo.web.api.times import format_times

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer


def make_router(server: BrokerServer) -> APIRouter:
    """Return the routes under `/v1/dead`."""
    router = APIRouter(prefix="/v1/dead", tags=["dead letters"], default_response_class=Response)

    @router.get(
        "",
        summary="List dead letters",
        responses=openapi.cached("StoredJobs") | openapi.failing("not-supported", "store"),
    )
    async def list_dead(
        request: Request,
        service: openapi.ServiceFilter = None,
        limit: openapi.Limit = openapi.ROWS,
        page: openapi.Page = None,
    ) -> Response:
        """List dead letters, newest first."""
        _require_store()
        found = await run_task(server, request, "show_dead_letters", service=service, limit=limit, page=page)
        return json_cached(request, format_times(found))

    @router.get(
        "/{id}",
        summary="Show a dead letter",
        responses=openapi.cached("StoredJob") | openapi.failing("not-supported", "store"),
    )
    async def show_dead(request: Request, id: openapi.JobId) -> Response:
        """Show the request, its attempts and the workers' messages. Frames that are text are shown as text, others in
        hex."""
        await _require_dead(id)
        return json_cached(request, format_times(await _run(request, "show_stored_job", id)))

    @router.post(
        "/{id}/resend",
        summary="Send a dead letter again",
        responses=openapi.documented("Sent") | openapi.failing("conflict", "not-supported", "store"),
    )
    async def resend(request: Request, id: openapi.JobId) -> Response:
        """Queue the job again under its id; its result will be at `/v1/jobs/{id}`."""
        await _require_dead(id)
        return json_uncached(await _run(request, "resend_job", id))

    @router.delete(
        "/{id}",
        summary="Delete a dead letter",
        responses=openapi.no_content("The dead letter is deleted.")
        | openapi.failing("conflict", "not-supported", "store"),
    )
    async def forget(request: Request, id: openapi.JobId) -> Response:
        """Delete a dead letter that needs no further attempt."""
        await _require_dead(id)
        await _run(request, "forget_job", id)
        return Response(status_code=204)

    def _require_store() -> None:
        if server.store is None:
            raise problem("not-supported", "this broker stores no durable jobs: start it with --data DIR")

    async def _require_dead(id: str) -> None:
        _require_store()
        assert server.store is not None
        with store_errors():
            record: JobRecord | None = None if "\0" in id else await server.store.get(id)
        if record is None or record.state != DEAD:
            raise problem("not-found", f"there is no dead letter {id[:100]!r}")

    async def _run(request: Request, task: str, id: str) -> Any:
        try:
            return await run_task(server, request, task, id)
        except ValueError as error:  # its state has changed since it was checked
            raise problem("conflict", str(error)) from error

    return router
