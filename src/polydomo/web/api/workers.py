"""Be a worker over HTTP: ask for a job, say how it goes, answer it.

`POST /v1/workers/poll` waits until there is a job for one of the services it names. The job's body comes as it is;
`Location` is the attempt, where the worker says all that is to be said about it, and a PUT of its `result` ends it. An
attempt that was taken from its worker (too slow, cancelled) is answered with 410: drop the job and go on.

A worker that polls for several jobs at once gets as many. One that does not poll and holds nothing is forgotten after
`http.worker_idle`; there is no need to say goodbye.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from polydomo.core.job import WORKER_ERROR, Failure, Job
from polydomo.core.names import parse_name
from polydomo.web.api.bodies import read_body, read_bytes, write_body
from polydomo.web.api.openapi import Answers, Doc, failing
from polydomo.web.api.problems import problem
from polydomo.web.api.responses import header
from polydomo.web.connection import connection_of
from polydomo.web.polling import Crowded, PollingWorker, PollingWorkers, Unwilling
from polydomo.wire.frames import EMPTY_BODY, frame

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

Token = Annotated[str, Path(description="the attempt, from `Location`", min_length=1, max_length=64)]

# A worker's name, and a service's.
NAME_MAX: Final = 255

# What a worker may say about a failure, as text.
ACCOUNT_MAX: Final = 64 * 1024

_DONE: Final[Answers] = {204: {"description": "It is taken."}}
_OVER: Final = ("superseded", "malformed", "too-large", "unsupported-media-type")
_ANY_BODY: Final[dict[str, Any]] = {
    "requestBody": {"description": "one frame, or several", "required": False, "content": Doc.ANY}
}
_POLL: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "services": {
                            "type": "array",
                            "items": {"type": "string", "minLength": 1, "maxLength": NAME_MAX},
                            "minItems": 1,
                            "description": "what it can do",
                        },
                        "worker": {
                            "type": ["string", "null"],
                            "minLength": 1,
                            "maxLength": NAME_MAX,
                            "description": "its name; without one it gets one, see `Polydomo-Worker`",
                        },
                        "wait": {
                            "type": ["number", "null"],
                            "minimum": 0,
                            "description": "seconds; as long as `http.patience` at most, and by default",
                        },
                    },
                    "required": ["services"],
                    "additionalProperties": False,
                },
                "example": {"services": ["echo"], "worker": "w1", "wait": 30},
            }
        },
    }
}


class _Poll(msgspec.Struct, forbid_unknown_fields=True):
    services: list[str]
    worker: str | None = None
    wait: float | None = None


_polls = msgspec.json.Decoder(_Poll)


def make_router(server: BrokerServer, workers: PollingWorkers) -> APIRouter:
    """See the module's text."""
    router = APIRouter(prefix="/v1", tags=["worker"])

    @router.post(
        "/workers/poll",
        summary="Ask for a job",
        responses=_job() | failing("malformed", "not-allowed", "conflict", "too-many-requests", "too-large"),
        openapi_extra=_POLL,
    )
    async def poll(request: Request) -> Response:
        """200 is a job, 204 means that there was none: ask again."""
        said = _read(await read_bytes(request, ACCOUNT_MAX))
        anonymous = said.worker is None
        name = workers.new_name() if said.worker is None else parse_name(said.worker)
        try:
            worker = workers.get(name, [parse_name(one) for one in said.services], anonymous=anonymous)
        except Unwilling as error:
            raise problem("not-allowed", str(error)) from None
        return await _next(request, worker, said.wait)

    @router.post(
        "/attempts/{token}/partials",
        summary="Give a partial answer",
        status_code=204,
        responses=_DONE | failing(*_OVER),
        openapi_extra=_ANY_BODY,
    )
    async def partial(request: Request, token: Token) -> Response:
        """One of several answers; the result comes last."""
        body = await read_body(request)
        return _taken(_holder(token).partial(token.encode(), body))

    @router.post(
        "/attempts/{token}/events",
        summary="Say how it goes",
        status_code=204,
        responses=_DONE | failing(*_OVER),
        openapi_extra=_ANY_BODY,
    )
    async def event(
        request: Request,
        token: Token,
        kind: Annotated[
            str, Query(description="what kind of event", min_length=1, max_length=100)
        ] = "progress",
    ) -> Response:
        """For whoever follows the job; not part of its answer."""
        body = await read_bytes(request, server.settings.limits.message_bytes)
        return _taken(_holder(token).event(token.encode(), kind, body))

    @router.post(
        "/attempts/{token}/heartbeat",
        summary="Show that you are at it",
        status_code=204,
        responses=_DONE | failing("malformed", "superseded"),
    )
    async def heartbeat(token: Token) -> Response:
        """A worker that has sent one is expected to go on: if nothing is heard of it for `http.worker_idle`, its job
        goes to another. 410: the job is not wanted any more."""
        return _taken(_holder(token).heartbeat(token.encode()))

    @router.put(
        "/attempts/{token}/result",
        summary="Answer a job",
        status_code=204,
        responses=_DONE | _job(False) | failing(*_OVER, "too-many-requests"),
        openapi_extra=_ANY_BODY,
    )
    async def result(
        request: Request,
        token: Token,
        next: Annotated[
            float | None,
            Query(description="ask for the next job at once, and wait so many seconds for it", ge=0),
        ] = None,
    ) -> Response:
        """The job has ended; its client gets this. With `next` the answer is as that of a poll."""
        body = await read_body(request)
        worker = _holder(token)
        _taken(worker.result(token.encode(), body))
        if next is None:
            return Response(status_code=204)
        return await _next(request, worker, next)

    @router.put(
        "/attempts/{token}/failure",
        summary="Say that a job failed",
        status_code=204,
        responses=_DONE | failing(*_OVER),
        openapi_extra={
            "requestBody": {
                "description": "a text, or JSON with `message`, `kind` and `traceback` as one likes",
                "required": False,
                "content": {
                    "application/json": {
                        "schema": {"type": "object"},
                        "example": {"message": "no such customer", "kind": "LookupError"},
                    },
                    "text/plain": {"schema": {"type": "string"}},
                },
            }
        },
    )
    async def failure(request: Request, token: Token) -> Response:
        """It is not tried again: the worker has decided. Its client is told what stands here."""
        said = await read_bytes(request, ACCOUNT_MAX)
        return _taken(_holder(token).failure(token.encode(), failure_of(said)))

    @router.delete(
        "/workers/{name:path}",
        summary="Leave",
        status_code=204,
        responses=failing("malformed", "not-found") | {204: {"description": "It is gone."}},
    )
    async def leave(
        name: Annotated[
            str, Path(description="the worker's name", min_length=1, max_length=2 + 2 * NAME_MAX)
        ],
    ) -> Response:
        """A worker over HTTP comes no more; what it holds goes to others."""
        worker = workers.named(parse_name(name))
        if worker is None:
            raise problem("not-found", f"no worker {name[:100]!r} has asked for jobs over HTTP")
        worker.leave()
        return Response(status_code=204)

    async def _next(request: Request, worker: PollingWorker, wait: float | None) -> Response:
        """A job for it, or 204."""
        most = server.settings.http.patience
        connection = connection_of(request.scope)
        try:
            poll = worker.open()
        except Crowded as error:
            raise problem("too-many-requests", str(error)) from None
        if connection is not None:  # until the answer is with the connection
            connection.on_gone = lambda: worker.withdraw(poll)
        await worker.wait(poll, most if wait is None else min(wait, most))
        name = {"polydomo-worker": header(worker.name)}
        job = poll.job
        if job is None:
            return Response(status_code=204, headers=name)
        return _given(job, request.headers.get("accept"), name)

    def _holder(token: str) -> PollingWorker:
        worker = workers.holder(token.encode())
        if worker is None:
            raise _superseded()
        return worker

    return router


def failure_of(said: bytes) -> Failure:
    """What a worker says about a failure. The account is in the form that our own SDK's clients know
    (`dialects.native_failure`); others get what the worker said as it is."""
    account: dict[str, Any] = {"reason": WORKER_ERROR}
    try:
        found = msgspec.json.decode(said)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        found = {"message": said.decode(errors="replace")} if said else {}
    if not isinstance(found, dict):
        found = {"message": said.decode(errors="replace")}
    for name in ("message", "kind", "traceback"):
        value = found.get(name)
        if value is not None:
            account[name] = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    message = account.setdefault("message", "the worker failed the job")
    return Failure(WORKER_ERROR, message, frame(said) if said else EMPTY_BODY, msgspec.json.encode(account))


def _given(job: Job, accept: str | None, headers: dict[str, str]) -> Response:
    kind, data = write_body(job.body, accept)
    headers["location"] = "/v1/attempts/" + quote(job.token.decode("latin-1"))
    headers["polydomo-service"] = header(job.service.name)
    if job.extra is not None:
        headers["polydomo-job"] = header(job.extra.uid.encode())
    limit = job.limit or job.service.policy.timeout
    headers["polydomo-timeout"] = f"{limit:g}"
    return Response(data, 200, headers, kind)


def _taken(known: bool) -> Response:
    if not known:
        raise _superseded()
    return Response(status_code=204)


def _superseded() -> Exception:
    return problem("superseded", "this attempt was taken from its worker, has ended, or never was")


def _read(data: bytes) -> _Poll:
    try:
        said = _polls.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise problem("malformed", f"the body must be a JSON object with `services`: {error}") from None
    if said.worker is not None and not 0 < len(parse_name(said.worker)) <= NAME_MAX:
        raise problem("malformed", f"a worker's name has 1 to {NAME_MAX} bytes")
    if said.wait is not None and not said.wait >= 0:
        raise problem("malformed", f"wait must not be negative, and is {said.wait!r}")
    return said


def _job(polled: bool = True) -> Answers:
    def text(about: str) -> dict[str, Any]:
        return {"description": about, "schema": {"type": "string"}}

    heads = {
        "Location": text("the attempt"),
        "Polydomo-Job": text("the job's id, if it has one"),
        "Polydomo-Service": text("the service it is for"),
        "Polydomo-Worker": text("the worker's name"),
        "Polydomo-Timeout": text("seconds that the attempt may take"),
    }
    found: Answers = {200: {"description": "A job: its body.", "headers": heads, "content": Doc.ANY}}
    return found | {204: {"description": "There was none."}} if polled else found
