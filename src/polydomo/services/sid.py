"""`sid.service.broker`: workers ask here for their inventory.

The files are looked at every few seconds, in a thread. When one has changed the inventory is read again; if it is
broken the old one stays and the log says why. Whoever subscribed to the broker's events hears `inventory_changed`: once
for every worker that is here and whose inventory is another now, and once for `*`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from polydomo.core.broker import Broker
from polydomo.core.names import printable
from polydomo.core.timers import Timer
from polydomo.services import inventory
from polydomo.services.builtin import BuiltIn, Later, perform, read_task
from polydomo.services.inventory import BrokenInventory, Inventory, Stamp
from polydomo.services.thread_pool import ThreadPool

NAME = b"sid.service.broker"
CHANGED = "inventory_changed"

# Names are compared with patterns: no longer ones than workers have.
LONGEST_NAME = 1000


class Sid(Timer):
    """Registers the service. Without a `path` it knows nobody. `say(what, why)` is for the log; why "": all is well."""

    def __init__(
        self,
        broker: Broker,
        background: ThreadPool,
        say: Callable[[str, str], None],
        path: str = "",
        watch: float = 0.0,
    ) -> None:
        super().__init__()
        self.broker = broker
        self.background = background
        self.say = say
        self.path = path
        self.watch = watch  # seconds between two looks at the files; 0: none
        self.inventory: Inventory | None = None
        self.error = ""  # why the newest files are not in use
        self.tasks: dict[str, Callable[..., Any]] = {
            "get_inventory": self.get_inventory,
            "show_inventory": self.show_inventory,
            "list_inventory": self.list_inventory,
            "reload": self.reload,
        }
        self._tried: dict[
            Path, Stamp | None
        ] = {}  # the files that could not be read: not tried again before they change
        self._loading = False
        self._again = False
        self._waiting: list[Later] = []
        self.port = BuiltIn(broker, lambda frames: perform(self.tasks, read_task(frames)))
        self.port.offer(NAME)

    def start(self) -> None:
        """Read the files; ConfigError if they are wrong."""
        if not self.path:
            return
        self._use(inventory.load(self.path), [])
        self._look_again()

    def get_inventory(self, name: str) -> dict[str, Any] | None:
        """A worker's inventory; null for a name that nothing is for."""
        if not isinstance(name, str) or len(name) > LONGEST_NAME:
            raise ValueError("name is a worker's name")
        return None if self.inventory is None else self.inventory.get(name)

    def show_inventory(self, name: str | None = None) -> Any:
        """A worker's inventory, or everything in the main file."""
        if name is not None:
            return self.get_inventory(name)
        return {} if self.inventory is None else self.inventory.as_written()

    def list_inventory(self) -> dict[str, Any]:
        """Where it comes from: the names and patterns, and the files they are read from."""
        found = self.inventory
        return {
            "file": self.path,
            "files": [] if found is None else [str(path) for path in found.stamps],
            "workers": {}
            if found is None
            else {
                pattern: [item if isinstance(item, str) else "(here)" for item in items]
                for pattern, items in found.workers.items()
            },
            "services": {}
            if found is None
            else {name: len(resources) for name, resources in found.resources.items()},
            "error": self.error,
        }

    def reload(self) -> Later:
        """Read the files now. An error if they are wrong: then the old ones stay in use."""
        if not self.path:
            raise ValueError("this broker has no inventory: start it with --inventory FILE")
        later = Later()
        self._waiting.append(later)
        self._load()
        return later

    def refresh(self) -> None:
        """The same without anybody waiting for it (SIGHUP)."""
        if self.path:
            self._load()

    def fire(self, now: float) -> None:
        """Time to look at the files."""
        current, tried = self.inventory, self._tried
        if current is None:
            return

        def look() -> bool:
            if tried:  # broken when last read
                return inventory.differ(tried)
            return current.changed()

        def looked(changed: bool) -> None:
            if changed and not self._loading:
                self._load()
            self._look_again()

        self.background.run(look, looked, lambda error: self._look_again())

    def _look_again(self) -> None:
        if self.watch > 0:
            self.broker.timers.set(self, self.broker.now + self.watch)

    def _load(self) -> None:
        """One reading at a time; who asks meanwhile gets one that begins after they asked."""
        if self._loading:
            self._again = True
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
            self.say("inventory read", "")
            self._ended(waiting, {"changed": result[1]})

        def failed(error: Exception) -> None:
            self.error = str(error)
            self._tried = error.stamps if isinstance(error, BrokenInventory) else {}
            self.say("inventory not read: the old one stays", self.error)
            for later in waiting:
                later.fail(ValueError(self.error))
            self._ended([], None)

        self.background.run(load, loaded, failed)

    def _ended(self, waiting: list[Later], answer: Any) -> None:
        for later in waiting:
            later.settle(answer)
        self._loading = False
        if self._again:
            self._again = False
            self._load()

    def _use(self, found: Inventory, changed: list[str]) -> None:
        """From now on; it is another one for the workers in `changed`."""
        old = self.inventory
        self.inventory = found
        self.error = ""
        self._tried = {}
        for service, resources in found.resources.items():
            if old is None or old.resources.get(service) != resources:
                self.broker.share_out(service.encode(), [name.encode() for name in resources])
        for service in set() if old is None else old.resources.keys() - found.resources.keys():
            self.broker.share_out(service.encode(), [])
        publisher = self.broker.publisher
        if publisher is not None and old is not None:
            for name in changed:
                body = msgspec.json.encode({"worker": name})
                publisher.published(NAME, name.encode(), CHANGED, body)
            publisher.published(NAME, b"*", CHANGED, msgspec.json.encode({"workers": changed}))
