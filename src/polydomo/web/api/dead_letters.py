"""Dead letters: durable jobs that used up their attempts. They stay until somebody deals with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from polydomo.store.errors import StoreError
from polydomo.store.records import DEAD, JobRecord
from polydomo.web.api.json_responses import MOST_ROWS, ROWS, ask, show, show_now, store_problem
from polydomo.web.api.openapi import cached, failing, nothing, shows
from polydomo.web.api.problems import problem
from polydomo.web.api.times import dated

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

Id = Annotated[str, Path(description="the job's id", min_length=1, max_length=255)]


def make_router(server: BrokerServer) -> APIRouter:
    """See the module's text."""
    router = APIRouter(prefix="/v1/dead", tags=["dead letters"], default_response_class=Response)

    @router.get(
        "",
        summary="List dead letters",
        responses=cached("StoredJobs") | failing("malformed", "not-supported", "store"),
    )
    async def list_dead(
        request: Request,
        service: Annotated[str | None, Query(description="only those of this service")] = None,
        limit: Annotated[int, Query(description="rows in the answer", ge=1, le=MOST_ROWS)] = ROWS,
        page: Annotated[str | None, Query(description="the `next` of a page")] = None,
    ) -> Response:
        """Newest first."""
        _keeps()
        found = await ask(server, "show_dead_letters", service=service, limit=limit, page=page)
        return show(request, dated(found))

    @router.get(
        "/{id}",
        summary="See a dead letter",
        responses=cached("StoredJob") | failing("malformed", "not-found", "not-supported", "store"),
    )
    async def show_dead(request: Request, id: Id) -> Response:
        """Its request, who had it, and what they said. Frames that are text are shown as text, others in hex."""
        await _dead(id)
        return show(request, dated(await _asked("show_stored_job", id)))

    @router.post(
        "/{id}/resend",
        summary="Send a dead letter again",
        responses=shows("Sent") | failing("malformed", "not-found", "conflict", "not-supported", "store"),
    )
    async def resend(id: Id) -> Response:
        """It waits for a worker again, under its old id: `/v1/jobs/{id}` has its result then."""
        await _dead(id)
        return show_now(await _asked("resend_job", id))

    @router.delete(
        "/{id}",
        summary="Forget a dead letter",
        status_code=204,
        responses=nothing("It is gone.")
        | failing("malformed", "not-found", "conflict", "not-supported", "store"),
    )
    async def forget(id: Id) -> Response:
        """For one that was dealt with in another way."""
        await _dead(id)
        await _asked("forget_job", id)
        return Response(status_code=204)

    def _keeps() -> None:
        if server.store is None:
            raise problem("not-supported", "this broker keeps no durable jobs: give it a folder (--data)")

    async def _dead(id: str) -> None:
        _keeps()
        assert server.store is not None
        try:
            record: JobRecord | None = None if "\0" in id else await server.store.get(id)
        except StoreError as error:
            raise store_problem(error) from error
        if record is None or record.state != DEAD:
            raise problem("not-found", f"there is no dead letter {id[:100]!r}")

    async def _asked(task: str, id: str) -> Any:
        try:
            return await ask(server, task, id)
        except ValueError as error:  # it has become something else meanwhile
            raise problem("conflict", str(error)) from error

    return router
