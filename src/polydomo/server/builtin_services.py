"""The server's own services beside the task catalogue: inventory, files and administration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from polydomo.errors import ConfigError
from polydomo.server import log as logs
from polydomo.server.host import ServerHost
from polydomo.server.settings import Settings
from polydomo.services.administration import Administration
from polydomo.services.files import Files, Fss
from polydomo.services.filesharing import FileSharing
from polydomo.services.folder import Folder
from polydomo.services.inventory import Inventory
from polydomo.services.management import ManagementService
from polydomo.services.sid import Sid
from polydomo.services.thread_pool import ThreadPool

log = logs.Log()


class BuiltinHost(ServerHost, Protocol):
    """Server as its own services see it."""

    management: ManagementService
    violations: int

    def endpoints(self) -> dict[str, list[str]]:
        """Return the bound endpoints by kind."""

    def connections(self) -> int:
        """Return the number of ZeroMQ peers."""

    def run(self, step: Callable[[], object]) -> None:
        """Call `step` with the core's time set."""

    def stop(self) -> None:
        """Begin to finish the accepted jobs and stop."""


class BuiltinServices:
    """Services of one server. It is also the process as `Administration` sees it."""

    def __init__(self, server: BuiltinHost) -> None:
        self.server = server
        self.own_process = False
        self.restarting = False
        self._stopping = False
        settings, authorizer = server.settings, server.management.authorizer
        self.threads = ThreadPool(self._post)
        self.administration = Administration(server.management, self)
        self.sid = Sid(authorizer, self.threads, _report, settings.inventory.file, settings.inventory.watch)
        self.files: Files | None = None
        self.sharing: FileSharing | None = None
        if settings.files.folder:
            folder = Folder(str(Path(settings.files.folder).absolute()))
            self.files = Files(folder, self.threads, settings.files.transfers)
            self.sharing = FileSharing(
                authorizer, self.files, settings.files.idle, self.administration.basic_stats
            )
        self.fss = Fss(authorizer, self.files)
        server.management.own += [self.sid.port, self.fss.port]

    def start(self) -> None:
        """Read the inventory and check the shared folder; raise ConfigError if either is invalid."""
        folder = self.server.settings.files.folder
        if folder and not Path(folder).is_dir():
            raise ConfigError(f"cannot share {folder}: it is no folder", hint="create it, or change --files")
        self.sid.start()

    def reload(self, settings: Settings) -> None:
        """Apply new settings to the inventory and the file transfers."""
        self.sid.watch = settings.inventory.watch
        if self.sharing is not None:
            self.sharing.configure(settings.files.transfers, settings.files.idle)

    def close(self) -> None:
        """Fail unfinished transfers and stop the threads."""
        if self.sharing is not None:
            self.sharing.close()
        self.threads.close()

    def endpoints(self) -> list[str]:
        return self.server.endpoints()["zmq"]

    def folders(self) -> dict[str, str | None]:
        settings = self.server.settings
        return {
            "base_dir": str(Path.cwd()),
            "broker_base_dir": settings.broker.data or None,
            "private_keys_dir": None,
            "public_keys_dir": None,
            "inventory": settings.inventory.file or None,
            "files": settings.files.folder or None,
        }

    def dropped(self) -> int:
        return self.server.violations

    def connections(self) -> int:
        return self.server.connections()

    def logs(self) -> list[dict[str, Any]]:
        return list(logs.recent)

    def inventory(self) -> Inventory | None:
        return self.sid.inventory

    def stop(self) -> None:
        self._stop("stop requested")

    def restart(self) -> None:
        self._stop("restart requested")
        self.restarting = True

    def _stop(self, event: str) -> None:
        if self._stopping or self.server.broker.accounting.draining:
            raise ValueError("the broker is stopping already")
        self._stopping = True
        log.info(event)
        self.server.loop.call_soon(self.server.stop)  # after the answer to this request

    def _post(self, call: Callable[[], None]) -> None:
        self.server.loop.call_soon_threadsafe(self.server.run, call)


def _report(event: str, error: str) -> None:
    if error:
        log.error(event, reason=error)
    else:
        log.info(event)
