"""The broker's own services: `mmi.service` (RFC 8/MMI) and the catalogue `mmi.service.broker`.

They are workers like any other to the core, only that they answer at once. `mmi.service`: a service's name in, "200"
or "404" out. `mmi.service.broker`: a task in, JSON out (`services.builtin`); the tasks that change something are in
`services.administration`. Any other `mmi.` name is answered "501".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polydomo._version import __version__
from polydomo.core.broker import Broker
from polydomo.core.counts import Counts
from polydomo.core.job import JOB_COST, STATES, Job
from polydomo.core.names import parse_name, printable
from polydomo.core.service import Service
from polydomo.core.worker import Worker
from polydomo.services.builtin import BuiltIn, Raw, is_internal, perform, read_task, unquoted
from polydomo.wire.frames import frame

# Rows of `show_jobs` unless asked for another number.
JOBS_SHOWN = 100


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
        self.own: list[BuiltIn] = []
        self.tasks["pause_service"] = self.pause_service
        self.tasks["resume_service"] = self.resume_service
        self.tasks["show_memos"] = self.show_memos
        self.tasks["forget_memos"] = self.forget_memos
        self._serve(b"mmi.service", self._mmi_service)
        self._serve(b"mmi.service.broker", self._mmi_broker)
        broker.fallback = self._port(lambda frames: Raw(b"501")).worker

    def show_broker(self) -> dict[str, Any]:
        """The broker as a whole. Jobs are those of its workers: what it is asked itself, this too, is not counted."""
        broker = self.broker
        return {
            "name": self.name,
            "version": __version__,
            "uptime": round(broker.now - self.started, 3),
            "services": sum(1 for service in broker.services.values() if not is_internal(service.name)),
            "workers": sum(1 for worker in broker.workers if is_shown(worker)),
            "clients": sum(1 for client in broker.clients if client.total > client.questions),
            "submitted": broker.submitted,
            "accepted": broker.accepted,
            "refused": broker.refused,
            "active": broker.active - broker.asked,
            "undecided": broker.undecided,
            "memory": broker.memory - sum(job.size + JOB_COST for job in self._asked()),
            "done": broker.done,
            "failed": broker.failed,
            "cancelled": broker.cancelled,
            "dead": broker.dead,
            "repeated": broker.repeated,
            "retried": broker.retried,
            "forwarded": broker.forwarded,
            "strays": broker.strays,
            "unlisted": broker.past.others.show(),
            "draining": broker.draining,
        }

    def show_services(self) -> list[dict[str, Any]]:
        """Every service that has workers or jobs, or had some lately; the broker's own are left out. What is not
        listed any more is in `unlisted` of `show_broker`: with that the counts add up to the broker's."""
        broker = self.broker
        rows = [service_row(service) for service in broker.services.values() if not service.internal]
        rows += [past_row(name, counts) for name, counts in broker.past.named.items()]
        rows.sort(key=lambda row: row["name"])
        return rows

    def show_workers(self, service: str | None = None, status: str | None = None) -> list[dict[str, Any]]:
        """Every worker, or those of one service. What norfab's client reads has norfab's names too."""
        if status not in (None, "", "any", "alive", "dead"):
            raise ValueError(f"no status {status!r}; there are alive, dead, any")
        if status == "dead":  # they are forgotten at once
            return []
        return [
            self._worker(worker, names)
            for worker in self.broker.workers
            if is_shown(worker)
            for names in [[printable(offered.name) for offered in worker.services]]
            if service in (None, "", "all") or service in names
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
                "held": client.held or client.stalled,
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
            found.extend(job for line in [known, *known.named.values()] for job in line.jobs())
        for worker in self.broker.workers:
            found.extend(worker.running.values())
        rows = [
            self._job(job)
            for job in sorted(found, key=lambda job: -job.id)
            if not is_internal(job.service.name)
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

    def show_memos(self, service: str | None = None) -> list[dict[str, Any]]:
        """Memoised services: how many answers are in memory, how often they were asked for, what that saved."""
        memos = self.broker.memos
        names = set(memos.shelves)
        names.update(name for name, known in self.broker.services.items() if known.policy.memo)
        names.update(
            name for name, policy in self.broker.policies.items() if policy.memo and name[-1:] != b"*"
        )
        return [
            {"name": printable(name)} | memos.show(name)
            for name in sorted(names)
            if service in (None, printable(name))
        ]

    def forget_memos(self, name: str, request: str | None = None) -> dict[str, Any]:
        """The answers of a service are no longer good: all of them, or the one to this request (a text)."""
        body = None if request is None else frame(request.encode())
        return {"name": name, "forgotten": self.broker.memos.forget(parse_name(name), body)}

    def _asked(self) -> list[Job]:
        """What the broker itself is being asked."""
        return [job for port in self.own for job in port.worker.running.values()]

    def _service(self, name: str) -> Service:
        service = self.broker.services.get(parse_name(name))
        if service is None or is_internal(service.name):
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

    def _worker(self, worker: Worker, names: list[str]) -> dict[str, Any]:
        now = self.broker.now
        return {
            "name": printable(worker.name),
            "dialect": worker.dialect,
            "services": names,
            "state": "late" if worker.late else "busy" if worker.running else "idle",
            "holds": len(worker.running),
            "credit": worker.credit,
            "done": worker.done,
            "seen": round(now - worker.last_seen, 3),
            "since": round(now - worker.since, 3),
            "service": names[0] if names else "",
            "status": "alive",
            "holdtime": str(round(hold_time(worker, now), 1)),
            "keepalives tx/rx": f"{worker.beats_sent} / {worker.beats_seen}",
            "alive (s)": str(int(now - worker.since)),
        }

    def _mmi_service(self, frames: list[bytes]) -> Raw:
        """RFC 8/MMI: is there a worker for this name?"""
        name = frames[0] if frames else b""
        found = [self.broker.services.get(name), self.broker.services.get(unquoted(name))]
        return Raw(b"200" if any(service is not None and service.workers for service in found) else b"404")

    def _mmi_broker(self, frames: list[bytes]) -> Any:
        return perform(self.tasks, read_task(frames))

    def _serve(self, name: bytes, answer: Callable[[list[bytes]], Any]) -> None:
        self._port(answer).offer(name)

    def _port(self, answer: Callable[[list[bytes]], Any]) -> BuiltIn:
        port = BuiltIn(self.broker, answer)
        self.own.append(port)
        return port


def service_row(service: Service) -> dict[str, Any]:
    """One service in a list."""
    return {
        "name": printable(service.name),
        "workers": len(service.workers),
        "idle": len(service.idle) + (0 if service.herald is None else service.herald.ready()),
        "waiting": service.waiting + service.targeted,
        "paused": service.paused,
        "running": service.running,
        **service.counts.show(),
    }


def past_row(name: bytes, counts: Counts) -> dict[str, Any]:
    """One service that is not there, in the same list."""
    return {
        "name": printable(name),
        "workers": 0,
        "idle": 0,
        "waiting": 0,
        "paused": False,
        "running": 0,
        **counts.show(),
    }


def is_shown(worker: Worker) -> bool:
    """Not the broker's own, unless it offers what others may offer too."""
    return not worker.internal or any(not is_internal(service.name) for service in worker.services)


def hold_time(worker: Worker, now: float) -> float:
    """How much longer it may be silent."""
    beat = worker.beat
    return max(0.0, worker.last_seen + beat.interval * beat.liveness - now)
