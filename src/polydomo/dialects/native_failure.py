"""How our own SDK's workers and clients say "this failed, and why" where a protocol has no word for it.

A body whose first frame is MARK is a failure. From a worker: MARK, a JSON account (`{"reason", "message", "kind",
"traceback"}`), then at least one frame of the plain body that a foreign client gets as its final answer. To a client
that asked for it (by the ZMTP property `X-Polydomo`): MARK and the JSON account. The broker never sends MARK to a
foreign peer and believes it only from a native one.
"""

from typing import Final

import msgspec

from polydomo.core.job import WORKER_ERROR, Failure
from polydomo.wire.frames import Message, frame

MARK: Final = b"\0polydomo:failed"
MARK_HEAD: Final = frame(MARK, True)


def from_worker(body: bytes) -> Failure | None:
    """A native worker's final body that begins with MARK_HEAD; None if it is cut short."""
    message = Message(body, 0, len(body))
    message.take()
    detail = message.take()
    plain = message.rest()
    if detail is None or not plain:
        return None
    return Failure(WORKER_ERROR, "the worker failed the job", plain, detail)


def to_client(failure: Failure) -> bytes:
    """The final body for a native client."""
    detail = failure.detail
    if not detail:
        detail = msgspec.json.encode({"reason": failure.reason, "message": failure.message})
    return MARK_HEAD + frame(detail)
