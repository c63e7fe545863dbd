"""Work over HTTP: poll for a job, report progress, return the result.

`POST /v1/workers/poll` waits until there is a job for one of the given services. The response is the job's body;
`Location` is the path of the attempt, where the worker reports progress, and a PUT of its `result` ends it. Reports on
a revoked attempt (too slow, cancelled) get 410: drop the job and continue. The path is the worker's credential for the
attempt, and valid for requests of the same principal only.

A worker may poll for several jobs at once. A worker that does not poll and holds no job is removed after
`http.worker_idle`, so it need not deregister.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from polydomo.core.failure import DENIED, WORKER_ERROR, Failure
from polydomo.core.model import Job
from polydomo.core.names import parse_name
from polydomo.core.tracked_job import TrackedJob
from polydomo.web.api import openapi
from polydomo.web.api.bodies import JSON, read_body, read_bytes, write_body
from polydomo.web.api.body_json import json_or_none
from polydomo.web.api.problems import problem
from polydomo.web.api.request_options import NAME_MAX
from polydomo.web.api.responses import header_value
from polydomo.web.api.schemas import SECONDS, TEXT, Field, array, examples, nullable, record
from polydomo.web.attempt_keys import token_in
from polydomo.web.callers import caller_name, caller_site
from polydomo.web.connection import HttpConnection, connection_of
from polydomo.web.polling import (
    NameRefused,
    OfferDenied,
    OfferRefused,
    Poll,
    PollingWorker,
    PollingWorkers,
    TooManyPolls,
)
from polydomo.wire.frames import EMPTY_BODY, frame

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

Token = Annotated[
    str, Path(description="the attempt's credential, from `Location`", min_length=1, max_length=64)
]

# Limit of a poll request and of a failure's details, in bytes.
REQUEST_MAX: Final = 64 * 1024

_RECEIVED: Final = openapi.no_content("The report was received.")
_REPORTING: Final = ("superseded", "too-large", "unsupported-media-type")
_NAME: Final = {**TEXT, "minLength": 1, "maxLength": NAME_MAX}
_POLL_FIELDS: Final = {
    "services": Field({**array(_NAME), "minItems": 1}, ["echo"], "the services it offers"),
    "worker": Field(nullable(_NAME), "w1", "its name; by default one is generated, see `Polydomo-Worker`"),
    "wait": Field({**nullable(SECONDS), "minimum": 0}, 30, "seconds; by default and at most `http.patience`"),
}
_POLL_SCHEMA: Final = record("A poll", _POLL_FIELDS) | {
    "required": ["services"],
    "additionalProperties": False,
}
_POLL_CONTENT: Final = {JSON: {"schema": _POLL_SCHEMA, "example": examples(_POLL_FIELDS)}}
_FAILURE_EXAMPLE: Final = {"message": "no such customer", "kind": "LookupError"}
_FAILURE_CONTENT: Final = {
    JSON: {"schema": {"type": "object"}, "example": _FAILURE_EXAMPLE},
    "text/plain": {"schema": TEXT},
}


class _PollRequest(msgspec.Struct, forbid_unknown_fields=True):
    services: list[str]
    worker: str | None = None
    wait: float | None = None


_polls = msgspec.json.Decoder(_PollRequest)


def make_router(server: BrokerServer, workers: PollingWorkers) -> APIRouter:
    """Return the routes for workers."""
    router = APIRouter(prefix="/v1", tags=["worker"], default_response_class=Response)

    @router.post(
        "/workers/poll",
        summary="Poll for a job",
        responses=_job_docs()
        | openapi.no_content("There was no job.")
        | openapi.failing("malformed", "not-allowed", "conflict", "too-many-requests", "too-large"),
        openapi_extra=openapi.request_body("the worker and its services", _POLL_CONTENT, required=True),
    )
    async def poll(request: Request) -> Response:
        """Wait for a job. 204 means that there was none: poll again."""
        given = _parse_poll(await read_bytes(request, REQUEST_MAX))
        name = None if given.worker is None else parse_name(given.worker)
        try:
            worker = workers.get(
                name,
                [parse_name(one) for one in given.services],
                caller_name(request.scope),
                site=caller_site(request.scope),
            )
        except NameRefused as error:
            raise problem("conflict", str(error)) from None
        except OfferDenied as error:
            raise problem(DENIED, str(error)) from None
        except OfferRefused as error:
            raise problem("not-allowed", str(error)) from None
        return await _next_job(request, worker, given.wait)

    @router.post(
        "/attempts/{token}/partials",
        summary="Send a partial result",
        responses=_RECEIVED | openapi.failing(*_REPORTING),
        openapi_extra=openapi.frames_body(),
    )
    async def partial(request: Request, token: Token) -> Response:
        """Send a partial result; the final result comes last."""
        body = await read_body(request)
        return _received(_holder(request, token).partial(_token(token), body))

    @router.post(
        "/attempts/{token}/events",
        summary="Report progress",
        responses=_RECEIVED | openapi.failing(*_REPORTING),
        openapi_extra=openapi.frames_body(),
    )
    async def event(
        request: Request,
        token: Token,
        kind: Annotated[
            str, Query(description="the event's kind", min_length=1, max_length=100)
        ] = "progress",
    ) -> Response:
        """Send an event to those who follow the job; it is not part of the result."""
        body = await read_bytes(request, server.settings.limits.message_bytes)
        return _received(_holder(request, token).event(_token(token), kind, body))

    @router.post(
        "/attempts/{token}/heartbeat",
        summary="Send a heartbeat",
        responses=_RECEIVED | openapi.failing("superseded"),
    )
    async def heartbeat(request: Request, token: Token) -> Response:
        """Show that the worker is alive. After the first heartbeat, a job is requeued if its worker is silent for
        `http.worker_idle`. 410: the attempt was revoked."""
        return _received(_holder(request, token).keep_alive(_token(token)))

    @router.put(
        "/attempts/{token}/result",
        summary="Return the result",
        responses=_RECEIVED | _job_docs() | openapi.failing(*_REPORTING, "too-many-requests"),
        openapi_extra=openapi.frames_body(),
    )
    async def result(
        request: Request,
        token: Token,
        next: Annotated[
            float | None, Query(description="poll for the next job, waiting this many seconds", ge=0)
        ] = None,
    ) -> Response:
        """End the job with this result. With `next` the response is that of a poll."""
        body = await read_body(request)
        worker = _holder(request, token)
        received = _received(worker.result(_token(token), body))
        return received if next is None else await _next_job(request, worker, next)

    @router.put(
        "/attempts/{token}/failure",
        summary="Fail a job",
        responses=_RECEIVED | openapi.failing(*_REPORTING),
        openapi_extra=openapi.request_body(
            "a text, or JSON with optional `message`, `kind` and `traceback`", _FAILURE_CONTENT
        ),
    )
    async def failure(request: Request, token: Token) -> Response:
        """End the job with a failure, which the client gets. The job is not retried."""
        details = await read_bytes(request, REQUEST_MAX)
        return _received(_holder(request, token).failure(_token(token), failure_of(details)))

    @router.delete(
        "/workers/{name:path}",
        summary="Remove a worker",
        responses=openapi.no_content("The worker is removed."),
    )
    async def leave(
        request: Request,
        name: Annotated[
            str, Path(description="the worker's name", min_length=1, max_length=2 + 2 * NAME_MAX)
        ],
    ) -> Response:
        """Remove a worker that polls over HTTP; its jobs go to others."""
        worker = workers.find(parse_name(name), caller_name(request.scope))
        if worker is None:
            raise problem("not-found", f"there is no worker {name[:100]!r} that polls over HTTP")
        worker.leave()
        return Response(status_code=204)

    async def _next_job(request: Request, worker: PollingWorker, wait: float | None) -> Response:
        """Return the worker's next job, or 204."""
        most = server.settings.http.patience
        poll = open_poll(worker, connection_of(request.scope))
        await worker.wait(poll, most if wait is None else min(wait, most))
        name = {"polydomo-worker": header_value(worker.name)}
        job = poll.job
        if job is None:
            return Response(status_code=204, headers=name)
        return _job_response(job, poll.credential, request.headers.get("accept"), name)

    def _holder(request: Request, token: str) -> PollingWorker:
        scope = request.scope
        worker = workers.holder(token.encode(), caller_name(scope), caller_site(scope))
        if worker is None:
            raise _superseded()
        return worker

    return router


def open_poll(worker: PollingWorker, connection: HttpConnection) -> Poll:
    """Open a poll that is withdrawn if the connection is lost before the response is written."""
    try:
        poll = worker.open()
    except TooManyPolls as error:
        raise problem("too-many-requests", str(error)) from None
    connection.on_disconnect = lambda: worker.withdraw(poll)
    return poll


def failure_of(details: bytes) -> Failure:
    """Return the failure that a worker reports.

    Its detail has the form that our SDK's clients know (`dialects.native_failure`); others get the body unchanged.
    """
    account: dict[str, Any] = {"reason": WORKER_ERROR}
    found = json_or_none(details)
    if not isinstance(found, dict):
        found = {"message": details.decode(errors="replace")} if details else {}
    for name in ("message", "kind", "traceback"):
        value = found.get(name)
        if value is not None:
            account[name] = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    message = account.setdefault("message", "the worker failed the job")
    body = frame(details) if details else EMPTY_BODY
    return Failure(WORKER_ERROR, message, body, msgspec.json.encode(account))


def _job_response(job: Job, credential: bytes, accept: str | None, headers: dict[str, str]) -> Response:
    kind, data = write_body(job.body, accept)
    headers["location"] = "/v1/attempts/" + quote(credential.decode())
    headers["polydomo-service"] = header_value(job.service.name)
    if isinstance(job, TrackedJob):
        headers["polydomo-job"] = header_value(job.uid.encode())
    limit = job.attempt_timeout or job.service.policy.timeout
    headers["polydomo-timeout"] = f"{limit:g}"
    return Response(data, 200, headers, kind)


def _token(credential: str) -> bytes:
    """Return the core's token of an attempt."""
    return token_in(credential.encode())


def _received(known: bool) -> Response:
    if not known:
        raise _superseded()
    return Response(status_code=204)


def _superseded() -> Exception:
    return problem("superseded", "the attempt was revoked, has ended, or does not exist")


def _parse_poll(data: bytes) -> _PollRequest:
    try:
        given = _polls.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise problem("malformed", f"the body must be a JSON object with `services`: {error}") from None
    if given.worker is not None and not 0 < len(parse_name(given.worker)) <= NAME_MAX:
        raise problem("malformed", f"a worker's name has 1 to {NAME_MAX} bytes")
    if given.wait is not None and not given.wait >= 0:
        raise problem("malformed", f"wait must not be negative, but is {given.wait!r}")
    return given


def _job_docs() -> openapi.ResponseDocs:
    texts = {
        "Location": "the path of the attempt",
        "Polydomo-Job": "the job's id, if it has one",
        "Polydomo-Service": "the job's service",
        "Polydomo-Worker": "the worker's name",
        "Polydomo-Timeout": "the attempt's timeout in seconds",
    }
    heads = {name: {"description": text, "schema": TEXT} for name, text in texts.items()}
    return {200: {"description": "The body of a job.", "headers": heads, "content": openapi.ANY_CONTENT}}
