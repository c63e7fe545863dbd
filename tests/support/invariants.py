"""What must hold in the core after every step, whatever happened. Looks at all, believes no counter."""

from __future__ import annotations

from collections import Counter

from polydomo.core.broker import Broker
from polydomo.core.client import Client
from polydomo.core.counts import MEANINGS
from polydomo.core.job import (
    DELAYED,
    ENDS,
    EXTRA_COST,
    GATHERING,
    JOB_COST,
    RECORDING,
    RUNNING,
    STORING,
    WAITING,
    Job,
)
from polydomo.core.queue import FairQueue
from polydomo.core.registry import RESERVED, is_question
from polydomo.core.service import Service
from polydomo.core.timers import NEVER, SLACK
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
        assert not worker.running.keys() & worker.late.keys()
        if not worker.running and not worker.late:
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
            assert worker.internal or worker.fires_at <= job.due, "nobody looks when this job overruns"
            running[job.service] += 1
            jobs.append(job)
    for name, service in broker.services.items():
        assert service.name == name
        assert not service.unused(), "a service nothing uses is kept"
        elsewhere += service.elsewhere
        assert service.running == running.pop(service, 0)
        assert set(service.idle) <= set(service.workers) <= set(broker.workers)
        assert not (service.waiting and service.idle), "a job waits though a worker is idle"
        assert service.targeted == sum(line.waiting for line in service.named.values())
        for line in [service, *service.named.values()]:
            jobs += _check_line(broker, service, line)
        for name in service.named:
            worker = service.names.get(name)
            assert worker is None or worker not in service.idle, "a job waits for a worker that is idle"
    assert not running, "jobs run for services that are not known"
    jobs += _check_lifecycle(broker)
    assert broker.memory == sum(job.size + JOB_COST + (EXTRA_COST if job.extra else 0) for job in jobs)
    away = [job for job in jobs if job.state in (STORING, DELAYED, RECORDING, GATHERING)]
    jobs = [job for job in jobs if job.extra is None or job.extra.parent is None]  # only the whole is counted
    assert len({job.id for job in jobs}) == len(jobs) == broker.active
    assert elsewhere == sum(broker.services.get(job.service.name) is job.service for job in away)
    _check_clients(broker, jobs)
    _check_counts(broker, jobs)
    live = 2 * len(jobs) + sum(
        thing.fires_at < NEVER for things in (broker.workers, broker.services.values()) for thing in things
    )
    live += sum(client.fires_at < NEVER for client in broker.clients)
    assert len(broker.timers) <= 2 * live + SLACK, "alarms of things that are gone pile up"
    assert broker.timers.soonest <= broker.timers.next()
    assert len(broker.recent) <= 1000
    assert not any(job.body or job.envelope for job in broker.recent)


def _check_line(broker: Broker, service: Service, line: FairQueue) -> list[Job]:
    """One line and its levels."""
    found: list[Job] = []
    assert line is service or line.waiting, "an empty line is kept"
    for ring in line.rings():
        assert ring is line or ring.rotation, "an empty level is kept"
        assert set(ring.lanes.values()) == set(ring.rotation)
        assert len(ring.lanes) == len(ring.rotation)
        for client, lane in ring.lanes.items():
            assert lane.client is client
            assert client.lanes[ring] is lane
            assert lane.jobs, "an empty lane is kept"
            for job in lane.jobs:
                assert job.client is client
                assert not client.gone or broker.lifecycle.survives_client(job), (
                    "a job of a client that is gone waits"
                )
                assert job.service is service
                assert job.state == WAITING
                assert job.worker is None
                assert (job.extra.priority if job.extra else 0) == ring.priority
                soon = max(job.expires, broker.now + broker.expiry_pause(line))
                assert line.fires_at <= soon, "nobody looks when this job expires"
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
        assert all(job.due > now for job in worker.running.values()), "a job overran"
        if not worker.reading_paused and (not worker.running or worker.beats_busy):
            silence = now - worker.last_seen
            assert silence < worker.beat.interval * worker.beat.liveness + 1e-6, "a silent worker is kept"
        assert worker.last_sent + worker.beat.interval > now - 1e-6, "a heartbeat is owed"
    for service in broker.services.values():
        for line in [service, *service.named.values()]:
            late = now - broker.expiry_pause(line)
            assert all(job.expires > late for job in line.jobs()), "a job should have expired"


def _check_lifecycle(broker: Broker) -> list[Job]:
    """The jobs that are in no queue and with no worker."""
    lifecycle = broker.lifecycle
    found = {job for job in lifecycle.jobs.values() if job.state in (STORING, DELAYED, RECORDING, GATHERING)}
    found |= set(lifecycle.delayed)
    found |= {follower for job in lifecycle.jobs.values() if job.extra for follower in job.extra.followers}
    assert all(job.state == DELAYED for job in lifecycle.delayed)
    assert lifecycle.writing == sum(job.state not in (DELAYED, GATHERING) for job in found)
    for uid, job in lifecycle.jobs.items():
        assert job.extra is not None
        assert job.extra.uid == uid
        assert job.state not in ENDS, "an ended job is kept"
    for (name, key), job in lifecycle.keys.items():
        assert job.extra is not None
        assert (job.asked, job.extra.key) == (name, key)
        assert lifecycle.jobs[job.extra.uid] is job, "a key belongs to a job that has ended"
        assert all(follower.state == STORING for follower in job.extra.followers)
    for job in found:
        assert job.worker is None or job.state == RECORDING
        if not job.service.name.startswith(RESERVED):
            assert broker.services[job.service.name] is job.service
    return list(found)


def _check_counts(broker: Broker, jobs: list[Job]) -> None:
    """Every job is in one count, and the services' counts add up to the broker's."""
    ends = broker.done + broker.failed + broker.cancelled + broker.dead + broker.repeated
    assert broker.asked == sum(is_question(job) for job in jobs)
    assert broker.undecided == sum(job.extra is not None and not job.extra.accepted for job in jobs)
    assert broker.submitted == broker.accepted + broker.refused + broker.undecided
    assert broker.accepted == ends + broker.active - broker.asked - broker.undecided
    past = broker.past
    assert not past.named.keys() & broker.services.keys()
    every = [service.counts for service in broker.services.values()]
    shown = [counts.show() for counts in [*every, *past.named.values(), past.others]]
    for name in MEANINGS:
        assert sum(counts[name] for counts in shown) == getattr(broker, name), name


def _check_clients(broker: Broker, jobs: list[Job]) -> None:
    counts: Counter[Client] = Counter(job.client for job in jobs)
    sizes: Counter[Client] = Counter()
    for job in jobs:
        sizes[job.client] += job.size
        assert job.client.gone or job.client in broker.clients
    for client in {*broker.clients, *counts}:
        assert client.jobs == counts[client]
        assert client.size == sizes[client]
        for line, lane in client.lanes.items():
            assert line.lanes[client] is lane
            service = line.top().service()
            assert broker.services[service.name] is service
        if client.held and not client.gone:
            bounds = broker.bounds
            assert client.jobs * 2 > bounds.client_jobs or client.size * 2 > bounds.client_bytes
