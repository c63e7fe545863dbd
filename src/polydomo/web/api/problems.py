"""Errors as RFC 9457 problem documents.

`raise Problem(…)` anywhere in a handler is answered with one. A problem has a *reason*: a stable word that stands in
the member `reason` and at the end of its `type`, `/problems/REASON`; a GET of that says what it means. The reasons of
jobs are the core's own (`core.job`), so every dialect has the same words for the same thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from starlette.responses import Response

from polydomo.core import job as jobs
from polydomo.core.job import Failure
from polydomo.web.api.body_json import shown

MEDIA_TYPE: Final = "application/problem+json"
BASE: Final = "/problems/"

# What a client that met a limit is asked to wait, in seconds: queues empty fast, or not at all.
RETRY_AFTER: Final = "1"


class Kind(NamedTuple):
    """One kind of problem."""

    status: int
    title: str
    meaning: str


KINDS: Final[dict[str, Kind]] = {
    # How jobs fail.
    jobs.EXPIRED: Kind(504, "No worker in time", "The job waited for a worker longer than it may."),
    jobs.DEADLINE: Kind(504, "Deadline passed", "The job's whole life was limited, and that time is over."),
    jobs.WORKER_ERROR: Kind(
        502, "The worker failed the job", "A worker took the job and said that it failed; its answer is here."
    ),
    jobs.EXHAUSTED: Kind(
        502,
        "All attempts were lost",
        "Every worker that had the job was lost or took too long. It is a dead letter now.",
    ),
    jobs.WORKER_GONE: Kind(
        502, "The worker is gone", "The job was for one worker only, which cannot come back."
    ),
    jobs.QUEUE_FULL: Kind(429, "The queue is full", "As many jobs wait for this service as may."),
    jobs.NO_MEMORY: Kind(
        429,
        "The broker is full",
        "Jobs and what peers make the broker hold are together as large as they may be; see `limits.memory`.",
    ),
    jobs.TOO_MANY_SERVICES: Kind(
        429, "Too many services", "The broker knows as many service names as it may."
    ),
    "too-many-jobs": Kind(
        429, "Too many unanswered jobs", "This client has as many unanswered jobs as it may."
    ),
    "too-many-requests": Kind(
        429, "Too many at once", "As many requests of this kind are under way as may be."
    ),
    jobs.DRAINING: Kind(503, "The broker is stopping", "It takes no new jobs; it finishes those it has."),
    jobs.STORE: Kind(
        503, "The store is in trouble", "The job could not be kept safe, so it was not accepted."
    ),
    jobs.CANCELLED: Kind(410, "Cancelled", "The job was cancelled; it has no result, and will have none."),
    jobs.CLIENT_GONE: Kind(
        410, "Its client is gone", "The job was dropped because nobody waited for it any more."
    ),
    jobs.DUPLICATE: Kind(409, "The id is taken", "Another job has this id or key."),
    jobs.BAD_SERVICE: Kind(400, "No name of a service", "A service's name has 1 to 255 bytes."),
    jobs.BAD_TARGET: Kind(400, "No such target", "The job is addressed to nobody who could ever do it."),
    jobs.TOO_MANY_HOPS: Kind(
        508, "Passed on too often", "The job was passed from service to service, again and again."
    ),
    # How requests fail.
    "malformed": Kind(
        400, "The request cannot be read", "Something in it is not what it must be; `detail` says what."
    ),
    "not-allowed": Kind(403, "Not allowed", "This may not be done from here."),
    "not-found": Kind(404, "There is no such thing", "The path or what it names is not known here."),
    "method-not-allowed": Kind(
        405, "Not done that way", "The path is known, but not with this method; see `Allow`."
    ),
    "not-acceptable": Kind(
        406, "In none of these forms", "The answer cannot be had in a form that `Accept` names."
    ),
    "conflict": Kind(409, "Not as things are now", "The thing's state does not allow it; `detail` says why."),
    "superseded": Kind(
        410, "The attempt is over", "The job was taken from this worker, or has ended. Drop it and go on."
    ),
    "too-slow": Kind(
        408,
        "Too slow",
        "The request was not there in time; see `http.slow`. The connection is closed.",
    ),
    "too-large": Kind(
        413, "The body is too large", "It is larger than `limits.message_bytes`, or has too many parts."
    ),
    "unsupported-media-type": Kind(
        415, "A body that is not understood", "Its encoding is none that is known here."
    ),
    "range": Kind(
        416,
        "No such part",
        "The range begins behind the end of the file; `Content-Range` says where that is.",
    ),
    "misdirected": Kind(
        421, "Another host's request", "`Host` names no host that this broker answers for; see `http.hosts`."
    ),
    "head-too-large": Kind(
        431,
        "The request's head is too large",
        "Its first line and headers have at most 64 KiB; so have the trailers and chunk extensions of its body.",
    ),
    # MemoDB's own words for its REST.
    "missing-body": Kind(400, "A body is missing", "The request needs a body, and has none."),
    "invalid-or-unsupported-cid": Kind(
        400, "No CID", "It is not well-formed, or of a kind that is not known here."
    ),
    "invalid-or-unsupported-cbor": Kind(
        400, "No value in CBOR", "The body is no CBOR, or CBOR that is no value."
    ),
    "invalid-or-unsupported-json": Kind(
        400, "No value in MemoDB-JSON", "The body is no JSON, or JSON that is no value; see MemoDB-JSON."
    ),
    "invalid-string": Kind(400, "No such name", "The name is empty, too long, or not UTF-8."),
    "expected-cid": Kind(400, "A link is needed", "The body is a value, but no link to one."),
    "invalid-worker-info": Kind(
        400, "A worker must say what it can do", 'The value is no map with a list of names under "funcs".'
    ),
    "unknown-cid": Kind(
        404, "Not in the store", "The value that a CID names is needed, and is not kept here."
    ),
    "memodb-full": Kind(
        507, "The store is full", "Values, heads and calls together take what `memodb.bytes` allows."
    ),
    "internal": Kind(500, "Something went wrong here", "A mistake in the broker; its log says more."),
    "not-supported": Kind(501, "Not here", "This broker is set up without it; `detail` says what to change."),
    "too-many-connections": Kind(
        503,
        "Too many connections",
        "There are as many connections as `http.connections` allows, and none makes room for this one, or it made "
        "room for another client's.",
    ),
    "not-ready": Kind(503, "Not ready", "The broker does not take jobs at the moment; `detail` says why."),
}

# Reasons after which the same request may succeed soon.
PASSING: Final = (429, 503)


class Problem(Exception):
    """Becomes the answer. Further members are given by name; None leaves one out."""

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
        """As JSON has it."""
        found: dict[str, Any] = {"type": self.type, "title": self.title, "status": self.status}
        if self.detail:
            found["detail"] = self.detail
        return found | self.members

    def response(self) -> Response:
        """As HTTP has it."""
        headers = {"cache-control": "no-store"} | self.headers
        return Response(msgspec.json.encode(self.document()), self.status, headers, MEDIA_TYPE)


def problem(
    reason: str, detail: str = "", headers: Mapping[str, str] | None = None, **members: Any
) -> Problem:
    """A problem of a known kind."""
    kind = KINDS[reason]
    given = dict(headers or {})
    if kind.status in PASSING:
        given.setdefault("retry-after", RETRY_AFTER)
    return Problem(kind.status, kind.title, detail, BASE + reason, given, reason=reason, **members)


def problem_of(failure: Failure) -> Problem:
    """Why a job has no result."""
    reason = failure.reason
    members: dict[str, Any] = {}
    if failure.body is not None:
        members |= shown(failure.body)
    if failure.detail:
        members["account"] = _account(failure.detail)
    if reason in KINDS:
        return problem(reason, failure.message, **members)
    return Problem(502, "The job failed", failure.message, reason=reason, **members)


def _account(detail: bytes) -> Any:
    """What our own workers say about a failure: JSON, or dropped."""
    try:
        return msgspec.json.decode(detail)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
