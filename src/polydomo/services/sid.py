"""`sid.service.broker`: the inventory of the workers.

The files are checked for changes every few seconds, in a thread. After a change the inventory is read again; an invalid
one is logged and the old one stays in use. The event `inventory_changed` is published for each connected worker whose
inventory has changed, and once for `*`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from polydomo.core.names import printable
from polydomo.core.timers import Timer
from polydomo.deferred import Deferred
from polydomo.services import inventory
from polydomo.services.authorizer import Authorizer
from polydomo.services.builtin import BuiltIn, Tasks, read_task
from polydomo.services.inventory import BrokenInventory, Inventory, Stamp
from polydomo.services.thread_pool import ThreadPool

NAME = b"sid.service.broker"
CHANGED = "inventory_changed"

# Longest name that is matched against the patterns.
LONGEST_NAME = 1000


class Sid(Timer):
    """The service, and the timer that watches its files.

    Without a `path` every inventory is empty. `report(event, error)` writes to the log; the error is empty after a
    success.
    """

    def __init__(
        self,
        authorizer: Authorizer,
        threads: ThreadPool,
        report: Callable[[str, str], None],
        path: str = "",
        watch: float = 0.0,
    ) -> None:
        super().__init__()
        self.broker = authorizer.broker
        self.threads = threads
        self.report = report
        self.path = path
        self.watch = watch  # seconds between two checks of the files; 0: none
        self.inventory: Inventory | None = None
        self.error = ""  # why the newest files are not in use
        self.tasks = Tasks(authorizer, "sid.service.broker")
        self.tasks.add(
            {
                "get_inventory": self.get_inventory,
                "show_inventory": self.show_inventory,
                "list_inventory": self.list_inventory,
                "reload": self.reload,
            }
        )
        self._invalid: dict[Path, Stamp | None] = {}  # invalid files: read again only after a change
        self._loading = False
        self._reload_again = False
        self._waiting: list[Deferred[Any]] = []  # for the next reading
        self.port = BuiltIn(self.broker, lambda frames, caller: self.tasks.perform(read_task(frames), caller))
        self.port.offer(NAME)

    def start(self) -> None:
        """Read the files; raise ConfigError if they are invalid."""
        if not self.path:
            return
        self._use(inventory.load(self.path), [])
        self._schedule_check()

    def get_inventory(self, name: str) -> dict[str, Any] | None:
        """Return a worker's inventory; None if nothing matches the name."""
        if not isinstance(name, str) or len(name) > LONGEST_NAME:
            raise ValueError("name is a worker's name")
        return None if self.inventory is None else self.inventory.get(name)

    def show_inventory(self, name: str | None = None) -> Any:
        """Return a worker's inventory, or all sections of the main file."""
        if name is not None:
            return self.get_inventory(name)
        return {} if self.inventory is None else self.inventory.as_written()

    def list_inventory(self) -> dict[str, Any]:
        """Return the names and patterns of workers, and the files they are read from."""
        shown: dict[str, Any] = {"file": self.path, "files": [], "workers": {}, "services": {}}
        found = self.inventory
        if found is not None:
            shown["files"] = [str(path) for path in found.stamps]
            shown["services"] = {name: len(resources) for name, resources in found.resources.items()}
            shown["workers"] = {
                pattern: [item if isinstance(item, str) else "(here)" for item in items]
                for pattern, items in found.workers.items()
            }
        return shown | {"error": self.error}

    def reload(self) -> Deferred[Any]:
        """Read the files now. If they are invalid, the answer is an error and the old inventory stays in use."""
        if not self.path:
            raise ValueError("this broker has no inventory: start it with --inventory FILE")
        answer: Deferred[Any] = Deferred()
        self._waiting.append(answer)
        self._load()
        return answer

    def refresh(self) -> None:
        """Read the files again, without an answer (SIGHUP)."""
        if self.path:
            self._load()

    def fire(self, now: float) -> None:
        """Check the files for changes."""
        if self.inventory is None:
            return
        stamps = self._invalid or self.inventory.stamps

        def checked(changed: bool) -> None:
            if changed and not self._loading:
                self._load()
            self._schedule_check()

        self.threads.run(lambda: inventory.differ(stamps), checked, lambda error: self._schedule_check())

    def _schedule_check(self) -> None:
        if self.watch > 0:
            self.broker.timers.set(self, self.broker.now + self.watch)

    def _load(self) -> None:
        """Read the files in a thread. A request during a reading starts another one after it."""
        if self._loading:
            self._reload_again = True
            return
        self._loading = True
        waiting, self._waiting = self._waiting, []
        old = self.inventory
        here = sorted({printable(worker.name) for worker in self.broker.workers if not worker.internal})

        def load() -> tuple[Inventory, list[str]]:
            found = inventory.load(self.path)
            return found, [name for name in here if old is None or old.get(name) != found.get(name)]

        def loaded(result: tuple[Inventory, list[str]]) -> None:
            self._use(*result)
            self.report("inventory read", "")
            for answer in waiting:
                answer.settle({"changed": result[1]})
            self._loaded()

        def failed(error: Exception) -> None:
            self.error = str(error)
            self._invalid = error.stamps if isinstance(error, BrokenInventory) else {}
            self.report("inventory invalid: the old one stays in use", self.error)
            for answer in waiting:
                answer.fail(ValueError(self.error))
            self._loaded()

        self.threads.run(load, loaded, failed)

    def _loaded(self) -> None:
        self._loading = False
        if self._reload_again:
            self._reload_again = False
            self._load()

    def _use(self, found: Inventory, changed: list[str]) -> None:
        """Replace the inventory and publish that it changed for these workers."""
        old = self.inventory
        self.inventory = found
        self.error = ""
        self._invalid = {}
        for service, resources in found.resources.items():
            if old is None or old.resources.get(service) != resources:
                self.broker.control.share_out(service.encode(), [name.encode() for name in resources])
        for service in set() if old is None else old.resources.keys() - found.resources.keys():
            self.broker.control.share_out(service.encode(), [])
        publisher = self.broker.publisher
        if publisher is not None and old is not None:
            for name in changed:
                body = msgspec.json.encode({"worker": name})
                publisher.published(NAME, name.encode(), CHANGED, body)
            publisher.published(NAME, b"*", CHANGED, msgspec.json.encode({"workers": changed}))
