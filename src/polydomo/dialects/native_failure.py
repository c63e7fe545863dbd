"""Failures between our own SDK and the broker, in protocols that have no message for them.

A body whose first frame is MARK is a failure. From a worker: MARK, a JSON object (`{"reason", "message", "kind",
"traceback"}`), then at least one frame of the plain body that a foreign client gets as its final reply. To a client
that announced the ZMTP property `X-Polydomo`: MARK and the JSON object. The broker never sends MARK to a foreign peer
and accepts it only from a native one.
"""

from typing import Final

import msgspec

from polydomo.core.failure import WORKER_ERROR, Failure
from polydomo.wire.frames import Message, frame

MARK: Final = b"\0polydomo:failed"
MARK_HEAD: Final = frame(MARK, True)


def from_worker(body: bytes) -> Failure | None:
    """Return the failure in a native worker's body that begins with MARK_HEAD; None if frames are missing."""
    message = Message(body, 0, len(body))
    message.take()
    detail = message.take()
    plain = message.rest()
    if detail is None or not plain:
        return None
    return Failure(WORKER_ERROR, "the worker failed the job", plain, detail)


def to_client(failure: Failure) -> bytes:
    """Return the body that tells a native client of a failure."""
    detail = failure.detail
    if not detail:
        detail = msgspec.json.encode({"reason": failure.reason, "message": failure.message})
    return MARK_HEAD + frame(detail)
