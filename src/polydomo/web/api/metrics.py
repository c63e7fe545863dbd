"""Prometheus' view of the broker. Everything is read from the broker's books when somebody asks; a job costs nothing
for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from polydomo._version import __version__
from polydomo.core.counts import MEANINGS
from polydomo.core.names import printable
from polydomo.core.service import Service
from polydomo.services.management import is_shown
from polydomo.services.slices import chunks

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

# Services that are shown one by one. Anybody can make up names, and every one would be a time series for ever.
SERVICES: Final = 200

# Of one service: what it is called, what it means, where it is.
GAUGES: Final = (
    ("workers", "Workers that offer the service.", lambda service: len(service.workers)),
    ("waiting", "Jobs that wait for a worker.", lambda service: service.waiting + service.targeted),
    ("running", "Jobs that workers have.", lambda service: service.running),
    ("paused", "1: no job is given to a worker.", lambda service: int(service.paused)),
)


def make_router(server: BrokerServer) -> APIRouter:
    """See the module's text."""
    router = APIRouter(tags=["broker"])
    registry = CollectorRegistry()
    books = BrokerCollector(server)
    registry.register(books)
    ProcessCollector(registry=registry)
    text: dict[int | str, dict[str, Any]] = {
        200: {
            "description": "Prometheus' text format.",
            "content": {
                "text/plain": {"schema": {"type": "string"}, "example": "polydomo_jobs_done_total 41.0\n"}
            },
        }
    }

    @router.get("/metrics", summary="Figures for Prometheus", response_class=Response, responses=text)
    async def metrics() -> Response:
        """Jobs, services, workers, clients, connections, the store, the ledger, and what memoised services
        saved."""
        await books.choose()
        server.advance()
        return Response(generate_latest(registry), 200, {"cache-control": "no-store"}, CONTENT_TYPE_LATEST)

    return router


class BrokerCollector(Collector):
    """Reads them at each scrape."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self._chosen: list[Service] = []  # those that are shown one by one

    async def choose(self) -> None:
        """Before a scrape: choose the services to be shown. There may be a hundred thousand: others have their turns
        in between."""
        policies = self.server.broker.policies
        chosen: list[Service] = []
        for chunk in chunks(list(self.server.broker.services.values())):
            found = [service for service in chunk if not service.internal]
            chosen = nsmallest(
                SERVICES, [*chosen, *found], key=lambda one: _matters(one, one.name in policies)
            )
            await asyncio.sleep(0)
        self._chosen = chosen

    def describe(self) -> Iterable[Metric]:
        """Nothing is looked at when it is registered."""
        return []

    def collect(self) -> Iterable[Metric]:
        yield from self._jobs()
        yield from self._services()
        yield from self._peers()
        yield from self._store()
        yield from self._ledger()
        yield from self._memos()
        yield from self._doors()

    def _doors(self) -> Iterable[Metric]:
        for extension in self.server.extensions:
            for figure in extension.figures():
                kind = CounterMetricFamily if figure.counter else GaugeMetricFamily
                family = kind(figure.name, figure.what, labels=list(figure.labels))
                _fill(family, [(list(labels), value) for labels, value in figure.values.items()])
                yield family

    def _jobs(self) -> Iterable[Metric]:
        """As `show_broker` has them: what the broker is asked itself is not counted."""
        broker = self.server.broker
        books = self.server.management.show_broker()
        yield gauge("polydomo_info", "1, with the version as a label.", 1, version=__version__)
        yield gauge("polydomo_uptime_seconds", "Since the broker was started.", books["uptime"])
        yield gauge("polydomo_draining", "1: the broker is stopping.", int(books["draining"]))
        yield counter("polydomo_jobs_submitted", "Jobs that came.", books["submitted"])
        yield counter("polydomo_jobs_accepted", "Jobs that were taken.", books["accepted"])
        for name, what in MEANINGS.items():
            yield counter(f"polydomo_jobs_{name}", _sentence(what), books[name])
        yield counter("polydomo_strays", "Answers to attempts that were over.", books["strays"])
        yield gauge("polydomo_jobs_active", "Jobs that have not ended.", books["active"])
        yield gauge(
            "polydomo_jobs_undecided", "Of these, not accepted yet: being stored.", books["undecided"]
        )
        yield gauge("polydomo_jobs_bytes", "Bytes they take.", books["memory"])
        yield gauge("polydomo_jobs_bytes_limit", "What they may have.", broker.bounds.memory)
        yield gauge(
            "polydomo_transit_bytes", "Bytes on their way from or to peers.", self.server.budget.transit
        )
        yield counter("polydomo_invalid_messages", "Messages that could not be read.", self.server.violations)

    def _services(self) -> Iterable[Metric]:
        broker = self.server.broker
        count = self.server.management.show_broker()["services"]
        yield gauge("polydomo_services", "Services with workers or jobs; not all are shown.", count)
        services = [one for one in self._chosen if broker.services.get(one.name) is one]
        for name, what, read in GAUGES:
            family: Metric = GaugeMetricFamily(f"polydomo_service_{name}", what, labels=["service"])
            _fill(family, [([printable(service.name)], read(service)) for service in services])
            yield family
        counts = {printable(service.name): service.counts.show() for service in services}
        past = broker.past.named
        for left in list(past)[-(SERVICES - len(services)) :] if len(services) < SERVICES else []:
            counts[printable(left)] = past[left].show()
        for name, what in MEANINGS.items():
            family = CounterMetricFamily(f"polydomo_service_{name}", _sentence(what), labels=["service"])
            rows: list[tuple[list[str], float]] = [([label], shown[name]) for label, shown in counts.items()]
            rows.append(
                ([""], getattr(broker, name) - sum(value for _, value in rows))
            )  # those not shown by name
            _fill(family, rows)
            yield family

    def _peers(self) -> Iterable[Metric]:
        server, broker = self.server, self.server.broker
        workers = Counter(
            (worker.dialect, "late" if worker.late else "busy" if worker.running else "idle")
            for worker in broker.workers
            if is_shown(worker)
        )
        family = GaugeMetricFamily("polydomo_workers", "Workers that are here.", labels=["dialect", "state"])
        _fill(family, [(list(labels), count) for labels, count in sorted(workers.items())])
        yield family
        clients = Counter(client.dialect for client in broker.clients if client.total > client.questions)
        family = GaugeMetricFamily("polydomo_clients", "Clients that have sent a job.", labels=["dialect"])
        _fill(family, [([dialect], count) for dialect, count in sorted(clients.items())])
        yield family
        shown = {extension.name: extension.show() for extension in server.extensions}
        connections = {
            "zmq": len(server.zmq.peers),
            "events": len(server.events.subscribers),
            "nng": len(server.nng.peers),
        } | {name: found["connections"] for name, found in shown.items() if "connections" in found}
        family = GaugeMetricFamily("polydomo_connections", "Open connections.", labels=["wire"])
        _fill(family, [([wire], count) for wire, count in connections.items()])
        yield family
        for name, found in shown.items():
            if "requests" not in found:
                continue
            yield counter(f"polydomo_{name}_requests", "Requests that were answered.", found["requests"])

    def _store(self) -> Iterable[Metric]:
        store, watch = self.server.store, self.server.store_watch
        if store is None or watch is None:
            return
        yield counter("polydomo_store_commits", "Transactions since the broker was started.", store.commits)
        yield counter("polydomo_store_writes", "Writes in them.", store.writes)
        yield gauge("polydomo_store_backlog_bytes", "Bytes that wait to be written.", store.backlog)
        yield gauge("polydomo_store_trouble", "1: durable jobs are refused.", int(watch.trouble is not None))

    def _ledger(self) -> Iterable[Metric]:
        shown = self.server.ledger.show()
        if not shown:
            return
        yield counter("polydomo_ledger_rows", "Rows in segments on disk.", shown["rows_written"])
        yield counter("polydomo_ledger_segments", "Segments that were written.", shown["segments"])
        yield counter("polydomo_ledger_lost", "Rows that could not be written in time.", shown["lost"])
        yield gauge("polydomo_ledger_trouble", "1: it cannot be written now.", int(bool(shown["trouble"])))

    def _memos(self) -> Iterable[Metric]:
        shelves = list(self.server.broker.memos.shelves.values())
        total = {
            name: sum(getattr(shelf, name) for shelf in shelves)
            for name in ("hits", "joined", "misses", "saved")
        }
        yield counter("polydomo_memo_hits", "Requests answered from memory or disk.", total["hits"])
        yield counter("polydomo_memo_joined", "Requests that waited for the same one.", total["joined"])
        yield counter("polydomo_memo_misses", "Requests that went to a worker.", total["misses"])
        yield counter("polydomo_memo_saved_seconds", "Workers' time that was saved.", total["saved"])
        yield gauge("polydomo_memo_bytes", "Answers in memory.", sum(shelf.held for shelf in shelves))


def gauge(name: str, what: str, value: float, **labels: str) -> Metric:
    """One figure that goes up and down."""
    family = GaugeMetricFamily(name, what, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def counter(name: str, what: str, value: float) -> Metric:
    """One figure that only goes up; its name gets `_total`."""
    return CounterMetricFamily(name, what, value)


def _fill(family: Any, rows: list[tuple[list[str], float]]) -> None:
    for labels, value in rows:
        family.add_metric(labels, value)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _matters(service: Service, configured: bool) -> tuple[bool, bool, int, bytes]:
    """Those with workers or settings first, then those with most work."""
    return (not service.workers, not configured, -service.waiting - service.running, service.name)
