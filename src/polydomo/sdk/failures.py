"""What went wrong, from a worker's exception to the error its caller gets.

Our own workers, brokers and clients say it in a body that begins with a mark (see `dialects/native_failure.py`);
between foreign peers nothing of this is ever seen.
"""

from __future__ import annotations

from traceback import format_exception
from types import TracebackType
from typing import Final

import msgspec

from polydomo.core import job as reasons
from polydomo.dialects.native_failure import MARK_HEAD
from polydomo.errors import JobFailed, PolydomoError, Refused, WorkerError, encodable
from polydomo.redaction import mask
from polydomo.wire.frames import frame, split

# The broker did not take the job: nothing was run, and it may be sent again without harm.
REFUSALS: Final = frozenset(
    {
        reasons.QUEUE_FULL,
        reasons.NO_MEMORY,
        reasons.DRAINING,
        reasons.BAD_SERVICE,
        reasons.TOO_MANY_SERVICES,
        reasons.STORE,
        reasons.DUPLICATE,
        reasons.BAD_TARGET,
    }
)

HINTS: Final = {
    reasons.EXPIRED: "does any worker offer the service? 'polydomo services ls' shows it",
    reasons.EXHAUSTED: "look at the workers: they were lost, or took longer than the service's timeout",
    reasons.QUEUE_FULL: "send less at once, or raise the service's queue",
    reasons.DRAINING: "give the client a second endpoint to go on with",
}


class Account(msgspec.Struct):
    """The JSON in a failure."""

    reason: str = "failed"
    message: str = ""
    kind: str = ""
    traceback: str = ""


def is_failure(body: bytes) -> bool:
    """Does a final body from our own broker say that there is no result?"""
    return body.startswith(MARK_HEAD)


def read(body: bytes) -> Account:
    """The account in such a body."""
    frames = split(body)
    try:
        return msgspec.json.decode(frames[1], type=Account)
    except (IndexError, msgspec.DecodeError):
        return Account(message=f"it failed, but its account cannot be read: {frames[1:]!r}")


def error_of(account: Account, service: str) -> PolydomoError:
    """The error that the caller gets."""
    hint = HINTS.get(account.reason, "")
    if account.reason in REFUSALS:
        return Refused(f"{service}: {account.message} [{account.reason}]", hint=hint)
    if account.reason == reasons.WORKER_ERROR:
        message = f"{service}: {account.kind}: {account.message}" if account.kind else account.message
        return WorkerError(message, kind=account.kind or "Exception", traceback=account.traceback)
    return JobFailed(f"{service}: {account.message} [{account.reason}]", reason=account.reason, hint=hint)


def account_of(error: BaseException, tracebacks: bool) -> Account:
    """What a worker tells of an exception. One that came from another worker keeps its first account."""
    if isinstance(error, WorkerError):
        return Account(reasons.WORKER_ERROR, error.message, error.kind, error.traceback)
    text = ""
    if tracebacks:
        text = "".join(format_exception(type(error), error, own_part(error.__traceback__)))
    return Account(
        reasons.WORKER_ERROR, encodable(mask(str(error))), type(error).__name__, encodable(mask(text))
    )


def own_part(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback from where the user's own code begins; all of it if there is none of that in it."""
    own = traceback
    while own is not None and own.tb_frame.f_globals.get("__name__", "").startswith("polydomo.sdk."):
        own = own.tb_next
    return own or traceback


def body_of(account: Account, native: bool) -> bytes:
    """A worker's final body for a failed job: the mark only towards our own broker, and always a plain body
    that clients who know nothing of it get."""
    plain = frame(msgspec.json.encode({"error": account.message or account.kind}))
    if not native:
        return plain
    return MARK_HEAD + frame(msgspec.json.encode(account), True) + plain
