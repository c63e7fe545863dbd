"""A job as a JSON document, wherever it is: alive in the core, remembered, or in the store."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from polydomo.core import job as jobs
from polydomo.core.broker import Broker
from polydomo.core.job import STATES, Failure, Job
from polydomo.core.names import printable
from polydomo.core.result_history import JobResult
from polydomo.server.record_codec import written_target
from polydomo.store.records import JobRecord
from polydomo.web.api.schemas import COUNT, FLAG, TEXT, nullable, record, time
from polydomo.web.api.times import moment

# What is not on its way to a worker or from one is nobody's matter but the broker's.
_STATES: Final = {
    "storing": "waiting",
    "remembering": "waiting",
    "recording": "running",
    "gathering": "running",
}
_ENDS: Final = {jobs.CANCELLED: "cancelled"}  # dead letters are in the store

JOB: Final[dict[str, Any]] = record(
    "A job",
    id=TEXT,
    service=TEXT,
    state={"enum": ["waiting", "delayed", "running", "done", "failed", "cancelled", "dead"]},
    reason={**TEXT, "description": "why it has no result; empty: that is not known, or it has one"},
    message=TEXT,
    client=TEXT,
    dialect=TEXT,
    worker={**TEXT, "description": "who has it, or had it last"},
    attempts=COUNT,
    key=nullable(TEXT),
    target={**TEXT, "description": "`any`, or JSON"},
    priority={"type": "integer"},
    durable={**FLAG, "description": "is it kept on disk?"},
    bytes_in=COUNT,
    bytes_out=COUNT,
    submitted=nullable(time("when it came")),
    dispatched=nullable(time("when its latest attempt began")),
    finished=nullable(time("when it ended")),
    links=record("Where more is", self=TEXT, result=TEXT, events=TEXT),
)
EXAMPLE: Final[dict[str, Any]] = {
    "id": "01995f4e-7c1a-7d9e-8a34-5d2f90c1b7aa",
    "service": "echo",
    "state": "waiting",
    "reason": "",
    "message": "",
    "client": "10.0.0.7",
    "dialect": "http",
    "worker": "",
    "attempts": 0,
    "key": None,
    "target": "any",
    "priority": 0,
    "durable": True,
    "bytes_in": 7,
    "bytes_out": 0,
    "submitted": "2026-01-31T12:00:00.000000Z",
    "dispatched": None,
    "finished": None,
    "links": {
        "self": "/v1/jobs/01995f4e-7c1a-7d9e-8a34-5d2f90c1b7aa",
        "result": "/v1/jobs/01995f4e-7c1a-7d9e-8a34-5d2f90c1b7aa/result",
        "events": "/v1/jobs/01995f4e-7c1a-7d9e-8a34-5d2f90c1b7aa/events",
    },
}


def path_of(uid: str) -> str:
    """Where the job is."""
    return "/v1/jobs/" + quote(uid, safe="")


def state_of(job: Job) -> str:
    """In the words of the API."""
    word = STATES[job.state]
    return _STATES.get(word, word)


def living(broker: Broker, job: Job) -> dict[str, Any]:
    """One that has not ended."""
    extra = job.extra
    assert extra is not None
    running = job.worker is not None
    return {
        "id": extra.uid,
        "service": printable(job.service.name),
        "state": state_of(job),
        "reason": "",
        "message": "",
        "client": printable(job.client.name),
        "dialect": job.client.dialect,
        "worker": "" if job.worker is None else printable(job.worker.name),
        "attempts": max(job.attempt, extra.number),
        "key": extra.key.decode(errors="replace") if extra.key else None,
        "target": written_target(extra.target),
        "priority": extra.priority,
        "durable": extra.durable,
        "bytes_in": len(job.body),
        "bytes_out": job.size_out,
        "submitted": moment(extra.submitted),
        "dispatched": moment(broker.lifecycle.wall(job.dispatched)) if running else None,
        "finished": None,
        "links": _links(extra.uid),
    }


def stored(job: JobRecord) -> dict[str, Any]:
    """One that is in the store."""
    return {
        "id": job.id,
        "service": printable(job.service),
        "state": job.state,
        "reason": job.code,
        "message": job.message,
        "client": printable(job.client),
        "dialect": job.dialect,
        "worker": printable(job.worker),
        "attempts": job.attempt,
        "key": None if job.key is None else job.key.encode("latin-1", "replace").decode(errors="replace"),
        "target": job.target,
        "priority": job.priority,
        "durable": True,
        "bytes_in": job.size_in,
        "bytes_out": job.size_out,
        "submitted": moment(job.submitted),
        "dispatched": moment(job.dispatched),
        "finished": moment(job.finished),
        "links": _links(job.id),
    }


def remembered(ended: JobResult) -> dict[str, Any]:
    """One that has ended, and lived in memory only: not much is left of it."""
    failure = ended.failure
    return _bare(ended.uid, ended.service, _end(failure), failure) | {
        "worker": printable(ended.worker),
        "bytes_out": len(ended.body or b""),
    }


def refused_or_over(uid: str, service: bytes, failure: Failure | None) -> dict[str, Any]:
    """One that has ended before it could be looked at."""
    return _bare(uid, service, _end(failure), failure)


def _end(failure: Failure | None) -> str:
    return "done" if failure is None else _ENDS.get(failure.reason, "failed")


def _bare(uid: str, service: bytes, state: str, failure: Failure | None) -> dict[str, Any]:
    return {
        "id": uid,
        "service": printable(service),
        "state": state,
        "reason": "" if failure is None else failure.reason,
        "message": "" if failure is None else failure.message,
        "client": "",
        "dialect": "",
        "worker": "",
        "attempts": 0,
        "key": None,
        "target": "any",
        "priority": 0,
        "durable": False,
        "bytes_in": 0,
        "bytes_out": 0,
        "submitted": None,
        "dispatched": None,
        "finished": None,
        "links": _links(uid),
    }


def _links(uid: str) -> dict[str, str]:
    path = path_of(uid)
    return {"self": path, "result": f"{path}/result", "events": f"{path}/events"}
