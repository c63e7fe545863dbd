"""Metrics for Prometheus. They are collected from the broker's counters at each scrape, so jobs cost nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from heapq import nlargest, nsmallest
from itertools import chain
from typing import TYPE_CHECKING, Final

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as MetricFamily
from prometheus_client.registry import Collector
from starlette.responses import Response

from polydomo._version import __version__
from polydomo.core.counts import MEANINGS
from polydomo.core.model import Service
from polydomo.core.names import printable
from polydomo.server.extensions import Metric
from polydomo.services.management import is_shown
from polydomo.services.slices import chunks
from polydomo.web.api.openapi import text_response

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

# Limit of services with metrics of their own: clients can invent names, and each would be a time series for ever.
SERVICES: Final = 200

# The same for principals: third parties name some of them.
PRINCIPALS: Final = 100

LabelledValues = dict[tuple[str, ...], float]

# Metrics of one service: name, help text, function.
GAUGES: Final = (
    ("workers", "Workers that offer the service.", lambda service: len(service.workers)),
    ("waiting", "Jobs that wait for a worker.", lambda service: service.queue.waiting + service.pinned_jobs),
    ("running", "Jobs that run.", lambda service: service.running),
    ("paused", "1: the service is paused.", lambda service: int(service.paused)),
)

# Metrics of one principal: name, attribute of a principal, help text.
PRINCIPAL_GAUGES: Final = (
    ("jobs", "jobs", "Unanswered jobs of the principal."),
    ("bytes", "memory", "Bytes of its unanswered jobs in memory."),
    ("stored_bytes", "stored", "Bytes of its jobs on disk, finished ones included."),
    ("connections", "connections", "Its open connections."),
)

# Metrics of all result caches: name, attribute of a cache, help text.
CACHE_COUNTERS: Final = (
    ("hits", "hits", "Requests answered from the cache."),
    ("joined", "joined", "Requests that joined an identical one in progress."),
    ("misses", "misses", "Requests dispatched to a worker."),
    ("saved_seconds", "saved", "Worker time saved by the cache."),
)


def make_router(server: BrokerServer) -> APIRouter:
    """Return the route `/metrics`."""
    router = APIRouter(tags=["broker"], default_response_class=Response)
    registry = CollectorRegistry()
    collector = BrokerCollector(server)
    registry.register(collector)
    ProcessCollector(registry=registry)

    @router.get(
        "/metrics",
        summary="Metrics for Prometheus",
        responses=text_response("Prometheus' text format.", "text/plain", "polydomo_jobs_done_total 41.0\n"),
    )
    async def metrics() -> Response:
        """Return metrics of jobs, services, peers, the store, the ledger, the audit log and result caches."""
        await collector.choose()
        server.advance()
        return Response(generate_latest(registry), 200, {"cache-control": "no-store"}, CONTENT_TYPE_LATEST)

    return router


class BrokerCollector(Collector):
    """Collector that reads the broker's counters at each scrape."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self._chosen: list[Service] = []  # services with metrics of their own

    async def choose(self) -> None:
        """Choose the services for a scrape. There may be a hundred thousand: yield to other tasks in between."""
        policies = self.server.broker.services.policies
        chosen: list[Service] = []
        for chunk in chunks(list(self.server.broker.services.values())):
            found = [service for service in chunk if not service.internal]
            chosen = nsmallest(
                SERVICES, [*chosen, *found], key=lambda one: _importance(one, one.name in policies)
            )
            await asyncio.sleep(0)
        self._chosen = chosen

    def describe(self) -> Iterable[MetricFamily]:
        """Return nothing, so that registration does not collect."""
        return []

    def collect(self) -> Iterable[MetricFamily]:
        parts = (
            self._jobs,
            self._services,
            self._principals,
            self._peers,
            self._store,
            self._ledger,
            self._audit,
            self._memos,
        )
        for metric in chain(*(part() for part in parts), *(one.figures() for one in self.server.extensions)):
            kind = CounterMetricFamily if metric.counter else GaugeMetricFamily
            family = kind(metric.name, metric.what, labels=list(metric.labels))
            for labels, value in metric.values.items():
                family.add_metric(list(labels), value)
            yield family

    def _jobs(self) -> Iterable[Metric]:
        """Yield the counters of `show_broker`, which exclude jobs for the broker's own services."""
        counts = self.server.management.show_broker()
        yield Metric(
            "polydomo_info", "1, with the version as a label.", {(__version__,): 1}, ("version",), False
        )
        yield gauge("polydomo_uptime_seconds", "Since the broker was started.", counts["uptime"])
        yield gauge("polydomo_draining", "1: the broker is stopping.", counts["draining"])
        yield counter("polydomo_jobs_submitted", "Submitted jobs.", counts["submitted"])
        yield counter("polydomo_jobs_accepted", "Accepted jobs.", counts["accepted"])
        for name, what in MEANINGS.items():
            yield counter(f"polydomo_jobs_{name}", _sentence(what), counts[name])
        yield counter("polydomo_strays", "Replies to attempts that were over.", counts["strays"])
        yield gauge("polydomo_jobs_active", "Jobs that have not ended.", counts["active"])
        yield gauge("polydomo_jobs_undecided", "Active jobs that are not stored yet.", counts["undecided"])
        yield gauge("polydomo_jobs_bytes", "Bytes of active jobs.", counts["memory"])
        limit = self.server.broker.services.limits.memory
        yield gauge("polydomo_jobs_bytes_limit", "Limit of bytes of active jobs.", limit)
        yield gauge("polydomo_transit_bytes", "Bytes from or to peers.", self.server.budget.transit)
        yield counter("polydomo_invalid_messages", "Invalid messages.", self.server.violations)

    def _services(self) -> Iterable[Metric]:
        broker = self.server.broker
        count = self.server.management.show_broker()["services"]
        yield gauge("polydomo_services", "Services with workers or jobs; not all have metrics.", count)
        services = [one for one in self._chosen if broker.services.get(one.name) is one]
        for name, what, read in GAUGES:
            values: LabelledValues = {(printable(service.name),): read(service) for service in services}
            yield Metric(f"polydomo_service_{name}", what, values, ("service",), False)
        counts = {printable(service.name): service.counts.show() for service in services}
        past = broker.services.past.named
        for left in list(past)[-(SERVICES - len(services)) :] if len(services) < SERVICES else []:
            counts[printable(left)] = past[left].show()
        totals = broker.accounting.totals.show()
        for name, what in MEANINGS.items():
            values = {(label,): shown[name] for label, shown in counts.items()}
            values[("",)] = totals[name] - sum(values.values())  # all other services
            yield Metric(f"polydomo_service_{name}", _sentence(what), values, ("service",))

    def _principals(self) -> Iterable[Metric]:
        """Yield the metrics of the principals that take most."""
        known = list(self.server.broker.principals.known.values())
        yield gauge("polydomo_principals", "Principals with peers or jobs; not all have metrics.", len(known))
        chosen = nlargest(PRINCIPALS, known, key=lambda one: (one.memory + one.stored, one.connections))
        for name, attribute, what in PRINCIPAL_GAUGES:
            values: LabelledValues = {(one.name,): getattr(one, attribute) for one in chosen}
            yield Metric(f"polydomo_principal_{name}", what, values, ("principal",), False)
        refused: LabelledValues = {(one.name,): one.refused for one in chosen}
        what = "Jobs that its quota refused."
        yield Metric("polydomo_principal_refused", what, refused, ("principal",))

    def _peers(self) -> Iterable[Metric]:
        server, broker = self.server, self.server.broker
        workers: Counter[tuple[str, ...]] = Counter(
            (worker.dialect, "late" if worker.revoked else "busy" if worker.running else "idle")
            for worker in broker.workers
            if is_shown(worker)
        )
        labels = ("dialect", "state")
        yield Metric("polydomo_workers", "Registered workers.", _sorted(workers), labels, False)
        clients: Counter[tuple[str, ...]] = Counter(
            (client.dialect,) for client in broker.clients if client.total > client.questions
        )
        what = "Clients that have submitted a job."
        yield Metric("polydomo_clients", what, _sorted(clients), ("dialect",), False)
        connections: LabelledValues = {(name,): len(group.peers) for name, group in server.groups.items()}
        requests = []
        for extension in server.extensions:
            shown = extension.show()
            if "connections" in shown:
                connections[(extension.name,)] = shown["connections"]
            if "requests" in shown:
                name = f"polydomo_{extension.name}_requests"
                requests.append(counter(name, "Answered requests.", shown["requests"]))
        yield Metric("polydomo_connections", "Open connections.", connections, ("wire",), False)
        yield from requests

    def _store(self) -> Iterable[Metric]:
        store, watch = self.server.store, self.server.store_watch
        if store is None or watch is None:
            return
        yield counter("polydomo_store_commits", "Transactions since the broker was started.", store.commits)
        yield counter("polydomo_store_writes", "Writes in these transactions.", store.writes)
        yield gauge("polydomo_store_backlog_bytes", "Bytes that are not written yet.", store.backlog)
        yield gauge("polydomo_store_trouble", "1: durable jobs are refused.", watch.trouble is not None)

    def _ledger(self) -> Iterable[Metric]:
        shown = self.server.ledger.show()
        if not shown:
            return
        yield counter("polydomo_ledger_rows", "Rows in segments on disk.", shown["rows_written"])
        yield counter("polydomo_ledger_segments", "Written segments.", shown["segments"])
        yield counter("polydomo_ledger_lost", "Rows that could not be written in time.", shown["lost"])
        yield gauge("polydomo_ledger_trouble", "1: the ledger cannot be written.", bool(shown["trouble"]))

    def _audit(self) -> Iterable[Metric]:
        shown = self.server.audit.show()
        if not shown:
            return
        yield counter("polydomo_audit_records", "Records of the audit log since the start.", shown["written"])
        yield counter("polydomo_audit_lost", "Denials and events that could not be recorded.", shown["lost"])
        yield gauge("polydomo_audit_trouble", "1: administration is refused.", bool(shown["trouble"]))

    def _memos(self) -> Iterable[Metric]:
        caches = list(self.server.broker.control.caches().values())
        for name, attribute, what in CACHE_COUNTERS:
            total = sum(getattr(cache, attribute) for cache in caches)
            yield counter(f"polydomo_memo_{name}", what, total)
        yield gauge("polydomo_memo_bytes", "Bytes of cached results.", sum(cache.held for cache in caches))


def gauge(name: str, what: str, value: float) -> Metric:
    """Return a gauge without labels."""
    return Metric(name, what, {(): value}, counter=False)


def counter(name: str, what: str, value: float) -> Metric:
    """Return a counter without labels; Prometheus gets it with the suffix `_total`."""
    return Metric(name, what, {(): value})


def _sorted(counts: Counter[tuple[str, ...]]) -> LabelledValues:
    return dict(sorted(counts.items()))


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _importance(service: Service, configured: bool) -> tuple[bool, bool, int, bytes]:
    """Return a sort key: services with workers or settings first, then those with most jobs."""
    return (not service.workers, not configured, -service.queue.waiting - service.running, service.name)
