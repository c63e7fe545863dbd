"""What must hold in the core after every step, whatever happened. Looks at all, believes no counter."""

from __future__ import annotations

from collections import Counter

from polydomo.core.broker import Broker
from polydomo.core.counts import MEANINGS
from polydomo.core.model import JOB_COST, Client, Job, Service
from polydomo.core.principals import Principal
from polydomo.core.queue import FairQueue
from polydomo.core.scheduler import expiry_pause
from polydomo.core.services import RESERVED, is_question
from polydomo.core.states import DELAYED, ENDS, HELD, RECORDING, RUNNING, STORING, WAITING
from polydomo.core.timers import NEVER, SLACK
from polydomo.core.tracked_job import TRACKED_COST, TrackedJob, survives_client
from polydomo.dialects.wmp.wakeup import WakeScheduler


def check_wakeups(broker: Broker) -> None:
    """Each open WAKE belongs to a worker of the service, and is counted once."""
    for service in broker.services.values():
        scheduler = service.wakeup
        if not isinstance(scheduler, WakeScheduler):
            continue
        assert scheduler.members, "a scheduler without workers"
        for wake in scheduler.open:
            assert wake.open
            assert wake.scheduler is scheduler
            assert wake.worker in scheduler.members
        for worker in scheduler.members:
            assert scheduler in worker.schedulers
            assert worker.core in service.workers
            counted = [wake for wake in worker.wakes.values() if wake.open]
            assert list(worker._open.values()) == counted
            assert all(wake in wake.scheduler.open for wake in counted)


def check(broker: Broker) -> None:
    """The books agree with what is there."""
    check_wakeups(broker)
    jobs: list[Job] = []
    running: Counter[Service] = Counter()
    elsewhere = 0  # with the disk, or delayed
    for worker in broker.workers:
        # Those that fetch their jobs themselves have none: they are given nothing unasked.
        fetches = worker.dialect == "wmp"
        assert fetches or len(worker.running) <= worker.credit, "a worker holds more than its credit"
        assert not worker.running.keys() & worker.revoked.keys()
        if not worker.running and not worker.revoked:
            assert worker.credit == worker.base_credit, "credit asked for was not given back"
        assert worker.internal or worker.fires_at < NEVER, "nobody looks at this worker any more"
        assert len(set(worker.services)) == len(worker.services)
        assert worker.services or fetches, "a worker of nothing"
        for service in worker.services:
            assert worker in service.workers
            assert broker.services[service.name] is service
            free = worker.free() > 0 and not service.paused
            assert (worker in service.idle) == free, "idle means free, and free means idle"
        for token, job in worker.running.items():
            assert job.token == token
            assert job.worker is worker
            assert job.state == RUNNING
            assert fetches or job.service in worker.services
            assert worker.internal or worker.fires_at <= job.attempt_deadline, (
                "nobody looks when this job overruns"
            )
            running[job.service] += 1
            jobs.append(job)
    for name, service in broker.services.items():
        assert service.name == name
        assert service.is_used(), "a service nothing uses is kept"
        elsewhere += service.held
        assert service.running == running.pop(service, 0)
        assert set(service.idle) <= set(service.workers) <= set(broker.workers)
        assert not (service.queue.waiting and service.idle), "a job waits though a worker is idle"
        assert service.pinned_jobs == sum(line.waiting for line in service.pinned.values())
        for line in service.queues():
            jobs += _check_line(broker, service, line)
        for name in service.pinned:
            worker = service.names.get(name)
            assert worker is None or worker not in service.idle, "a job waits for a worker that is idle"
    assert not running, "jobs run for services that are not known"
    jobs += _check_held(broker)
    _check_principals(broker, jobs)
    away = [job for job in jobs if job.state in HELD]
    jobs = [
        job for job in jobs if not isinstance(job, TrackedJob) or job.parent is None
    ]  # only the whole is counted
    assert len({job.id for job in jobs}) == len(jobs) == broker.accounting.active
    assert elsewhere == sum(broker.services.get(job.service.name) is job.service for job in away)
    _check_clients(broker, jobs)
    _check_counts(broker, jobs)
    live = 2 * len(jobs) + sum(
        thing.fires_at < NEVER
        for things in (
            broker.workers,
            [queue for service in broker.services.values() for queue in service.queues()],
        )
        for thing in things
    )
    live += sum(client.fires_at < NEVER for client in broker.clients) + (broker.quotas.fires_at < NEVER)
    assert len(broker.timers) <= 2 * live + SLACK, "alarms of things that are gone pile up"
    assert broker.timers.soonest <= broker.timers.next()
    assert len(broker.accounting.recent) <= 1000
    assert not any(job.body or job.envelope for job in broker.accounting.recent)


def _check_line(broker: Broker, service: Service, line: FairQueue) -> list[Job]:
    """One line and its levels."""
    found: list[Job] = []
    assert line is service.queue or line.waiting, "an empty line is kept"
    for ring in line.rings():
        assert ring is line or ring.rotation, "an empty level is kept"
        assert set(ring.client_queues.values()) == set(ring.in_turn())
        assert len(ring.client_queues) == len(ring.in_turn())
        assert bool(ring.rotation) == bool(ring.client_queues), "jobs wait and no principal has its turn"
        assert ring.principal not in ring.others
        for principal, share in [(ring.principal, ring.rotation), *ring.others.items()]:
            assert share or share is ring.rotation, "an empty share is kept"
            assert all(lane.client.principal is principal for lane in share)
        for client, lane in ring.client_queues.items():
            assert lane.client is client
            assert client.queues[ring] is lane
            assert lane.jobs, "an empty lane is kept"
            for job in lane.jobs:
                assert job.client is client
                assert not client.gone or survives_client(job), "a job of a client that is gone waits"
                assert job.service is service
                assert job.state == WAITING
                assert job.worker is None
                assert (job.priority if isinstance(job, TrackedJob) else 0) == ring.priority
                soon = max(job.expires, broker.now + expiry_pause(line))
                assert line.whole().fires_at <= soon, "nobody looks when this job expires"
                found.append(job)
    assert line.waiting == len(found)
    return found


def check_time(broker: Broker) -> None:
    """Right after a tick nothing is overdue."""
    now = broker.now
    assert broker.timers.next() > now
    for worker in broker.workers:
        if worker.internal:
            continue
        assert all(job.attempt_deadline > now for job in worker.running.values()), "a job overran"
        if not worker.reading_paused and (not worker.running or worker.beats_busy):
            silence = now - worker.last_seen
            assert silence < worker.heartbeat.interval * worker.heartbeat.liveness + 1e-6, (
                "a silent worker is kept"
            )
        assert worker.last_sent + worker.heartbeat.interval > now - 1e-6, "a heartbeat is owed"
    for service in broker.services.values():
        for line in service.queues():
            late = now - expiry_pause(line)
            assert all(job.expires > late for job in line.jobs()), "a job should have expired"


def _check_held(broker: Broker) -> list[Job]:
    """Return the jobs that a feature holds: they are in no queue and with no worker."""
    tracked = broker.jobs.known
    found: set[Job] = {job for job in tracked.values() if job.state in HELD}
    found |= set(broker._delay.held)
    found |= {follower for job in tracked.values() for follower in job.followers}
    assert all(job.state == DELAYED for job in broker._delay.held)
    assert broker._tracking.writing == sum(job.state in (STORING, RECORDING) for job in found)
    for uid, job in tracked.items():
        assert job.uid == uid
        assert job.state not in ENDS, "an ended job is kept"
    for (owner, name, key), job in broker._dedup.keys.items():
        assert (job.owner(), job.requested_service, job.key) == (owner, name, key)
        assert tracked[job.uid] is job, "a key belongs to a job that has ended"
        assert all(follower.state == STORING for follower in job.followers)
    for one in found:
        assert one.worker is None or one.state == RECORDING
        if not one.service.name.startswith(RESERVED):
            assert broker.services[one.service.name] is one.service
    return list(found)


def _check_counts(broker: Broker, jobs: list[Job]) -> None:
    """Every job is in one count, and the services' counts add up to the broker's."""
    ends = (
        broker.accounting.totals.done
        + broker.accounting.totals.failed
        + broker.accounting.totals.cancelled
        + broker.accounting.totals.dead
        + broker.accounting.totals.repeated
    )
    assert broker.accounting.open_questions == sum(is_question(job) for job in jobs)
    assert broker.accounting.undecided == sum(
        isinstance(job, TrackedJob) and not job.accepted for job in jobs
    )
    assert (
        broker.accounting.submitted
        == broker.accounting.accepted + broker.accounting.totals.refused + broker.accounting.undecided
    )
    assert (
        broker.accounting.accepted
        == ends + broker.accounting.active - broker.accounting.open_questions - broker.accounting.undecided
    )
    past = broker.services.past
    assert not past.named.keys() & set(broker.services)
    every = [service.counts for service in broker.services.values()]
    shown = [counts.show() for counts in [*every, *past.named.values(), past.others]]
    for name in MEANINGS:
        assert sum(counts[name] for counts in shown) == getattr(broker.accounting.totals, name), name


def _check_clients(broker: Broker, jobs: list[Job]) -> None:
    counts: Counter[Client] = Counter(job.client for job in jobs)
    sizes: Counter[Client] = Counter()
    for job in jobs:
        sizes[job.client] += job.size
        assert job.client.gone or job.client in broker.clients
    for client in {*broker.clients, *counts}:
        assert client.jobs == counts[client]
        assert client.size == sizes[client]
        for line, lane in client.queues.items():
            assert line.client_queues[client] is lane
            assert lane.jobs[0].service is broker.services[lane.jobs[0].service.name]
        if client.held and not client.gone and not client.throttled:
            bounds = broker.services.limits
            shadow = 0 if client.shadow is None else client.shadow.size
            assert client.jobs * 2 > bounds.client_jobs or (client.size + shadow) * 2 > bounds.client_bytes


def _check_principals(broker: Broker, jobs: list[Job]) -> None:
    """What each principal takes, within its quota, and which of its clients are held for that. `jobs`: with parts."""
    counts: Counter[Principal] = Counter()
    memory: Counter[Principal] = Counter()
    for job in jobs:
        principal = job.client.principal
        counts[principal] += not isinstance(job, TrackedJob) or job.parent is None
        memory[principal] += job.size + JOB_COST + (TRACKED_COST if job.tracked else 0)
    assert sum(memory.values()) == broker.accounting.memory
    for principal in {*broker.principals.known.values(), *counts}:
        assert broker.principals.known[principal.name] is principal
        assert (principal.jobs, principal.memory) == (counts[principal], memory[principal])
        held = broker.quotas.held.get(principal, {})
        assert principal.throttled == bool(held)
        assert set(held) == {
            client for client in broker.clients if client.principal is principal and client.throttled
        }
        assert all(client.held and not client.gone for client in held)
    assert not broker.quotas.held or broker.quotas.fires_at < NEVER, "held clients are never looked at again"
