"""JSON documents of jobs that are active, stored, or only remembered."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from polydomo.core import failure as reasons
from polydomo.core.broker import Broker
from polydomo.core.failure import Failure
from polydomo.core.model import Job
from polydomo.core.names import printable
from polydomo.core.result_history import JobResult
from polydomo.core.states import STATES
from polydomo.core.tracked_job import TrackedJob
from polydomo.server.job_tasks import job_row
from polydomo.server.record_codec import written_target
from polydomo.store.records import JobRecord
from polydomo.web.api.schemas import COUNT, FLAG, INTEGER, TEXT, TIME, Field, examples, nullable, record
from polydomo.web.api.times import format_time, format_times

# States of the core that the API does not distinguish.
_STATES: Final = {
    "storing": "waiting",
    "remembering": "waiting",
    "recording": "running",
    "gathering": "running",
}

# Schema and default of each field.
_FIELDS: Final = {
    "id": Field(TEXT, ""),
    "service": Field(TEXT, ""),
    "state": Field(
        {"enum": ["waiting", "delayed", "running", "done", "failed", "cancelled", "dead"]}, "waiting"
    ),
    "reason": Field(TEXT, "", "why it has no result; empty: unknown, or it has one"),
    "message": Field(TEXT, ""),
    "client": Field(TEXT, ""),
    "dialect": Field(TEXT, ""),
    "worker": Field(TEXT, "", "the current or latest worker"),
    "attempts": Field(COUNT, 0),
    "key": Field(nullable(TEXT), None),
    "target": Field(TEXT, "any", "`any`, or JSON"),
    "priority": Field(INTEGER, 0),
    "durable": Field(FLAG, False, "whether it is stored on disk"),
    "bytes_in": Field(COUNT, 0),
    "bytes_out": Field(COUNT, 0),
    "submitted": Field(nullable(TIME), None, "when it was submitted"),
    "dispatched": Field(nullable(TIME), None, "when its latest attempt began"),
    "finished": Field(nullable(TIME), None, "when it ended"),
    "links": Field(record("Related paths", dict.fromkeys(("self", "result", "events"), Field(TEXT, ""))), {}),
}
_DEFAULTS: Final = examples(_FIELDS)
JOB: Final = record("A job", _FIELDS)


def path_of(uid: str) -> str:
    """Return the path of a job."""
    return "/v1/jobs/" + quote(uid, safe="")


def state_of(job: Job) -> str:
    """Return the API's name of the job's state."""
    word = STATES[job.state]
    return _STATES.get(word, word)


def active_job(broker: Broker, job: TrackedJob) -> dict[str, Any]:
    """Return the document of a job that has not ended."""
    running = job.worker is not None
    return _document(
        job.uid,
        job.service.name,
        state=state_of(job),
        client=printable(job.client.name),
        dialect=job.client.dialect,
        worker="" if job.worker is None else printable(job.worker.name),
        attempts=max(job.attempt, job.number),
        key=job.key.decode(errors="replace") if job.key else None,
        target=written_target(job.target),
        priority=job.priority,
        durable=job.durable,
        bytes_in=len(job.body),
        bytes_out=job.size_out,
        submitted=format_time(job.submitted_wall),
        dispatched=format_time(broker.clock.wall(job.dispatched)) if running else None,
    )


def stored_job(job: JobRecord) -> dict[str, Any]:
    """Return the document of a job in the store."""
    known = format_times(job_row(job)) | {"durable": True}
    if job.key is not None:
        known["key"] = job.key.encode("latin-1", "replace").decode(errors="replace")
    return _document(job.id, job.service, **known)


def finished_job(ended: JobResult) -> dict[str, Any]:
    """Return the document of a job that was not stored; only its result is known."""
    found = ended_job(ended.uid, ended.service, ended.failure)
    return found | {"worker": printable(ended.worker), "bytes_out": len(ended.body or b"")}


def ended_job(uid: str, service: bytes, failure: Failure | None) -> dict[str, Any]:
    """Return the document of a job that ended before it could be examined."""
    if failure is None:
        return _document(uid, service, state="done")
    state = "cancelled" if failure.reason == reasons.CANCELLED else "failed"  # dead letters are in the store
    return _document(uid, service, state=state, reason=failure.reason, message=failure.message)


def _document(uid: str, service: bytes, /, **known: Any) -> dict[str, Any]:
    path = path_of(uid)
    links = {"self": path, "result": f"{path}/result", "events": f"{path}/events"}
    return {**_DEFAULTS, "id": uid, "service": printable(service), **known, "links": links}


EXAMPLE: Final = _document(
    "01995f4e-7c1a-7d9e-8a34-5d2f90c1b7aa",
    b"echo",
    client="10.0.0.7",
    dialect="http",
    durable=True,
    bytes_in=7,
    submitted="2026-01-31T12:00:00.000000Z",
)
