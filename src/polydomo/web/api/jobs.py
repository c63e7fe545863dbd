"""Jobs: submit, list, show, get the result, cancel."""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from heapq import nlargest
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from polydomo.core.names import parse_name
from polydomo.core.principals import CANCEL, READ, Principal
from polydomo.core.result_history import JobResult
from polydomo.core.states import ENDS
from polydomo.core.tracked_job import TrackedJob
from polydomo.server.job_tasks import find_visible
from polydomo.services.authorizer import View
from polydomo.services.slices import chunks
from polydomo.store.records import JobFilter
from polydomo.web.api import openapi, request_options, times, views
from polydomo.web.api.bodies import JSON, media_type, read_body
from polydomo.web.api.job_results import load_result, unknown_job
from polydomo.web.api.json_responses import json_uncached, matches_etag, store_errors, view_of
from polydomo.web.api.problems import problem
from polydomo.web.api.responses import job_response
from polydomo.web.api.schemas import TEXT, Field, array, examples, nullable, record
from polydomo.web.api.stream import EVENT_STREAM, event_stream
from polydomo.web.callers import caller_name, caller_of
from polydomo.web.clients import WebClients
from polydomo.web.connection import connection_of
from polydomo.web.pending import PendingJob

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

States = Literal["waiting", "delayed", "running", "done", "failed", "cancelled", "dead"]

# Seconds for `Retry-After` while there is no result.
RETRY_AFTER: Final = "1"

_SUBMITTING: Final = (
    "malformed",
    "bad-target",
    "too-large",
    "unsupported-media-type",
    "queue-full",
    "broker-full",
    "too-many-jobs",
    "quota",
    "worker-error",
    "retries-exhausted",
    "draining",
    "store",
    "expired",
    "deadline",
    "cancelled",
    "too-many-hops",
    "duplicate-id",
    "key-reused",
)

_JOB_CONTENT: Final = {JSON: {"schema": views.JOB, "example": views.EXAMPLE}}
_SHOWN: Final[openapi.ResponseDocs] = {200: {"description": "The job.", "content": _JOB_CONTENT}}


def make_router(server: BrokerServer, clients: WebClients) -> APIRouter:
    """Return the routes for jobs."""
    router = APIRouter(prefix="/v1", tags=["jobs"], default_response_class=Response)
    broker = server.broker

    @router.post(
        "/services/{service:path}/jobs",
        summary="Submit a job",
        responses=_result_docs() | _accepted() | openapi.failing(*_SUBMITTING),
        openapi_extra={
            "parameters": [
                request_options.SERVICE,
                *request_options.OPTIONS,
                request_options.KEY,
                request_options.PREFER,
            ],
            **openapi.frames_body(),
        },
    )
    async def submit(request: Request) -> Response:
        """Submit a job. With `Prefer: wait` the response is the result, if the job ends in time. Otherwise 202 says
        that the job is accepted (a durable one is on disk) and gives its path. With `Accept: text/event-stream` the
        response is a stream of the job's events. With a `target` of several workers the result is a JSON list with an
        item for each worker, or `multipart/mixed` if that is preferred."""
        scope = request.scope
        headers = request_options.headers_of(scope)
        durable = server.settings.http.durable and server.store is not None
        options = request_options.options_of(scope["query_string"], headers, durable)
        name = request_options.client_of(scope, headers)
        service = parse_name(scope["path_params"]["service"])
        body = await read_body(request)
        accept = headers.get(b"accept", b"").decode("latin-1")
        client = clients.get(name, caller_name(scope))
        if client.stalled:
            await client.wait_for_room(server.settings.http.patience)
        connection = connection_of(scope)
        connection.release_body()  # the core counts it from here on
        pending = client.submit(service, body, options)
        if EVENT_STREAM in accept:
            return event_stream(server, pending, connection)
        wait = request_options.preferred_wait(headers.get(b"prefer"), server.settings.http.patience)
        if wait is None:
            return await _await_acceptance(pending, service, accept)
        return await _await_result(request, pending, service, wait, accept)

    # The route above is for the OpenAPI document; this one is found first and bypasses FastAPI's parameter handling.
    router.routes.insert(
        0, Route("/v1/services/{service:path}/jobs", submit, methods=["POST"], include_in_schema=False)
    )

    @router.get("/jobs", summary="List jobs", responses=_listed() | openapi.failing("store"))
    async def list_jobs(
        request: Request,
        service: openapi.ServiceFilter = None,
        state: Annotated[States | None, Query(description="only those in this state")] = None,
        client: Annotated[str | None, Query(description="only those of this client")] = None,
        key: Annotated[str | None, Query(description="only the one with this idempotency key")] = None,
        since: Annotated[
            str | None,
            Query(
                description="submitted then or later: RFC 3339, or seconds since 1970",
                examples=["2026-01-31T12:00:00Z"],
            ),
        ] = None,
        before: Annotated[str | None, Query(description="submitted earlier")] = None,
        where: Annotated[
            Literal["store", "memory"] | None,
            Query(description="durable jobs, or unfinished jobs that are in memory only"),
        ] = None,
        limit: openapi.Limit = openapi.ROWS,
        page: openapi.Page = None,
    ) -> Response:
        """List jobs of all protocols that have an id, newest first. Without a store, all jobs are in memory."""
        if key is not None and "\0" in key:
            raise problem("malformed", "a key must not contain NUL")
        wanted = JobFilter(
            service=None if service is None else parse_name(service),
            state=state,
            client=None if client is None else parse_name(client),
            key=None if key is None else key.encode().decode("latin-1"),
            since=_micros("since", since),
            before=_micros("before", before),
            limit=limit,
            page=page,
        )
        view = view_of(server, request)
        if server.store is None or where == "memory":
            rows, following = await _in_memory(view, wanted)
        else:
            with store_errors():
                found = await find_visible(server.store, broker.services, view, wanted)
            rows, following = [views.stored_job(job) for job in found.jobs], found.next
        response = json_uncached({"jobs": rows, "next": following})
        if following is not None:
            query = [(one, text) for one, text in request.query_params.multi_items() if one != "page"]
            response.headers["link"] = f'</v1/jobs?{urlencode([*query, ("page", following)])}>; rel="next"'
        return response

    @router.get("/jobs/{id}", summary="Show a job", responses=_SHOWN | openapi.failing("store"))
    async def show_job(request: Request, id: openapi.JobId) -> Response:
        """Show the state of a job."""
        return json_uncached(await _find(caller_of(broker, request.scope), id))

    @router.get(
        "/jobs/{id}/result",
        summary="Get a job's result",
        responses=_result_docs()
        | _accepted("The job has not ended.")
        | openapi.cached()
        | openapi.failing(*_SUBMITTING),
        openapi_extra={"parameters": [request_options.PREFER]},
    )
    async def result(request: Request, id: openapi.JobId) -> Response:
        """Return the result's body, or the problem that the job failed with; 202 while it has not ended. `Prefer: wait`
        waits for the end. A result never changes, and its `ETag` is a hash of it."""
        headers = request_options.headers_of(request.scope)
        wait = request_options.preferred_wait(headers.get(b"prefer"), server.settings.http.patience)
        server.advance()
        caller = caller_of(broker, request.scope)
        job = broker.jobs.job_for(caller, id, READ)
        if job is not None and wait and not clients.closing:
            await clients.wait_ended(job, wait)
            job = broker.jobs.job_for(caller, id, READ)
        if job is not None:
            return _not_ended(job, wait)
        return _result(request, await load_result(clients, caller, id, connection_of(request.scope)))

    @router.delete(
        "/jobs/{id}",
        summary="Cancel a job",
        responses=openapi.failing("conflict", "store") | openapi.no_content("The job is cancelled."),
    )
    async def cancel(request: Request, id: openapi.JobId) -> Response:
        """Cancel a job. A waiting job is not run; a running one is revoked from its worker, which is notified if its
        protocol allows that. A job that has ended is not changed."""
        server.advance()
        caller = caller_of(broker, request.scope)
        job = broker.jobs.job_for(caller, id, CANCEL)
        if job is None:
            await _find(caller, id, CANCEL)
            raise problem("conflict", "the job has ended")
        if not broker.cancel(job):
            raise problem(
                "conflict", f"the job is {views.state_of(job)} and cannot be cancelled at the moment"
            )
        await clients.wait_ended(job, server.settings.http.patience)
        return Response(status_code=204)

    async def _await_acceptance(pending: PendingJob, service: bytes, accept: str) -> Response:
        """Return 202 as soon as the job is accepted. The broker's own services have no such jobs: return the result."""
        timeout = server.settings.http.patience
        job = pending.job
        if job is not None and not isinstance(job, TrackedJob):
            await pending.outcome(timeout)
        elif not pending.accepted:
            await pending.acceptance(timeout)
        if pending.ended is not None and not pending.accepted:
            return job_response(pending.ended, accept, {})
        return _accepted_response(pending, service, {})

    async def _await_result(
        request: Request, pending: PendingJob, service: bytes, wait: float, accept: str
    ) -> Response:
        ended = pending.ended
        if ended is None:
            connection = connection_of(request.scope)
            connection.on_disconnect = pending.abandon
            ended = await pending.outcome(wait)
            connection.on_disconnect = None
        if ended is None and not pending.accepted:  # the wait was shorter than the commit
            await pending.acceptance(server.settings.http.patience)
            ended = pending.ended
        headers = {"preference-applied": f"wait={wait:g}"}
        if ended is None:
            return _accepted_response(pending, service, headers)
        job = pending.job
        if job is not None and isinstance(job, TrackedJob) and job.durable:
            headers["content-location"] = f"{views.path_of(pending.uid)}/result"
        else:
            broker.store_events.forget_result(pending.uid)  # delivered: it will not be requested again
        return job_response(ended, accept, headers)

    def _accepted_response(pending: PendingJob, service: bytes, headers: dict[str, str]) -> Response:
        """Return 202 for an accepted job; raise HttpProblem if it is not known to be accepted."""
        job = pending.job
        try:
            if job is not None and not isinstance(job, TrackedJob):
                raise problem("expired", "there was no reply in time")
            if not pending.accepted:
                raise problem("store", "the job is not stored yet; submit it again with an idempotency key")
            if job is not None and pending.ended is None:
                described = views.active_job(broker, job)
            else:
                failure = None if pending.ended is None else pending.ended.failure
                described = views.ended_job(pending.uid, service, failure)
        finally:
            pending.detach()
        response = json_uncached(described, 202)
        response.headers.update({"location": views.path_of(pending.uid), **headers})
        return response

    def _not_ended(job: TrackedJob, wait: float | None) -> Response:
        response = json_uncached(views.active_job(broker, job), 202)
        response.headers["retry-after"] = RETRY_AFTER
        if wait is not None:
            response.headers["preference-applied"] = f"wait={wait:g}"
        return response

    async def _find(caller: Principal, id: str, verb: str = READ) -> dict[str, Any]:
        """Return the document of a job; raise HttpProblem if it is unknown to its caller."""
        server.advance()
        job = broker.jobs.job_for(caller, id, verb)
        if job is not None:
            return views.active_job(broker, job)
        if server.store is not None and "\0" not in id:
            with store_errors():
                stored = await server.store.get(id)
            if stored is not None and broker.jobs.may(caller, verb, stored.principal, stored.service):
                return views.stored_job(stored)
        ended = broker.jobs.result_for(caller, id, verb)
        if ended is None:
            raise unknown_job(id)
        return views.finished_job(ended)

    async def _in_memory(view: View, wanted: JobFilter) -> tuple[list[dict[str, Any]], str | None]:
        """Return a page of jobs in memory, ordered by the core's increasing numbers, and the next page."""
        below = None if wanted.page is None else _page_number(wanted.page)
        found: list[TrackedJob] = []
        for chunk in chunks(list(broker.jobs.known.items())):
            fitting = [
                job
                for uid, job in chunk
                if job.uid == uid
                and not (job.durable and server.store is not None)
                and (below is None or job.id < below)
                and _fits(job, wanted)
                and view.job(job.owner(), job.requested_service)
            ]
            found = nlargest(wanted.limit + 1, [*found, *fitting], key=lambda job: job.id)
            await asyncio.sleep(0)
        found = [job for job in found if job.state not in ENDS]
        rows = [views.active_job(broker, job) for job in found[: wanted.limit]]
        more = len(found) > wanted.limit
        return rows, str(found[wanted.limit - 1].id) if more else None

    return router


def _fits(job: TrackedJob, wanted: JobFilter) -> bool:
    return (
        wanted.service in (None, job.service.name)
        and wanted.state in (None, views.state_of(job))
        and wanted.client in (None, job.client.name)
        and (wanted.key is None or wanted.key.encode("latin-1") == job.key)
        and (wanted.since is None or job.submitted_wall >= wanted.since)
        and (wanted.before is None or job.submitted_wall < wanted.before)
    )


def _result(request: Request, ended: JobResult) -> Response:
    response = job_response(ended, request.headers.get("accept"), {})
    # A strong tag of the body and its media type, not of the bytes sent: a multipart boundary is random.
    kind = media_type(response.headers["content-type"]).encode()
    tag = f'"{blake2b(ended.body or b"", digest_size=16, person=kind[:16]).hexdigest()}"'
    headers = {"etag": tag, "cache-control": "private, immutable", "vary": "accept"}
    if matches_etag(request, tag):
        return Response(status_code=304, headers=headers)
    response.headers.update(headers)
    return response


def _micros(name: str, text: str | None) -> int | None:
    """Parse a time in a query."""
    if text is None:
        return None
    try:
        return times.parse_time(text)
    except ValueError:
        raise problem(
            "malformed", f"{name} is not a time: {text[:40]!r}; write 2026-01-31T12:00:00Z"
        ) from None


def _page_number(page: str) -> int:
    if not page.isascii() or not page.isdigit() or len(page) > 18:
        raise problem("malformed", f"{page[:40]!r} is not a page of this list; use the `next` of a page")
    return int(page)


def _result_docs() -> openapi.ResponseDocs:
    others = {JSON: {"schema": {}}, EVENT_STREAM: {"schema": TEXT}, "text/plain": {"schema": TEXT}}
    return {200: {"description": "The result's body.", "content": openapi.ANY_CONTENT | others}}


def _accepted(text: str = "The job is accepted; `Location` is its path.") -> openapi.ResponseDocs:
    return {202: {"description": text, "content": _JOB_CONTENT}}


def _listed() -> openapi.ResponseDocs:
    fields = {"jobs": Field(array(views.JOB), [views.EXAMPLE]), "next": Field(nullable(TEXT), None)}
    content = {JSON: {"schema": record("Jobs", fields), "example": examples(fields)}}
    return {200: {"description": "Jobs.", "content": content}}
