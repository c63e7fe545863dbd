"""The catalogue's tasks that look after the broker itself: stop it, restart it, send its workers away, read its log.

They are asked for through `mmi.service.broker` like the others. What norfab's client calls (`get_stats`, `get_status`,
`get_logs`, `show_broker_version`, `show_broker_inventory`) answers in the form it reads.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from polydomo._version import __version__
from polydomo.core.names import parse_name, printable
from polydomo.core.worker import Worker
from polydomo.services.builtin import is_internal
from polydomo.services.inventory import Inventory
from polydomo.services.management import Management, hold_time, is_shown
from polydomo.services.process import Process

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

DISMISSED = "dismissed by an administrator"


class Host:
    """What the broker runs in. This one can do nothing; a program that is a broker and nothing else can more."""

    def endpoints(self) -> list[str]:
        """Where peers connect."""
        return []

    def folders(self) -> dict[str, str | None]:
        """What is kept where."""
        return {}

    def dropped(self) -> int:
        """Messages that could not be read."""
        return 0

    def connections(self) -> int | None:
        """Peers that are connected."""
        return None

    def logs(self) -> list[dict[str, Any]]:
        """The last lines of the log, oldest first."""
        return []

    def inventory(self) -> Inventory | None:
        """What workers are told about themselves."""
        return None

    def stop(self) -> None:
        """Finish what is here and end. Must return before it begins."""
        raise ValueError("this broker is part of another program: end that one")

    def restart(self) -> None:
        """The same, and begin anew."""
        raise ValueError("this broker is part of another program, and cannot be restarted alone")


class Administration:
    """Adds its tasks to the catalogue."""

    def __init__(self, management: Management, host: Host) -> None:
        self.broker = management.broker
        self.name = management.name
        self.host = host
        self.process = Process()
        self.tasks: dict[str, Callable[..., Any]] = {
            "restart": self.restart,
            "shutdown": self.shutdown,
            "disconnect": self.disconnect,
            "get_stats": self.get_stats,
            "get_status": self.get_status,
            "get_logs": self.get_logs,
            "show_broker_version": self.show_broker_version,
            "show_broker_inventory": self.show_broker_inventory,
            "show_resources": self.show_resources,
            "set_resources": self.set_resources,
            "share_out": self.share_out,
        }
        management.tasks.update(self.tasks)

    def restart(self) -> dict[str, Any]:
        """Finish the jobs that are here, end, and begin anew with the same command line on the same ports."""
        self.host.restart()
        return {"name": self.name, "restarting": True}

    def shutdown(self) -> dict[str, Any]:
        """Finish the jobs that are here and end."""
        self.host.stop()
        return {"name": self.name, "stopping": True}

    def disconnect(self, name: str | None = None, service: str | None = None) -> dict[str, Any]:
        """Send all workers away, or those with this name or of this service. They come back by themselves; what they
        were doing goes to others."""
        leaving = [
            worker
            for worker in self.broker.workers
            if not worker.internal
            and name in (None, printable(worker.name))
            and (service is None or service in [printable(offered.name) for offered in worker.services])
        ]
        if not leaving and name is not None:
            raise ValueError(f"no worker {name!r}" + (f" offers {service!r}" if service else ""))
        for worker in leaving:
            for offered in worker.services:
                offered.idle.pop(worker, None)  # what the others held is not for those that leave next
        for worker in leaving:
            worker.port.dismiss(DISMISSED)
            self.broker.leave(worker, DISMISSED)
        return {"disconnected": [printable(worker.name) for worker in leaving]}

    def get_stats(self) -> dict[str, Any]:
        """The process, the messages and the workers, as norfab's monitoring reads them."""
        workers = [worker for worker in self.broker.workers if is_shown(worker)]
        services = [name for name in self.broker.services if not is_internal(name)]
        beat = workers[0].beat if workers else None
        return self.basic_stats() | {
            "name": self.name,
            "role": "broker",
            "status": self._status(),
            "endpoint": ", ".join(self.host.endpoints()),
            "worker_count": len(workers),
            "service_count": len(services),
            "keepalive_interval_ms": 0 if beat is None else int(beat.interval * 1000),
            "keepalive_multiplier": round(0 if beat is None else beat.liveness),
            "workers": [self._worker_stats(worker) for worker in workers],
        }

    def basic_stats(self) -> dict[str, Any]:
        """What a report about any part of this process begins with. A message is a job here, or its answer."""
        broker = self.broker
        return {
            "schema_version": "1.0",
            "collected_at": datetime.now(UTC).isoformat(),
            "process": self.process.figures() | {"tcp_sockets": self.host.connections()},
            "messaging": {
                "sent": broker.submitted - (broker.active - broker.asked),
                "received": broker.submitted,
                "events_received": 0,
                "send_failures": 0,
                "receive_failures": self.host.dropped(),
            },
        }

    def get_status(self) -> dict[str, Any]:
        """Who it is, and where it keeps what. Keys and addresses are not checked yet."""
        return {
            "name": self.name,
            "role": "broker",
            "status": self._status(),
            "endpoint": ", ".join(self.host.endpoints()),
            "endpoints": self.host.endpoints(),
            "directories": self.host.folders(),
            "security": {"zmq_auth": False, "ip_allowlist": ["*"]},
        }

    def show_broker_version(self) -> dict[str, str]:
        """Of the broker, and of what it is made of."""
        shown = {"polydomo": __version__}
        for package in ("msgspec", "pyyaml", "uvloop", "structlog"):
            try:
                shown[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                shown[package] = ""
        return shown | {"python": sys.version.split(" ")[0], "platform": sys.platform}

    def show_broker_inventory(self) -> dict[str, Any]:
        """The inventory's main file, section by section."""
        inventory = self.host.inventory()
        return {} if inventory is None else inventory.as_written()

    def get_logs(
        self,
        last: int | None = 100,
        level: str | None = None,
        since: str | None = None,
        until: str | None = None,
        logger: str | None = None,
    ) -> list[dict[str, Any]]:
        """The newest lines of the log, oldest first: from `level` on, between two times such as 2026-01-31T12:00."""
        least = 0
        if level:
            if level.upper() not in LEVELS:
                raise ValueError(f"no level {level!r}; there are {', '.join(LEVELS)}")
            least = LEVELS.index(level.upper())
        begin, end = _time("since", since), _time("until", until)
        found = []
        for line in self.host.logs():
            when = datetime.fromisoformat(line["ts"])
            known = line["level"] in LEVELS
            if known and LEVELS.index(line["level"]) < least:
                continue
            if (begin and when < begin) or (end and when > end) or (logger and line["logger"] != logger):
                continue
            found.append(line | {"role": "broker", "name": self.name})
        return found[-last:] if last and last > 0 else found

    def show_resources(self, service: str | None = None) -> list[dict[str, Any]]:
        """Which worker has which resources now."""
        rows = []
        for worker in self.broker.workers:
            names = [printable(offered.name) for offered in worker.services]
            if worker.internal or (service is not None and service not in names):
                continue
            resources = [printable(resource) for resource in self.broker.resources_of(worker)]
            rows.append({"worker": printable(worker.name), "services": names, "resources": resources})
        return rows

    def set_resources(self, worker: str, resources: list[str]) -> dict[str, Any]:
        """What a worker has, whatever it said about it itself."""
        _check_names(resources)
        named = [one for one in self.broker.workers if not one.internal and printable(one.name) == worker]
        if not named:
            raise ValueError(f"no worker {worker!r}")
        for one in named:
            self.broker.set_resources(one, [parse_name(name) for name in resources])
        return {"worker": worker, "resources": resources}

    def share_out(self, service: str, resources: list[str]) -> dict[str, Any]:
        """Share resources out among a service's workers, from now on; an inventory that is read again overrules it."""
        _check_names(resources)
        if not isinstance(service, str) or not service or is_internal(parse_name(service)):
            raise ValueError(f"{service!r} is no service that could have resources")
        self.broker.share_out(parse_name(service), [parse_name(name) for name in resources])
        return {"service": service, "resources": len(resources)}

    def _status(self) -> str:
        return "stopping" if self.broker.draining else "active"

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
