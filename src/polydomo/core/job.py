"""A job: one request of one client, from its arrival to its answer or failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from polydomo.core.client import Client
    from polydomo.core.extras import Extra
    from polydomo.core.service import Service
    from polydomo.core.worker import Worker

WAITING: Final = 0
RUNNING: Final = 1
DONE: Final = 2
FAILED: Final = 3
STORING: Final = 4  # durable, and not yet on disk
DELAYED: Final = 5  # not before its time, or pausing between two attempts
RECORDING: Final = 6  # answered or failed, and that is not yet on disk
GATHERING: Final = 7  # several workers are at it
REMEMBERING: Final = 8  # its answer may be known, or on its way to another who asked the same
REFUSED: Final = 9  # ended before it was accepted
WITHDRAWN: Final = 10  # ended because somebody cancelled it
DEAD: Final = 11  # durable, and its attempts were used up: a dead letter

# A job in one of these has ended.
ENDS: Final = (DONE, FAILED, REFUSED, WITHDRAWN, DEAD)

STATES: Final = (
    "waiting",
    "running",
    "done",
    "failed",
    "storing",
    "delayed",
    "recording",
    "gathering",
    "remembering",
    "refused",
    "cancelled",
    "dead",
)

# Why a job has no result. Stable words: they stand in answers, `--json` output, the ledger.
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
BAD_TARGET: Final = "bad-target"  # it is addressed to nobody who could ever do it
WORKER_GONE: Final = "worker-gone"  # it was for one worker only, which cannot come back


# Bytes that a job takes beside its body and envelope: its own object, its token or place in a queue, the bodies'
# headers. Growth of the broker's resident memory per waiting job of one byte: 297 compiled, 359 not (150,000 jobs over
# MDP, CPython 3.11, Linux).
JOB_COST: Final = 330

# The same of what a job has that is durable or came with options (`core.extras`), its id among it. The two together:
# 920 compiled, 1,121 not; 1,290 with a key, 1,340 with a deadline. Each further durable job over MDP: 1,058, beside
# some 90 MB for the database's caches and the writes under way (100,000 against 250,000 jobs).
EXTRA_COST: Final = 750


class Failure:
    """Why there is no result, for a client that can be told."""

    __slots__ = ("body", "detail", "message", "reason")

    def __init__(self, reason: str, message: str, body: bytes | None = None, detail: bytes = b"") -> None:
        self.reason = reason
        self.message = message
        self.body = body  # the worker's own final body, for peers whose protocol has no word for failure
        self.detail = detail  # the worker's own account (JSON), for peers that asked for it

    def forget(self) -> None:
        """Everybody has been told: the reason stays, what may be big goes."""
        self.body = None
        self.detail = b""


class Job:
    """Only the core changes a job; dialects read it.

    `token` names the current attempt towards its worker. It is new for each dispatch, so an answer to a superseded
    attempt carries an old token and finds nothing (fencing).
    """

    __slots__ = (
        "asked",
        "attempt",
        "body",
        "client",
        "dispatched",
        "due",
        "envelope",
        "expires",
        "extra",
        "failure",
        "finished",
        "first_partial",
        "hops",
        "id",
        "limit",
        "partials",
        "queued",
        "service",
        "size",
        "size_out",
        "started",
        "state",
        "submitted",
        "token",
        "worker",
    )

    def __init__(
        self, id: int, client: Client, service: Service, body: bytes, envelope: bytes, submitted: float
    ) -> None:
        self.id = id
        self.client = client
        self.service = service
        self.asked = service.name  # what its client called it; `service` changes when the job is passed on
        self.body = body  # canonical frames (wire.frames); dropped when the job has ended
        self.envelope = envelope  # the client's dialect's own matter, kept for its answer and no longer
        self.state = WAITING
        self.submitted = submitted
        self.queued = submitted  # when it could be dispatched, at the service it is at now
        self.size = len(body) + len(envelope)
        self.size_out = 0
        self.attempt = 0
        self.partials = 0
        self.hops = 0
        self.token = b""
        self.worker: Worker | None = None
        self.expires = 0.0  # waiting longer than this fails the job
        self.limit = 0.0  # of one attempt, from dispatch; 0: the service's
        self.started = 0.0  # its first dispatch there
        self.dispatched = 0.0
        self.due = 0.0  # running longer than this loses the attempt
        self.first_partial = 0.0
        self.finished = 0.0
        self.failure: Failure | None = None
        self.extra: Extra | None = None  # durable, or with options
