"""Errors as RFC 9457 problem documents.

`raise HttpProblem(…)` in a handler sends one. Each has a *reason*: a stable identifier in the member `reason` and at
the end of its `type`, `/problems/REASON`, which explains it. The reasons of jobs are the core's (`core.job`), so all
dialects use the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from starlette.responses import Response

from polydomo.core import failure as reasons
from polydomo.core.failure import Failure
from polydomo.web.api.body_json import body_to_json, json_or_none

MEDIA_TYPE: Final = "application/problem+json"
BASE: Final = "/problems/"

# Seconds for `Retry-After` when a limit is reached: queues drain fast or not at all.
RETRY_AFTER: Final = "1"


class ProblemKind(NamedTuple):
    """One kind of problem."""

    status: int
    title: str
    meaning: str


_KINDS: Final[dict[str, tuple[int, str, str]]] = {
    # Failed jobs.
    reasons.EXPIRED: (504, "No worker in time", "The job's queue timeout expired before a worker took it."),
    reasons.DEADLINE: (504, "Deadline exceeded", "The job did not end before its deadline."),
    reasons.WORKER_ERROR: (502, "Worker error", "A worker failed the job; its response is included."),
    reasons.EXHAUSTED: (
        502,
        "Attempts exhausted",
        "All attempts were lost or timed out; see the dead letters.",
    ),
    reasons.WORKER_GONE: (502, "Worker gone", "The only worker that the job was for cannot reconnect."),
    reasons.QUEUE_FULL: (429, "Queue full", "The service has as many waiting jobs as it may have."),
    reasons.NO_MEMORY: (429, "Broker full", "Jobs and the buffers of peers have reached `limits.memory`."),
    reasons.TOO_MANY_SERVICES: (429, "Too many services", "The broker's limit of service names is reached."),
    reasons.QUOTA: (
        429,
        "Quota reached",
        "The principal has taken what its quota allows; `detail` says which.",
    ),
    "too-many-jobs": (429, "Too many unfinished jobs", "The client's limit of unfinished jobs is reached."),
    "too-many-requests": (429, "Too many requests", "The limit of concurrent requests is reached."),
    reasons.DRAINING: (503, "Broker stopping", "The broker finishes its jobs and accepts no new ones."),
    reasons.STORE: (503, "Store unavailable", "The job could not be stored and was not accepted."),
    reasons.CANCELLED: (410, "Cancelled", "The job was cancelled and will have no result."),
    reasons.CLIENT_GONE: (410, "Client gone", "The job was dropped because its client disconnected."),
    reasons.DUPLICATE: (409, "Duplicate id", "Another job has this id."),
    reasons.KEY_REUSED: (
        422,
        "Idempotency key reused",
        "Another request to this service, with another body, has the idempotency key.",
    ),
    reasons.BAD_SERVICE: (400, "Invalid service name", "A service's name has 1 to 255 bytes."),
    reasons.BAD_TARGET: (400, "Invalid target", "No worker could ever match the job's target."),
    reasons.DENIED: (403, "Denied", "The request's principal may not do this; `detail` says what."),
    reasons.TOO_MANY_HOPS: (508, "Too many hops", "The job was forwarded between services too often."),
    # Failed requests.
    "malformed": (400, "Malformed request", "The request is invalid; `detail` says why."),
    "unauthenticated": (
        401,
        "Not authenticated",
        "The request needs credentials, or its token is not valid; `detail` says why.",
    ),
    "not-allowed": (403, "Not allowed", "The request is not allowed for this client or web page."),
    "not-found": (404, "Not found", "The path, or the object that it names, does not exist."),
    "method-not-allowed": (405, "Method not allowed", "`Allow` lists the methods of this path."),
    "not-acceptable": (406, "Not acceptable", "The response has none of the types in `Accept`."),
    "conflict": (409, "Conflict", "The object's state does not allow the request; `detail` says why."),
    "superseded": (410, "Attempt over", "The attempt was revoked or has ended. Drop the job and continue."),
    "too-slow": (408, "Too slow", "The request did not arrive within `http.slow`; the connection is closed."),
    "too-large": (413, "Body too large", "It exceeds `limits.message_bytes`, or has too many parts."),
    "unsupported-media-type": (415, "Unsupported media type", "The body's type or encoding is unknown."),
    "range": (416, "Range not satisfiable", "The range begins after the end; see `Content-Range`."),
    "misdirected": (421, "Misdirected request", "The broker does not serve this `Host`; see `http.hosts`."),
    "head-too-large": (431, "Head too large", "The head, or trailers and chunk extensions, exceed 64 KiB."),
    # MemoDB's reasons.
    "missing-body": (400, "Missing body", "The request needs a body."),
    "invalid-or-unsupported-cid": (400, "Invalid CID", "The CID is malformed or of an unknown kind."),
    "invalid-or-unsupported-cbor": (400, "Invalid CBOR", "The body is not a value in CBOR."),
    "invalid-or-unsupported-json": (400, "Invalid MemoDB-JSON", "The body is not a value in MemoDB-JSON."),
    "invalid-string": (400, "Invalid name", "The name is empty, too long, or not UTF-8."),
    "expected-cid": (400, "Link expected", "The body is a value, but not a link."),
    "invalid-worker-info": (
        400,
        "Invalid worker info",
        'The value is not a map with a list of names under "funcs".',
    ),
    "unknown-cid": (404, "Unknown CID", "The store does not have the value that the CID names."),
    "memodb-full": (507, "MemoDB full", "Values, heads and calls have reached the limit `memodb.bytes`."),
    "internal": (500, "Internal error", "An error in the broker; see its log."),
    "not-supported": (501, "Not supported", "This broker runs without it; `detail` says what to change."),
    "too-many-connections": (
        503,
        "Too many connections",
        "The limit `http.connections` is reached; this connection was refused, or closed to make room for another.",
    ),
    "not-recorded": (503, "Not recorded", "The act was not done, because the audit log cannot be written."),
    "not-ready": (503, "Not ready", "The broker does not accept jobs at the moment; `detail` says why."),
}
KINDS: Final = {reason: ProblemKind(*row) for reason, row in _KINDS.items()}

# Statuses after which the same request may succeed soon.
RETRYABLE: Final = (429, 503)


class HttpProblem(Exception):
    """An error response. Additional members are keyword arguments; None omits one."""

    def __init__(
        self,
        status: int,
        title: str = "",
        detail: str = "",
        type: str = "about:blank",
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(detail or title)
        self.status = status
        self.title = title
        self.detail = detail
        self.type = type
        self.headers = dict(headers or {})
        self.members = {name: value for name, value in members.items() if value is not None}

    def document(self) -> dict[str, Any]:
        """Return the problem document."""
        found: dict[str, Any] = {"type": self.type, "title": self.title, "status": self.status}
        if self.detail:
            found["detail"] = self.detail
        return found | self.members

    def response(self) -> Response:
        """Return the HTTP response."""
        headers = {"cache-control": "no-store"} | self.headers
        return Response(msgspec.json.encode(self.document()), self.status, headers, MEDIA_TYPE)


def problem(
    reason: str, detail: str = "", headers: Mapping[str, str] | None = None, **members: Any
) -> HttpProblem:
    """Return a problem of a known kind."""
    kind = KINDS[reason]
    given = dict(headers or {})
    if kind.status in RETRYABLE:
        given.setdefault("retry-after", RETRY_AFTER)
    return HttpProblem(kind.status, kind.title, detail, BASE + reason, given, reason=reason, **members)


def problem_of(failure: Failure) -> HttpProblem:
    """Return the problem for a failed job."""
    reason = failure.reason
    members: dict[str, Any] = {}
    if failure.body is not None:
        members |= body_to_json(failure.body)
    if failure.detail:
        members["account"] = json_or_none(failure.detail)  # the details of our SDK's workers
    if reason in KINDS:
        return problem(reason, failure.message, **members)
    return HttpProblem(502, "The job failed", failure.message, reason=reason, **members)
