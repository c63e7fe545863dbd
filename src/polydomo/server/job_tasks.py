"""Catalogue tasks on durable jobs: show, cancel, send again and remove them.

Like all tasks they are called through `mmi.service.broker`. Tasks that read the disk have deferred answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from polydomo.core.names import parse_name, printable
from polydomo.core.pieces import unpack
from polydomo.core.services import Services
from polydomo.deferred import Deferred, confirmed, deferring
from polydomo.server.clock import wall_time
from polydomo.server.record_codec import several
from polydomo.server.store_adapter import StoreAdapter
from polydomo.services.authorizer import View
from polydomo.services.management import ManagementService
from polydomo.store import Store
from polydomo.store.records import DONE, JobChange, JobFilter, JobPage, JobRecord
from polydomo.wire.frames import split

# Most events of one job.
EVENTS_SHOWN = 200

# Pages of the store that are searched for one page of visible jobs.
FINDS_MAX = 20

TASKS = (
    "show_stored_jobs",
    "show_stored_job",
    "show_dead_letters",
    "cancel_job",
    "resend_job",
    "forget_job",
)


def refuse_tasks(management: ManagementService, names: Iterable[str]) -> None:
    """Let tasks of the catalogue fail because the broker has no store."""
    management.tasks.refuse(
        names, "this broker keeps no durable jobs: give it a folder (--data) or a server (store.url)"
    )


class JobTasks:
    """Tasks on one store. Creating it adds them to the catalogue.

    `flush_ledger` is awaited before the record of an ended job is changed or removed: the job's ledger row may have to
    be rebuilt from it.
    """

    def __init__(
        self,
        adapter: StoreAdapter,
        management: ManagementService,
        flush_ledger: Callable[[], Awaitable[None]],
    ) -> None:
        self.adapter = adapter
        self.flush_ledger = flush_ledger
        self.store = adapter.store
        management.tasks.add({name: getattr(self, name) for name in TASKS})
        management.authorizer.find_stored = self.owner_of

    async def owner_of(self, id: str) -> tuple[str, bytes] | None:
        """Return the owner and the service of a stored job."""
        job = await self.store.get(id)
        return None if job is None else (job.principal, job.service)

    @deferring
    async def show_stored_jobs(
        self,
        view: View,
        service: str | None = None,
        state: str | None = None,
        client: str | None = None,
        key: str | None = None,
        limit: int = 100,
        page: str | None = None,
    ) -> dict[str, Any]:
        """List durable jobs, newest first; `next` is the `page` to ask for next."""
        found = await find_visible(
            self.store,
            self.adapter.broker.services,
            view,
            JobFilter(
                service=None if service is None else parse_name(service),
                state=state,
                client=None if client is None else parse_name(client),
                key=key,
                limit=limit,
                page=page,
            ),
        )
        return {"jobs": [job_row(job) for job in found.jobs], "next": found.next}

    def show_dead_letters(
        self, view: View, service: str | None = None, limit: int = 100, page: str | None = None
    ) -> Deferred[dict[str, Any]]:
        """List the jobs that used up their attempts."""
        return self.show_stored_jobs(view, service=service, state="dead", limit=limit, page=page)

    @deferring
    async def show_stored_job(self, id: str) -> dict[str, Any]:
        """Return one job with its request, attempts, events and result. Frames that are no text are shown in hex."""
        job = await self.store.get(id)
        if job is None:
            raise ValueError(f"no job {id!r}")
        attempts = await self.store.attempts(id)
        events = await self.store.events(id, limit=EVENTS_SHOWN)
        result = await self.store.result(id)
        shown: Any = None
        if result is not None and result.body is not None:
            if result.state == DONE and several(job):
                shown = {
                    printable(piece.name): piece.reason or _shown(piece.body or b"")
                    for piece in unpack(result.body)
                }
            else:
                shown = _shown(result.body)
        return job_row(job) | {
            "request": _shown(job.body),
            "history": [
                {
                    "attempt": one.number,
                    "worker": printable(one.worker),
                    "started": one.started,
                    "ended": one.ended,
                    "outcome": one.outcome or "running",
                }
                for one in attempts
            ],
            "events": [
                {"at": one.at, "worker": printable(one.worker), "kind": one.kind, "body": printable(one.body)}
                for one in events
            ],
            "result": shown,
        }

    def cancel_job(self, id: str) -> dict[str, Any]:
        """Cancel an unfinished job; a running one is taken from its worker."""
        broker = self.adapter.broker
        job = broker.jobs.known.get(id)
        if job is None or not broker.cancel(job):
            raise ValueError(f"no job {id!r} that could be cancelled")
        return {"id": id, "cancelled": True}

    @deferring
    async def resend_job(self, id: str) -> dict[str, Any]:
        """Run a dead, failed or cancelled job again."""
        adapter = self.adapter
        await self.flush_ledger()
        await confirmed(lambda done: self.store.revive(id, wall_time(), done))
        job = await self.store.get(id)
        if job is not None:
            job.max_attempts = job.attempt + adapter.broker.services.policy_of(job.service).retries + 1
            self.store.update(id, JobChange(max_attempts=job.max_attempts))
            adapter.advance()
            adapter.events.forget_result(id)
            adapter.recovery.revive(job)
            await adapter.holdings.refresh()
        return {"id": id, "sent": job is not None}

    @deferring
    async def forget_job(self, id: str) -> dict[str, Any]:
        """Remove an ended job and its result."""
        if self.adapter.broker.jobs.is_open(id):
            raise ValueError(f"job {id!r} has not ended; cancel it first")
        await self.flush_ledger()
        await confirmed(lambda done: self.store.forget(id, done))
        await self.adapter.holdings.refresh()
        return {"id": id, "forgotten": True}


async def find_visible(store: Store, services: Services, view: View, wanted: JobFilter) -> JobPage:
    """Return a page of the jobs that a principal sees in lists.

    Its own are found by the store. If it may observe some services only, the page can be shorter than its limit,
    because others' jobs are left out after they were found.
    """
    if view.everything() or (wanted.service is not None and view.service(wanted.service)):
        return await store.find(wanted)
    if wanted.service is not None or not any(view.service(name) for name in services):
        return await store.find(msgspec.structs.replace(wanted, principal=view.caller.name))
    jobs: list[JobRecord] = []
    page = JobPage([], wanted.page)
    for _ in range(FINDS_MAX):
        page = await store.find(
            msgspec.structs.replace(wanted, page=page.next, limit=wanted.limit - len(jobs))
        )
        jobs += [job for job in page.jobs if view.job(job.principal, job.service)]
        if page.next is None or len(jobs) == wanted.limit:
            break
    return JobPage(jobs, page.next)


def _shown(body: bytes) -> list[str]:
    return [printable(part) for part in split(body)]


def job_row(job: JobRecord) -> dict[str, Any]:
    """Describe a stored job; times are in microseconds since 1970."""
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
        "key": job.key,
        "target": job.target,
        "priority": job.priority,
        "bytes_in": job.size_in,
        "bytes_out": job.size_out,
        "submitted": job.submitted,
        "dispatched": job.dispatched,
        "finished": job.finished,
    }
