"""The broker's own services: `mmi.service` (RFC 8/MMI) and the task catalogue `mmi.service.broker`.

To the core they are workers that answer at once. `mmi.service` takes a service's name and answers "200" or "404";
`mmi.service.broker` takes a task and answers JSON (`services.builtin`). Tasks that change the broker are in
`services.administration`. Any other `mmi.` name is answered "501".
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge, nlargest
from typing import Any

from polydomo._version import __version__
from polydomo.core.broker import Broker
from polydomo.core.counts import Counts
from polydomo.core.model import JOB_COST, Client, Job, Service, Worker
from polydomo.core.names import parse_name, printable
from polydomo.core.principals import CALL, Principal
from polydomo.core.states import STATES
from polydomo.services.authorizer import AccessDenied, Authorizer, View, owner_of
from polydomo.services.builtin import BuiltIn, Raw, Tasks, is_internal, read_task, unquoted
from polydomo.services.slices import CallLater, SlicedQuery, chunks, run_sliced
from polydomo.wire.frames import frame

# Default number of rows of `show_jobs`.
JOBS_SHOWN = 100


class ManagementService:
    """Task catalogue of a broker. Creating it registers the `mmi` services."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker = broker
        self.name = name
        self.started = broker.now
        self.call_later: CallLater | None = None  # schedules the slices of long queries; set by the owner
        self.authorizer = Authorizer(broker)
        self.tasks = Tasks(self.authorizer, "mmi.service.broker")
        self.tasks.add(
            {
                "show_broker": self.show_broker,
                "show_services": self.show_services,
                "show_workers": self.show_workers,
                "show_clients": self.show_clients,
                "show_jobs": self.show_jobs,
                "pause_service": self.pause_service,
                "resume_service": self.resume_service,
                "show_memos": self.show_memos,
                "forget_memos": self.forget_memos,
            }
        )
        fallback = BuiltIn(broker, lambda frames, caller: Raw(b"501"))
        mmi = BuiltIn(broker, self._mmi_service)
        catalogue = BuiltIn(broker, lambda frames, caller: self.tasks.perform(read_task(frames), caller))
        self.own: list[BuiltIn] = [mmi, catalogue, fallback]
        mmi.offer(b"mmi.service")
        catalogue.offer(b"mmi.service.broker")
        broker.services.fallback = fallback.worker

    def show_broker(self) -> dict[str, Any]:
        """Return the broker's totals. Requests to the broker's own services are not counted."""
        broker = self.broker
        return {
            "name": self.name,
            "version": __version__,
            "uptime": round(broker.now - self.started, 3),
            "services": sum(1 for service in broker.services.values() if not is_internal(service.name)),
            "workers": sum(1 for worker in broker.workers if is_shown(worker)),
            "clients": sum(1 for client in broker.clients if client.total > client.questions),
            "submitted": broker.accounting.submitted,
            "accepted": broker.accounting.accepted,
            "refused": broker.accounting.totals.refused,
            "active": broker.accounting.active - broker.accounting.open_questions,
            "undecided": broker.accounting.undecided,
            "memory": broker.accounting.memory - sum(job.size + JOB_COST for job in self._own_requests()),
            **broker.accounting.totals.show(),
            "strays": broker.accounting.strays,
            "unlisted": broker.services.past.others.show(),
            "draining": broker.accounting.draining,
        }

    def show_services(self, view: View) -> Any:
        """List the services that have or recently had workers or jobs, without the broker's own.

        The counts of services that were dropped from the list are in `unlisted` of `show_broker`, so that the sums
        agree with the broker's totals.
        """
        return run_sliced(self._services(view), self.call_later)

    def show_workers(self, view: View, service: str | None = None, status: str | None = None) -> Any:
        """List all workers, or those of one service. Fields that norfab's client reads also have norfab's names."""
        if status not in (None, "", "any", "alive", "dead"):
            raise ValueError(f"no status {status!r}; there are alive, dead, any")
        if status == "dead":  # lost workers are not kept
            return []
        return run_sliced(self._workers(view, service), self.call_later)

    def show_clients(self, view: View) -> Any:
        """List the clients that sent a job and are connected or within their grace period."""
        return run_sliced(self._clients(view), self.call_later)

    def show_jobs(
        self, view: View, service: str | None = None, state: str | None = None, limit: int = JOBS_SHOWN
    ) -> Any:
        """List jobs, newest first: waiting, running, and the last thousand that ended."""
        if state is not None and state not in STATES:
            raise ValueError(f"no state {state!r}; there are {', '.join(STATES)}")
        if not isinstance(limit, int):
            raise TypeError(f"limit is a number of rows, not {limit!r}")
        return run_sliced(self._newest_jobs(view, service, state, max(limit, 0)), self.call_later)

    def pause_service(self, name: str) -> dict[str, Any]:
        """Hold the service's waiting jobs until `resume_service`; running jobs continue."""
        self.broker.control.pause(self._service(name))
        return {"name": name, "paused": True}

    def resume_service(self, name: str) -> dict[str, Any]:
        """Dispatch the jobs of a paused service again."""
        self.broker.control.resume(self._service(name))
        return {"name": name, "paused": False}

    def show_memos(self, view: View, service: str | None = None) -> list[dict[str, Any]]:
        """List memoised services: answers in memory, hits, and the time saved."""
        caches = self.broker.control.caches()
        names = set(caches)
        names.update(name for name, known in self.broker.services.items() if known.policy.memo)
        names.update(
            name
            for name, policy in self.broker.services.policies.items()
            if policy.memo and name[-1:] != b"*"
        )
        return [
            {"name": printable(name)} | self.broker.control.cache_of(name).show()
            for name in sorted(names)
            if service in (None, printable(name)) and view.service(name)
        ]

    def forget_memos(self, name: str, request: str | None = None) -> dict[str, Any]:
        """Discard the memoised answers of a service, or the one to this request (a text)."""
        body = None if request is None else frame(request.encode())
        return {"name": name, "forgotten": self.broker.control.forget_results(parse_name(name), body)}

    def _services(self, view: View) -> SlicedQuery[list[dict[str, Any]]]:
        broker = self.broker
        sorted_names = []
        for names in chunks([*broker.services, *broker.services.past.named]):
            sorted_names.append(sorted((printable(name), name) for name in names))
            yield
        rows = []
        for chunk in chunks(merge(*sorted_names)):
            for _, name in chunk:
                if not view.service(name):
                    continue
                service, past = broker.services.get(name), broker.services.past.named.get(name)
                if service is None and past is not None:
                    rows.append(past_row(name, past))
                elif service is not None and not service.internal:
                    rows.append(service_row(service))
            yield
        return rows

    def _workers(self, view: View, service: str | None) -> SlicedQuery[list[dict[str, Any]]]:
        rows = []
        for chunk in chunks(list(self.broker.workers)):
            for worker in chunk:
                seen = [offered.name for offered in worker.services if view.worker(worker, offered.name)]
                names = [printable(name) for name in seen]
                if names and is_shown(worker) and (service in (None, "", "all") or service in names):
                    rows.append(self._worker(worker, names))
            yield
        return rows

    def _clients(self, view: View) -> SlicedQuery[list[dict[str, Any]]]:
        rows = []
        for chunk in chunks(list(self.broker.clients)):
            requests: dict[Client, list[Job]] = {}
            for job in self._own_requests():
                requests.setdefault(job.client, []).append(job)
            rows += [
                self._client(client, requests.get(client, []))
                for client in chunk
                if client.total > client.questions and view.owned(client.principal.name)
            ]
            yield
        return rows

    def _newest_jobs(
        self, view: View, service: str | None, state: str | None, limit: int
    ) -> SlicedQuery[list[dict[str, Any]]]:
        newest: list[Job] = []
        for chunk in chunks(self._every_job()):
            found = [
                job
                for job in chunk
                if job is not None
                and not job.service.internal
                and (state is None or STATES[job.state] == state)
                and (service is None or printable(job.service.name) == service)
                and view.job(owner_of(job), job.requested_service)
            ]
            if found:  # a job that moved on between two slices may come twice
                newest = nlargest(limit, dict.fromkeys([*newest, *found]), key=lambda job: job.id)
            yield
        rows = []
        for jobs in chunks(newest):
            rows += [self._job(job) for job in jobs]
            yield
        return rows

    def _every_job(self) -> Iterator[Job | None]:
        """Yield every remembered job, and None after each service, which counts as work too.

        Queues come before workers and workers before ended jobs, so that a job that moves on is not missed.
        """
        broker = self.broker
        for service in list(broker.services.values()):
            yield None
            for line in service.queues():
                for ring in line.rings():
                    for lane in ring.in_turn():
                        yield from list(lane.jobs)
        for worker in list(broker.workers):
            yield from list(worker.running.values())
        yield from list(broker.accounting.recent)

    def _own_requests(self) -> list[Job]:
        """Return the requests that the broker's own services are working on."""
        return [job for port in self.own for job in port.worker.running.values()]

    def _service(self, name: str) -> Service:
        service = self.broker.services.get(parse_name(name))
        if service is None or is_internal(service.name):
            raise ValueError(f"no service {name!r}")
        return service

    def _client(self, client: Client, questions: list[Job]) -> dict[str, Any]:
        return {
            "name": printable(client.name),
            "dialect": client.dialect,
            "unanswered": client.jobs - len(questions),
            "bytes": client.size - sum(job.size for job in questions),
            "submitted": client.total - client.questions,
            "held": client.held or client.stalled,
            "since": round(self.broker.now - client.since, 3),
        }

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
            "state": "late" if worker.revoked else "busy" if worker.running else "idle",
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

    def _mmi_service(self, frames: list[bytes], caller: Principal) -> Raw:
        """Answer 200 if the named service has a worker, else 404 (RFC 8/MMI).

        For who may neither call nor observe the service, whether or not it exists, the answer is a refusal where the
        peer's protocol has one, and 404 elsewhere.
        """
        name = frames[0] if frames else b""
        view = self.authorizer.view(caller)
        may = False
        for known in (name, unquoted(name)):
            service = self.broker.services.get(known)
            workers = () if service is None else service.workers
            if view.may_call_some(known, workers):
                may = True
                if workers:
                    return Raw(b"200")
        if not may and not self.broker.principals.may(caller, CALL, unquoted(name)):
            raise AccessDenied(caller.name, CALL, unquoted(name), plain=b"404")
        return Raw(b"404")


def service_row(service: Service) -> dict[str, Any]:
    """Return a row of `show_services`."""
    return past_row(service.name, service.counts) | {
        "workers": len(service.workers),
        "idle": len(service.idle) + (0 if service.wakeup is None else service.wakeup.ready()),
        "waiting": service.queue.waiting + service.pinned_jobs,
        "paused": service.paused,
        "running": service.running,
    }


def past_row(name: bytes, counts: Counts) -> dict[str, Any]:
    """Return the row of a service that has no workers and jobs any more."""
    row = {"name": printable(name), "workers": 0, "idle": 0, "waiting": 0, "paused": False, "running": 0}
    return row | counts.show()


def is_shown(worker: Worker) -> bool:
    """Return whether to list the worker: not the broker's own, unless it offers a service that others may offer."""
    return not worker.internal or any(not is_internal(service.name) for service in worker.services)


def hold_time(worker: Worker, now: float) -> float:
    """Return for how many more seconds the worker may be silent."""
    beat = worker.heartbeat
    return max(0.0, worker.last_seen + beat.interval * beat.liveness - now)
