"""Jobs: submit one, see how it goes, have its result, cancel it."""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from heapq import nlargest
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from polydomo.core.job import ENDS, Job
from polydomo.core.names import parse_name
from polydomo.core.result_history import JobResult
from polydomo.services.slices import chunks
from polydomo.store.errors import StoreError
from polydomo.store.records import JobFilter
from polydomo.web.api import request_options, times, views
from polydomo.web.api.bodies import read_body
from polydomo.web.api.job_results import ended_of
from polydomo.web.api.json_responses import JSON, MOST_ROWS, ROWS, show_now, store_problem, unchanged
from polydomo.web.api.openapi import Answers, Doc, cached, failing
from polydomo.web.api.problems import problem
from polydomo.web.api.responses import answer
from polydomo.web.api.stream import EVENT_STREAM, stream_of
from polydomo.web.clients import Outcome, PendingJob, WebClients
from polydomo.web.connection import connection_of

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

States = Literal["waiting", "delayed", "running", "done", "failed", "cancelled", "dead"]
Id = Annotated[str, Path(description="the job's id", min_length=1, max_length=255)]

# When to ask again for a result that is not there.
ASK_AGAIN: Final = "1"

_SUBMITTING: Final = (
    "malformed",
    "bad-target",
    "too-large",
    "unsupported-media-type",
    "queue-full",
    "broker-full",
    "too-many-jobs",
    "worker-error",
    "retries-exhausted",
    "draining",
    "store",
    "expired",
    "deadline",
    "cancelled",
    "too-many-hops",
    "duplicate-id",
)


def make_router(server: BrokerServer, clients: WebClients) -> APIRouter:
    """See the module's text."""
    router = APIRouter(prefix="/v1", tags=["jobs"])
    broker = server.broker

    @router.post(
        "/services/{service:path}/jobs",
        summary="Submit a job",
        status_code=200,
        responses=_answered() | _accepted() | failing(*_SUBMITTING),
        openapi_extra={
            "parameters": [
                request_options.SERVICE,
                *request_options.OPTIONS,
                request_options.KEY,
                request_options.PREFER,
            ],
            "requestBody": {
                "description": "one frame as it is, or several as `multipart/mixed`",
                "required": False,
                "content": Doc.ANY,
            },
        },
    )
    async def submit(request: Request) -> Response:
        """With `Prefer: wait` the answer comes at once if it comes in time. Otherwise, and without it, 202 says that
        the job is accepted (if it is durable: on disk) and where it is. `Accept: text/event-stream`: all that happens
        to it, as it happens. With a `target` of several workers the answer is a JSON list with a member for each, or
        `multipart/mixed` if that is preferred."""
        scope = request.scope
        headers = request_options.headers_of(scope)
        durable = server.settings.http.durable and server.store is not None
        options = request_options.options_of(scope["query_string"], headers, durable)
        name = request_options.client_of(scope, headers)
        service = parse_name(scope["path_params"]["service"])
        body = await read_body(request)
        accept = headers.get(b"accept", b"").decode("latin-1")
        sender = clients.of(name)
        if sender.stalled:
            await sender.room(server.settings.http.patience)
        connection = connection_of(scope)
        if connection is not None:
            connection.release_body()  # the core counts it from here on
        ticket = sender.submit(service, body, options)
        if EVENT_STREAM in accept:
            return stream_of(server, ticket, connection)
        patience = request_options.patience_of(headers.get(b"prefer"), server.settings.http.patience)
        if patience is None:
            return await _take(ticket, service, accept)
        return await _wait(request, ticket, service, patience, accept)

    # The route above is for the document; this one, found first, does without the framework's care for parameters.
    router.routes.insert(
        0, Route("/v1/services/{service:path}/jobs", submit, methods=["POST"], include_in_schema=False)
    )

    @router.get("/jobs", summary="List jobs", responses=_listed() | failing("malformed", "store"))
    async def list_jobs(
        request: Request,
        service: Annotated[str | None, Query(description="only those of this service")] = None,
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
            Query(description="durable jobs, or those that live in memory only (and have not ended)"),
        ] = None,
        limit: Annotated[int, Query(description="rows in the answer", ge=1, le=MOST_ROWS)] = ROWS,
        page: Annotated[str | None, Query(description="the `next` of a page")] = None,
    ) -> Response:
        """Newest first. Jobs of all protocols are here, as far as they have an id. Where nothing is kept on disk, all
        are in memory."""
        if key is not None and "\0" in key:
            raise problem("malformed", "a key has no NUL character")
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
        if server.store is None or where == "memory":
            rows, following = await _in_memory(wanted)
        else:
            try:
                found = await server.store.find(wanted)
            except StoreError as error:
                raise store_problem(error) from error
            rows, following = [views.stored(job) for job in found.jobs], found.next
        response = show_now({"jobs": rows, "next": following})
        if following is not None:
            query = [(one, text) for one, text in request.query_params.multi_items() if one != "page"]
            response.headers["link"] = f'</v1/jobs?{urlencode([*query, ("page", following)])}>; rel="next"'
        return response

    @router.get(
        "/jobs/{id}", summary="See a job", responses=_shown() | failing("malformed", "not-found", "store")
    )
    async def show_job(id: Id) -> Response:
        """How it goes, or went."""
        found = await _look(id)
        if found is None:
            raise _unknown(id)
        return show_now(found)

    @router.get(
        "/jobs/{id}/result",
        summary="Have a job's result",
        responses=_answered()
        | _accepted("It has not ended yet.")
        | cached()
        | failing("not-found", *_SUBMITTING),
        openapi_extra={"parameters": [request_options.PREFER]},
    )
    async def result(request: Request, id: Id) -> Response:
        """The answer's body, or the problem that the job failed with. 202 while it has not ended; `Prefer: wait` waits
        for its end. What it is never changes, and its `ETag` is a hash of it."""
        headers = request_options.headers_of(request.scope)
        patience = request_options.patience_of(headers.get(b"prefer"), server.settings.http.patience)
        server.enter()
        job = broker.find(id)
        if job is not None and patience and not clients.closing:
            await clients.end_of(job, patience)
            job = broker.find(id)
        if job is not None:
            return _not_yet(job, patience)
        ended = await ended_of(clients, id, connection_of(request.scope))
        if ended is None:
            raise _unknown(id)
        return _result(request, ended)

    @router.delete(
        "/jobs/{id}",
        summary="Cancel a job",
        status_code=204,
        responses=failing("malformed", "not-found", "conflict", "store")
        | {204: {"description": "It is cancelled."}},
    )
    async def cancel(id: Id) -> Response:
        """One that waits is not run; one that runs is taken from its worker, which is told if its protocol can. What
        has ended stays as it is."""
        server.enter()
        job = broker.find(id)
        if job is None:
            if await _look(id) is None:
                raise _unknown(id)
            raise problem("conflict", "it has ended")
        if not broker.lifecycle.cancel(job):
            raise problem("conflict", f"it is {views.state_of(job)}, and cannot be cancelled at this moment")
        await clients.end_of(job, server.settings.http.patience)
        return Response(status_code=204)

    async def _take(ticket: PendingJob, service: bytes, accept: str) -> Response:
        """202 as soon as it is safe. The broker's own services answer by themselves, and keep nothing."""
        patience = server.settings.http.patience
        job = ticket.job
        if job is not None and job.extra is None:
            await ticket.outcome(patience)
        elif not ticket.accepted:
            await ticket.acceptance(patience)
        ended = ticket.ended
        if ended is not None and not ticket.accepted:
            return answer(ended, accept, {})
        return _later(ticket, service, {})

    async def _wait(
        request: Request, ticket: PendingJob, service: bytes, patience: float, accept: str
    ) -> Response:
        outcome = ticket.ended
        if outcome is None:
            connection = connection_of(request.scope)
            if connection is not None:
                connection.on_gone = ticket.abandon
            outcome = await ticket.outcome(patience)
            if connection is not None:
                connection.on_gone = None
        if outcome is None and not ticket.accepted:  # a wait that was shorter than the disk's
            await ticket.acceptance(server.settings.http.patience)
            outcome = ticket.ended
        if outcome is None:
            return _later(ticket, service, {"preference-applied": f"wait={patience:g}"})
        applied = {"preference-applied": f"wait={patience:g}"}
        job = ticket.job
        if job is not None and job.extra is not None and job.extra.durable:
            applied["content-location"] = f"{views.path_of(ticket.uid)}/result"
        else:
            broker.lifecycle.results.drop(ticket.uid)  # it is here: nobody will ask for it again
        return answer(outcome, accept, applied)

    def _later(ticket: PendingJob, service: bytes, headers: dict[str, str]) -> Response:
        """It is accepted, and goes on."""
        job = ticket.job
        if job is not None and job.extra is None:
            ticket.let_go()
            raise problem("expired", "there was no answer in time")
        if not ticket.accepted:
            ticket.let_go()
            raise problem(
                "store", "it is not yet known if the job is safe; ask again with an idempotency key"
            )
        if job is not None and ticket.ended is None:
            described = views.living(broker, job)
        else:
            failure = None if ticket.ended is None else ticket.ended.failure
            described = views.refused_or_over(ticket.uid, service, failure)
        ticket.let_go()
        response = show_now(described, 202)
        response.headers.update({"location": views.path_of(ticket.uid), **headers})
        return response

    def _not_yet(job: Job, patience: float | None) -> Response:
        response = show_now(views.living(broker, job), 202)
        response.headers["retry-after"] = ASK_AGAIN
        if patience is not None:
            response.headers["preference-applied"] = f"wait={patience:g}"
        return response

    async def _look(id: str) -> dict[str, Any] | None:
        server.enter()
        job = broker.find(id)
        if job is not None:
            return views.living(broker, job)
        if server.store is not None and "\0" not in id:
            try:
                record = await server.store.get(id)
            except StoreError as error:
                raise store_problem(error) from error
            if record is not None:
                return views.stored(record)
        ended = broker.lifecycle.results.get(id, broker.now)
        return None if ended is None else views.remembered(ended)

    async def _in_memory(wanted: JobFilter) -> tuple[list[dict[str, Any]], str | None]:
        """By the core's own numbers, which grow."""
        behind = None if wanted.page is None else _number(wanted.page)
        found: list[Job] = []
        for chunk in chunks(list(broker.lifecycle.jobs.items())):
            fitting = [
                job
                for uid, job in chunk
                if job.extra is not None
                and job.extra.uid == uid
                and not (job.extra.durable and server.store is not None)
                and (behind is None or job.id < behind)
                and _fits(job, wanted)
            ]
            found = nlargest(wanted.limit + 1, [*found, *fitting], key=lambda job: job.id)
            await asyncio.sleep(0)
        found = [job for job in found if job.state not in ENDS]
        rows = [views.living(broker, job) for job in found[: wanted.limit]]
        more = len(found) > wanted.limit
        return rows, str(found[wanted.limit - 1].id) if more else None

    return router


def _fits(job: Job, wanted: JobFilter) -> bool:
    extra = job.extra
    return (
        extra is not None
        and wanted.service in (None, job.service.name)
        and wanted.state in (None, views.state_of(job))
        and wanted.client in (None, job.client.name)
        and (wanted.key is None or wanted.key.encode("latin-1") == extra.key)
        and (wanted.since is None or extra.submitted >= wanted.since)
        and (wanted.before is None or extra.submitted < wanted.before)
    )


def _result(request: Request, ended: JobResult) -> Response:
    outcome = Outcome(ended.body, ended.failure, ended.gathered, ended.worker)
    response = answer(outcome, request.headers.get("accept"), {})
    if ended.failure is not None:
        return response
    name = f'"{_tag(ended.body or b"", response)}"'
    response.headers.update({"etag": name, "cache-control": "private, immutable", "vary": "accept"})
    if unchanged(request, name):
        kept = {one: response.headers[one] for one in ("etag", "cache-control", "vary")}
        return Response(status_code=304, headers=kept)
    return response


def _tag(body: bytes, response: Response) -> str:
    """A strong one: of the body, and the form it is shown in. (A multipart's boundary is another each time, so it is
    not of what is sent.)"""
    kind = response.headers["content-type"].partition(";")[0].encode()
    return blake2b(body, digest_size=16, person=kind[:16]).hexdigest()


def _micros(name: str, text: str | None) -> int | None:
    """A time in a query."""
    if text is None:
        return None
    try:
        return times.read(text)
    except ValueError:
        raise problem("malformed", f"{name} is no time: {text[:40]!r}; write 2026-01-31T12:00:00Z") from None


def _number(page: str) -> int:
    if not page.isascii() or not page.isdigit() or len(page) > 18:
        raise problem("malformed", f"{page[:40]!r} is no page of this list; use the `next` of a page")
    return int(page)


def _unknown(id: str) -> Exception:
    return problem("not-found", f"there is no job {id[:100]!r}, or it is not kept any more")


def _answered() -> Answers:
    many = {
        "application/json": {"schema": {}},
        **{one: Doc.ANY[one] for one in Doc.ANY if one != "application/json"},
    }
    many["text/event-stream"] = {"schema": {"type": "string"}}
    many["text/plain"] = {"schema": {"type": "string"}}
    return {200: {"description": "The answer's body.", "content": many}}


def _accepted(text: str = "It is accepted, and where it is.") -> Answers:
    content = {JSON: {"schema": views.JOB, "example": views.EXAMPLE}}
    return {202: {"description": text, "content": content}}


def _shown() -> Answers:
    return {
        200: {"description": "The job.", "content": {JSON: {"schema": views.JOB, "example": views.EXAMPLE}}}
    }


def _listed() -> Answers:
    schema = {
        "type": "object",
        "properties": {"jobs": {"type": "array", "items": views.JOB}, "next": {"type": ["string", "null"]}},
        "required": ["jobs", "next"],
    }
    example = {"jobs": [views.EXAMPLE], "next": None}
    return {200: {"description": "Jobs.", "content": {JSON: {"schema": schema, "example": example}}}}
