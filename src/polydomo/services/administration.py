"""Administrative tasks of the catalogue `mmi.service.broker`: stop, restart, disconnect workers, read the log.

The tasks that norfab's client calls (`get_stats`, `get_status`, `get_logs`, `show_broker_version`,
`show_broker_inventory`) answer in norfab's form.
"""

from __future__ import annotations

import importlib.metadata
import sys
from datetime import UTC, datetime
from typing import Any, Protocol

from polydomo._version import __version__
from polydomo.core.model import Worker
from polydomo.core.names import parse_name, printable
from polydomo.services.authorizer import View, matching_workers
from polydomo.services.builtin import is_internal
from polydomo.services.inventory import Inventory
from polydomo.services.management import ManagementService, hold_time, is_shown
from polydomo.services.process import ProcessUsage

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

DISMISSED = "dismissed by an administrator"

TASKS = (
    "restart",
    "shutdown",
    "disconnect",
    "get_stats",
    "get_status",
    "get_logs",
    "show_broker_version",
    "show_broker_inventory",
    "show_resources",
    "set_resources",
    "share_out",
)


class HostProcess(Protocol):
    """Process that the broker runs in."""

    own_process: bool  # the process runs nothing else: it may be stopped and restarted

    def endpoints(self) -> list[str]:
        """Return the endpoints that peers connect to."""

    def folders(self) -> dict[str, str | None]:
        """Return the broker's folders by norfab's names."""

    def dropped(self) -> int:
        """Return the number of messages that could not be read."""

    def connections(self) -> int:
        """Return the number of connected peers."""

    def logs(self) -> list[dict[str, Any]]:
        """Return the last log entries, oldest first."""

    def inventory(self) -> Inventory | None:
        """Return the inventory of the workers."""

    def stop(self) -> None:
        """Begin to drain and stop after this call returns; raise ValueError if that has begun already."""

    def restart(self) -> None:
        """Like `stop`, and start again."""


class Administration:
    """Administrative tasks. Creating it adds them to the catalogue."""

    def __init__(self, management: ManagementService, process: HostProcess) -> None:
        self.broker = management.broker
        self.name = management.name
        self.process = process
        self.usage = ProcessUsage()
        management.tasks.add({name: getattr(self, name) for name in TASKS})

    def restart(self) -> dict[str, Any]:
        """Finish the accepted jobs, stop, and start again with the same command line on the same ports."""
        if not self.process.own_process:
            raise ValueError("this broker is part of another program and cannot be restarted on its own")
        self.process.restart()
        return {"name": self.name, "restarting": True}

    def shutdown(self) -> dict[str, Any]:
        """Finish the accepted jobs and stop."""
        if not self.process.own_process:
            raise ValueError("this broker is part of another program: stop that program")
        self.process.stop()
        return {"name": self.name, "stopping": True}

    def disconnect(self, name: str | None = None, service: str | None = None) -> dict[str, Any]:
        """Disconnect all workers, or those with this name or of this service.

        Their jobs go to other workers. A worker may connect again.
        """
        leaving = matching_workers(self.broker, name, service)
        if not leaving and name is not None:
            raise ValueError(f"no worker {name!r}" + (f" offers {service!r}" if service else ""))
        for worker in leaving:
            for offered in worker.services:
                offered.idle.pop(worker, None)  # requeued jobs must not go to a worker that leaves next
        for worker in leaving:
            worker.port.dismiss(DISMISSED)
            self.broker.leave(worker, DISMISSED)
        return {"disconnected": [printable(worker.name) for worker in leaving]}

    def get_stats(self) -> dict[str, Any]:
        """Return process, message and worker statistics in norfab's form."""
        workers = [worker for worker in self.broker.workers if is_shown(worker)]
        services = [name for name in self.broker.services if not is_internal(name)]
        beat = workers[0].heartbeat if workers else None
        return self.basic_stats() | {
            "name": self.name,
            "role": "broker",
            "status": self._status(),
            "endpoint": ", ".join(self.process.endpoints()),
            "worker_count": len(workers),
            "service_count": len(services),
            "keepalive_interval_ms": 0 if beat is None else int(beat.interval * 1000),
            "keepalive_multiplier": round(0 if beat is None else beat.liveness),
            "workers": [self._worker_stats(worker) for worker in workers],
        }

    def basic_stats(self) -> dict[str, Any]:
        """Return the statistics that are common to the broker and its workers. A message is a job or its answer."""
        broker = self.broker
        return {
            "schema_version": "1.0",
            "collected_at": datetime.now(UTC).isoformat(),
            "process": self.usage.show() | {"tcp_sockets": self.process.connections()},
            "messaging": {
                "sent": broker.accounting.submitted
                - (broker.accounting.active - broker.accounting.open_questions),
                "received": broker.accounting.submitted,
                "events_received": 0,
                "send_failures": 0,
                "receive_failures": self.process.dropped(),
            },
        }

    def get_status(self) -> dict[str, Any]:
        """Return the broker's name, endpoints and folders. Keys and addresses are not checked yet."""
        return {
            "name": self.name,
            "role": "broker",
            "status": self._status(),
            "endpoint": ", ".join(self.process.endpoints()),
            "endpoints": self.process.endpoints(),
            "directories": self.process.folders(),
            "security": {"zmq_auth": False, "ip_allowlist": ["*"]},
        }

    def show_broker_version(self) -> dict[str, str]:
        """Return the versions of the broker and of its main dependencies."""
        shown = {"polydomo": __version__}
        for package in ("msgspec", "pyyaml", "uvloop", "structlog"):
            try:
                shown[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                shown[package] = ""
        return shown | {"python": sys.version.split(" ")[0], "platform": sys.platform}

    def show_broker_inventory(self) -> dict[str, Any]:
        """Return the sections of the inventory's main file."""
        inventory = self.process.inventory()
        return {} if inventory is None else inventory.as_written()

    def get_logs(
        self,
        last: int | None = 100,
        level: str | None = None,
        since: str | None = None,
        until: str | None = None,
        logger: str | None = None,
    ) -> list[dict[str, Any]]:
        """Return the `last` log entries, oldest first, of at least `level` and between two times.

        Times are written like 2026-01-31T12:00.
        """
        least = 0
        if level:
            if level.upper() not in LEVELS:
                raise ValueError(f"no level {level!r}; there are {', '.join(LEVELS)}")
            least = LEVELS.index(level.upper())
        begin, end = _time("since", since), _time("until", until)
        found = []
        for line in self.process.logs():
            when = datetime.fromisoformat(line["ts"])
            known = line["level"] in LEVELS
            if known and LEVELS.index(line["level"]) < least:
                continue
            if (begin and when < begin) or (end and when > end) or (logger and line["logger"] != logger):
                continue
            found.append(line | {"role": "broker", "name": self.name})
        return found[-last:] if last and last > 0 else found

    def show_resources(self, view: View, service: str | None = None) -> list[dict[str, Any]]:
        """List the resources of each worker."""
        rows = []
        for worker in self.broker.workers:
            seen = [offered.name for offered in worker.services if view.worker(worker, offered.name)]
            names = [printable(name) for name in seen]
            if worker.internal or not names or (service is not None and service not in names):
                continue
            resources = [printable(resource) for resource in self.broker.control.resources_of(worker)]
            rows.append({"worker": printable(worker.name), "services": names, "resources": resources})
        return rows

    def set_resources(self, worker: str, resources: list[str]) -> dict[str, Any]:
        """Set the resources of a worker, in place of those that the worker announced."""
        _check_names(resources)
        found = matching_workers(self.broker, worker, None)
        if not found:
            raise ValueError(f"no worker {worker!r}")
        for one in found:
            self.broker.set_resources(one, [parse_name(name) for name in resources])
        return {"worker": worker, "resources": resources}

    def share_out(self, service: str, resources: list[str]) -> dict[str, Any]:
        """Distribute resources among a service's workers until the inventory is read again."""
        _check_names(resources)
        if not isinstance(service, str) or not service or is_internal(parse_name(service)):
            raise ValueError(f"{service!r} is no service that could have resources")
        self.broker.control.share_out(parse_name(service), [parse_name(name) for name in resources])
        return {"service": service, "resources": len(resources)}

    def _status(self) -> str:
        return "stopping" if self.broker.accounting.draining else "active"

    def _worker_stats(self, worker: Worker) -> dict[str, Any]:
        now = self.broker.now
        return {
            "name": printable(worker.name),
            "service": printable(worker.services[0].name) if worker.services else "",
            "status": "alive",
            "holdtime_seconds": round(hold_time(worker, now), 3),
            "uptime_seconds": int(now - worker.since),
            "keepalives_sent": worker.beats_sent,
            "keepalives_received": worker.beats_seen,
        }


def _check_names(names: object) -> None:
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise ValueError("resources is a list of names")


def _time(name: str, text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        when = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        raise ValueError(f"{name} is a time such as 2026-01-31T12:00, not {text!r}") from None
    return when if when.tzinfo else when.astimezone()
