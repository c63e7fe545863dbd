"""The broker's own services: `mmi.service` (RFC 8/MMI) and the catalogue `mmi.service.broker`.

They are workers like any other to the core, only that they answer at once. `mmi.service`: a service's name in, "200"
or "404" out. `mmi.service.broker`: a task in, JSON out; the task is its bare name or NORFAB's
`{"task": "show_services", "kwargs": {…}}`. Both take names in JSON's quotes too: many clients send nothing else. Any
other `mmi.` name is answered "501".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from polydomo._version import __version__
from polydomo.core.broker import Broker
from polydomo.core.job import STATES, WORKER_ERROR, Failure, Job
from polydomo.core.policy import Beat
from polydomo.core.ports import WorkerPort
from polydomo.core.service import Service
from polydomo.core.worker import Worker
from polydomo.wire.frames import frame, join, split

# More than any number of requests that can be in hand at once: they are answered before the next is taken.
BOTTOMLESS = 1 << 30

# Rows of `show_jobs` unless asked for another number.
JOBS_SHOWN = 100


class Later:
    """An answer that is not there yet."""

    def __init__(self) -> None:
        self._told: tuple[Callable[[Any], None], Callable[[Exception], None]] | None = None
        self._end: Callable[[], None] | None = None

    def then(self, settled: Callable[[Any], None], failed: Callable[[Exception], None]) -> None:
        """Call one of the two, now if it is there already."""
        self._told = (settled, failed)
        if self._end is not None:
            self._end()

    def settle(self, value: Any) -> None:
        """Here it is."""
        self._finish(lambda: self._told and self._told[0](value))

    def fail(self, error: Exception) -> None:
        """There is none."""
        self._finish(lambda: self._told and self._told[1](error))

    def _finish(self, end: Callable[[], Any]) -> None:
        self._end = end
        if self._told is not None:
            end()


Answer = list[bytes] | Later


class Management:
    """Registers the built-in services with a broker."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker = broker
        self.name = name
        self.started = broker.now
        self.tasks: dict[str, Callable[..., Any]] = {
            "show_broker": self.show_broker,
            "show_services": self.show_services,
            "show_workers": self.show_workers,
            "show_clients": self.show_clients,
            "show_jobs": self.show_jobs,
        }
        self._own: list[_BuiltIn] = []
        self.tasks["pause_service"] = self.pause_service
        self.tasks["resume_service"] = self.resume_service
        self._serve(b"mmi.service", self._mmi_service)
        self._serve(b"mmi.service.broker", self._mmi_broker)
        broker.fallback = self._worker(lambda frames: [b"501"])

    def show_broker(self) -> dict[str, Any]:
        """The broker as a whole. Jobs are those of its workers: what it is asked itself, this too, is not counted."""
        broker = self.broker
        asked = self._asked()
        refused = sum(port.failed for port in self._own)
        return {
            "name": self.name,
            "version": __version__,
            "uptime": round(broker.now - self.started, 3),
            "services": sum(1 for service in broker.services.values() if not _internal(service.name)),
            "workers": sum(1 for worker in broker.workers if not worker.internal),
            "clients": sum(1 for client in broker.clients if client.total > client.questions),
            "active": broker.active - len(asked),
            "memory": broker.memory - sum(job.size for job in asked),
            "done": broker.done - sum(port.worker.done for port in self._own) + refused,
            "failed": broker.failed - refused,
            "retried": broker.retried,
            "refused": broker.refused,
            "strays": broker.strays,
            "draining": broker.draining,
        }

    def show_services(self) -> list[dict[str, Any]]:
        """Every service that has workers or waiting jobs; the broker's own are left out."""
        return [
            {
                "name": printable(service.name),
                "workers": len(service.workers),
                "idle": len(service.idle),
                "waiting": service.waiting,
                "paused": service.paused,
                "running": service.running,
                "done": service.done,
                "failed": service.failed,
                "retried": service.retried,
            }
            for service in sorted(self.broker.services.values(), key=lambda service: service.name)
            if not _internal(service.name)
        ]

    def show_workers(self, service: str | None = None) -> list[dict[str, Any]]:
        """Every worker, or those of one service."""
        now = self.broker.now
        return [
            {
                "name": printable(worker.name),
                "dialect": worker.dialect,
                "services": names,
                "state": "late" if worker.late else "busy" if worker.running else "idle",
                "holds": len(worker.running),
                "credit": worker.credit,
                "done": worker.done,
                "seen": round(now - worker.last_seen, 3),
                "since": round(now - worker.since, 3),
            }
            for worker in self.broker.workers
            if not worker.internal
            for names in [[printable(offered.name) for offered in worker.services]]
            if service is None or service in names
        ]

    def show_clients(self) -> list[dict[str, Any]]:
        """Every client that has sent a job and is connected (or within its grace time)."""
        now = self.broker.now
        asked = self._asked()
        return [
            {
                "name": printable(client.name),
                "dialect": client.dialect,
                "unanswered": client.jobs - len(questions),
                "bytes": client.size - sum(job.size for job in questions),
                "submitted": client.total - client.questions,
                "held": client.held,
                "since": round(now - client.since, 3),
            }
            for client in self.broker.clients
            if client.total > client.questions
            for questions in [[job for job in asked if job.client is client]]
        ]

    def show_jobs(
        self, service: str | None = None, state: str | None = None, limit: int = JOBS_SHOWN
    ) -> list[dict[str, Any]]:
        """Jobs, newest first: waiting, running, and the last thousand that ended."""
        if state is not None and state not in STATES:
            raise ValueError(f"no state {state!r}; there are {', '.join(STATES)}")
        found: list[Job] = list(self.broker.recent)
        for known in self.broker.services.values():
            for lane in known.ring_of_lanes:
                found.extend(lane.jobs)
        for worker in self.broker.workers:
            found.extend(worker.running.values())
        rows = [
            self._job(job)
            for job in sorted(found, key=lambda job: -job.id)
            if not _internal(job.service.name)
        ]
        return [
            row
            for row in rows
            if (service is None or row["service"] == service) and (state is None or row["state"] == state)
        ][: max(limit, 0)]

    def pause_service(self, name: str) -> dict[str, Any]:
        """Its jobs wait until it is resumed; running ones go on."""
        self.broker.lifecycle.pause(self._service(name))
        return {"name": name, "paused": True}

    def resume_service(self, name: str) -> dict[str, Any]:
        """Give its jobs to workers again."""
        self.broker.lifecycle.resume(self._service(name))
        return {"name": name, "paused": False}

    def _asked(self) -> list[Job]:
        """What the broker itself is being asked."""
        return [job for port in self._own for job in port.worker.running.values()]

    def _service(self, name: str) -> Service:
        service = self.broker.services.get(name.encode())
        if service is None or _internal(service.name):
            raise ValueError(f"no service {name!r}")
        return service

    def _job(self, job: Job) -> dict[str, Any]:
        now = self.broker.now
        ended = job.finished or now
        return {
            "id": job.id,
            "service": printable(job.service.name),
            "state": STATES[job.state],
            "reason": job.failure.reason if job.failure else "",
            "client": printable(job.client.name),
            "dialect": job.client.dialect,
            "worker": printable(job.worker.name) if job.worker else "",
            "attempts": job.attempt,
            "partials": job.partials,
            "bytes_in": job.size,
            "bytes_out": job.size_out,
            "age": round(now - job.submitted, 6),
            "waited": round((job.dispatched or ended) - job.submitted, 6),
            "ran": round(ended - job.dispatched, 6) if job.dispatched else 0.0,
        }

    def _mmi_service(self, frames: list[bytes]) -> Answer:
        """RFC 8/MMI: is there a worker for this name?"""
        name = frames[0] if frames else b""
        found = [self.broker.services.get(name), self.broker.services.get(_unquoted(name))]
        return [b"200" if any(service is not None and service.workers for service in found) else b"404"]

    def _mmi_broker(self, frames: list[bytes]) -> Answer:
        request = frames[0] if frames else b""
        if request.lstrip()[:1] == b"{":
            try:
                asked = msgspec.json.decode(request, type=_Task)
            except msgspec.DecodeError as error:
                raise ValueError(f"not a task: {error}") from error
        else:
            asked = _Task(task=_unquoted(request.strip()).decode("utf-8", "replace"))
        task = self.tasks.get(asked.task)
        if task is None:
            raise ValueError(f"no task {asked.task!r}; there are {', '.join(self.tasks)}")
        try:
            answer = task(*asked.args, **asked.kwargs)
            return answer if isinstance(answer, Later) else [msgspec.json.encode(answer)]
        except TypeError as error:
            raise ValueError(f"wrong arguments for {asked.task}: {error}") from error

    def _serve(self, name: bytes, answer: Callable[[list[bytes]], Answer]) -> None:
        self.broker.register(self._worker(answer), name)

    def _worker(self, answer: Callable[[list[bytes]], Answer]) -> Worker:
        port = _BuiltIn(self.broker, answer)
        worker = Worker(self.broker, b"broker", "internal", port, Beat())
        worker.internal = True
        worker.base_credit = worker.credit = BOTTOMLESS
        port.worker = worker
        self._own.append(port)
        return worker


class _Task(msgspec.Struct):
    task: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


class _BuiltIn(WorkerPort):
    """A service answered here and now."""

    def __init__(self, broker: Broker, answer: Callable[[list[bytes]], Answer]) -> None:
        self.broker = broker
        self.answer = answer
        self.worker: Worker
        self.failed = 0  # of the worker's `done`

    def dispatch(self, job: Job) -> None:
        token = job.token
        job.client.questions += 1
        try:
            answer = self.answer(split(job.body))
        except Exception as error:  # whatever it is: the job must end, and the broker must not
            self._failed(token, error)
            return
        if isinstance(answer, Later):
            answer.then(
                lambda value: self._answered(token, [msgspec.json.encode(value)]),
                lambda error: self._failed(token, error),
            )
        else:
            self._answered(token, answer)

    def _answered(self, token: bytes, frames: list[bytes]) -> None:
        self.broker.final(self.worker, token, join(frames))

    def _failed(self, token: bytes, error: Exception) -> None:
        self.failed += 1
        kind = type(error).__name__
        account = msgspec.json.encode({"reason": WORKER_ERROR, "message": str(error), "kind": kind})
        plain = frame(msgspec.json.encode({"error": str(error)}))
        self.broker.fail(self.worker, token, Failure(WORKER_ERROR, str(error), plain, account))


def _internal(name: bytes) -> bool:
    return name.startswith((b"mmi.", b"sid.", b"fss."))


def _unquoted(name: bytes) -> bytes:
    """A name that a JSON codec put into quotes; any other as it is."""
    if name[:1] == b'"':
        try:
            return msgspec.json.decode(name, type=str).encode()
        except (msgspec.DecodeError, UnicodeError):
            pass  # then the quote is part of it
    return name


def printable(name: bytes) -> str:
    """Bytes for people: what is no text is shown in hex."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return name.hex()
    return text if text.isprintable() else name.hex()
