"""A server's own services beside its catalogue: inventory, files, and what looks after the broker itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polydomo.errors import ConfigError
from polydomo.server import log as logs
from polydomo.server.settings import Settings
from polydomo.services.administration import Administration, Host
from polydomo.services.files import Files, Fss
from polydomo.services.filesharing import FileSharing
from polydomo.services.folder import Folder
from polydomo.services.inventory import Inventory
from polydomo.services.sid import Sid
from polydomo.services.thread_pool import ThreadPool

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

log = logs.Log()


class BuiltinServices(Host):
    """See the module's text. `own_process`: the broker may end and restart it."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self.own_process = False
        self.again = False  # it is to be started again
        self.ending = False
        settings, broker = server.settings, server.broker
        self.background = ThreadPool(self._post)
        self.administration = Administration(server.management, self)
        self.sid = Sid(broker, self.background, _say, settings.inventory.file, settings.inventory.watch)
        self.files: Files | None = None
        self.sharing: FileSharing | None = None
        if settings.files.folder:
            folder = Folder(str(Path(settings.files.folder).absolute()))
            self.files = Files(folder, self.background, settings.files.transfers)
            self.sharing = FileSharing(
                broker, self.files, settings.files.idle, self.administration.basic_stats
            )
        self.fss = Fss(broker, self.files)
        server.management.own += [self.sid.port, self.fss.port]

    def start(self) -> None:
        """Read the inventory and look at the folder; ConfigError if either is wrong."""
        folder = self.server.settings.files.folder
        if folder and not Path(folder).is_dir():
            raise ConfigError(f"cannot share {folder}: it is no folder", hint="create it, or change --files")
        self.sid.start()

    def reload(self, settings: Settings) -> None:
        """New settings, and the inventory again."""
        self.sid.watch = settings.inventory.watch
        if self.sharing is not None:
            self.sharing.limit(settings.files.transfers, settings.files.idle)

    def refresh(self) -> None:
        """SIGHUP: what is on disk may have changed."""
        self.sid.refresh()

    def close(self) -> None:
        """Transfers that have not ended fail."""
        if self.sharing is not None:
            self.sharing.close()
        self.background.close()

    def endpoints(self) -> list[str]:
        return list(self.server.bound)

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
        return self.server.complaints

    def connections(self) -> int:
        return len(self.server.peers)

    def logs(self) -> list[dict[str, Any]]:
        return list(logs.recent)

    def inventory(self) -> Inventory | None:
        return self.sid.inventory

    def stop(self) -> None:
        if not self.own_process:
            super().stop()
        self._end("told to stop")

    def restart(self) -> None:
        if not self.own_process:
            super().restart()
        self._end("told to restart")
        self.again = True

    def _end(self, why: str) -> None:
        if self.ending or self.server.broker.draining:
            raise ValueError("the broker is stopping already")
        self.ending = True
        log.info(why)
        self.server.loop.call_soon(self.server.stop)  # behind the answer to whoever asked for it

    def _post(self, what: Callable[[], None]) -> None:
        self.server.loop.call_soon_threadsafe(self._do, what)

    def _do(self, what: Callable[[], None]) -> None:
        self.server._set_time()
        what()


def _say(what: str, why: str) -> None:
    if why:
        log.error(what, reason=why)
    else:
        log.info(what)
