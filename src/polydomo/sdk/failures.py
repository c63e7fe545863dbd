"""Failures, from a worker's exception to the error that its caller gets.

Polydomo's workers, brokers and clients transmit them in a body that begins with a mark
(`dialects/native_failure.py`); peers of other implementations never see it.
"""

from __future__ import annotations

from traceback import format_exception
from types import TracebackType
from typing import Final

import msgspec

from polydomo.core import failure as reasons
from polydomo.dialects.native_failure import MARK_HEAD
from polydomo.errors import Denied, JobFailed, PolydomoError, Refused, WorkerError, encodable
from polydomo.redaction import mask
from polydomo.wire.frames import frame, split

# The broker did not accept the job: it was not run and can safely be sent again.
REFUSALS: Final = frozenset(
    {
        reasons.QUEUE_FULL,
        reasons.NO_MEMORY,
        reasons.DRAINING,
        reasons.BAD_SERVICE,
        reasons.TOO_MANY_SERVICES,
        reasons.STORE,
        reasons.DUPLICATE,
        reasons.KEY_REUSED,
        reasons.BAD_TARGET,
        reasons.QUOTA,
        reasons.DENIED,
    }
)

HINTS: Final = {
    reasons.EXPIRED: "does any worker offer the service? 'polydomo services ls' shows it",
    reasons.EXHAUSTED: "look at the workers: they were lost, or took longer than the service's timeout",
    reasons.QUEUE_FULL: "send less at once, or raise the service's queue",
    reasons.QUOTA: "send less at once, or raise the principal's quota",
    reasons.KEY_REUSED: "give each request a key of its own",
    reasons.DRAINING: "give the client a second endpoint to go on with",
}


class FailureInfo(msgspec.Struct):
    """The JSON of a failure."""

    reason: str = "failed"
    message: str = ""
    kind: str = ""
    traceback: str = ""


def is_failure(body: bytes) -> bool:
    """Return whether a final body from a Polydomo broker reports a failure."""
    return body.startswith(MARK_HEAD)


def read(body: bytes) -> FailureInfo:
    """Decode the failure in such a body."""
    frames = split(body)
    try:
        return msgspec.json.decode(frames[1], type=FailureInfo)
    except (IndexError, msgspec.DecodeError):
        return FailureInfo(message=f"the job failed, and its failure cannot be decoded: {frames[1:]!r}")


def error_of(info: FailureInfo, service: str) -> PolydomoError:
    """Return the error to raise to the caller."""
    if info.reason == reasons.DENIED:
        return Denied(info.message)
    hint = HINTS.get(info.reason, "")
    if info.reason in REFUSALS:
        return Refused(f"{service}: {info.message} [{info.reason}]", hint=hint)
    if info.reason == reasons.WORKER_ERROR:
        message = f"{service}: {info.kind}: {info.message}" if info.kind else info.message
        return WorkerError(message, kind=info.kind or "Exception", traceback=info.traceback)
    return JobFailed(f"{service}: {info.message} [{info.reason}]", reason=info.reason, hint=hint)


def describe_error(error: BaseException, tracebacks: bool) -> FailureInfo:
    """Describe a worker's exception. One that came from another worker keeps its original description."""
    if isinstance(error, WorkerError):
        return FailureInfo(reasons.WORKER_ERROR, error.message, error.kind, error.traceback)
    text = ""
    if tracebacks:
        text = "".join(format_exception(type(error), error, user_traceback(error.__traceback__)))
    return FailureInfo(
        reasons.WORKER_ERROR, encodable(mask(str(error))), type(error).__name__, encodable(mask(text))
    )


def user_traceback(traceback: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins in the user's code, or all of it if there is none."""
    own = traceback
    while own is not None and own.tb_frame.f_globals.get("__name__", "").startswith("polydomo.sdk."):
        own = own.tb_next
    return own or traceback


def body_of(info: FailureInfo, native: bool) -> bytes:
    """Encode a worker's final body for a failed job: marked for a Polydomo broker only, and always with a plain body
    for clients that do not know the mark."""
    if not native:
        return plain_body(info)
    return MARK_HEAD + frame(msgspec.json.encode(info), True) + plain_body(info)


def plain_body(info: FailureInfo) -> bytes:
    """Encode a failure for clients whose protocol has no failures: `{"error": "..."}`."""
    return frame(msgspec.json.encode({"error": info.message or info.kind}))
