"""Failures: why a job has no result."""

from __future__ import annotations

from typing import Final

# Stable words: they stand in replies, `--json` output and the ledger.
EXPIRED: Final = "expired"  # no worker came in time
EXHAUSTED: Final = "retries-exhausted"  # every attempt was lost or overran its time
WORKER_ERROR: Final = "worker-error"  # the worker said so
QUEUE_FULL: Final = "queue-full"
NO_MEMORY: Final = "broker-full"
DRAINING: Final = "draining"
TOO_MANY_HOPS: Final = "too-many-hops"
BAD_SERVICE: Final = "bad-service"
TOO_MANY_SERVICES: Final = "too-many-services"
CLIENT_GONE: Final = "client-gone"
CANCELLED: Final = "cancelled"
DEADLINE: Final = "deadline"  # its whole life was limited
STORE: Final = "store"  # it could not be kept safe, so it was not accepted
DUPLICATE: Final = "duplicate-id"  # another job has this id
KEY_REUSED: Final = "key-reused"  # its idempotency key is that of another request
BAD_TARGET: Final = "bad-target"  # no worker that it is addressed to can ever do it
DENIED: Final = "denied"  # its principal may not do this
QUOTA: Final = "quota"  # its principal may have no more at the moment
WORKER_GONE: Final = "worker-gone"  # it was for one worker only, which cannot come back


class Failure:
    """A reason and its explanation, for a client that can be told."""

    __slots__ = ("body", "detail", "message", "reason")

    def __init__(self, reason: str, message: str, body: bytes | None = None, detail: bytes = b"") -> None:
        self.reason = reason
        self.message = message
        self.body = body  # the worker's own final body, for peers whose protocol has no word for failure
        self.detail = detail  # the worker's own report (JSON), for peers that asked for it

    def forget(self) -> None:
        """Drop what may be large once all clients have been told; the reason stays."""
        self.body = None
        self.detail = b""
