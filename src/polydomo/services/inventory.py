"""The inventory: configuration of the workers, in norfab's file layout.

    broker: {…}                          shown, otherwise ignored; so are client, logging, topology, hooks, plugins
    workers:
      nornir-*:                          a worker's name, or a pattern (*, ?, [abc])
        - nornir/common.yaml             a file, relative to this one
      nornir-worker-1:
        - {service: nornir}              or what would be in it
    services:                            ours
      nornir: {resources: [r1, r2]}      distributed among the service's workers

A worker gets the merged entries of all names and patterns that match its own, in the order of the file: mappings are
merged deeply, lists appended without duplicates, other values replaced. All files are read together, so that a mistake
is found at once and not when a worker asks. For environment variables see `services.yaml_env`.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polydomo.errors import ConfigError
from polydomo.services import yaml_env

Stamp = tuple[int, int, int]


class Inventory:
    """Content of the files at one time. Every answer is a copy."""

    def __init__(
        self,
        path: Path,
        sections: dict[str, Any],
        contents: dict[str, dict[str, Any]],
        stamps: dict[Path, Stamp | None],
    ) -> None:
        self.path = path
        self.sections = sections  # the main file as it is
        self.contents = contents  # of the files it names
        self.stamps = stamps  # when each was changed last
        self.workers: dict[str, list[Any]] = _workers(path, sections.get("workers"))
        self.resources: dict[str, list[str]] = _resources(path, sections.get("services"))

    def get(self, name: str) -> dict[str, Any] | None:
        """Return a worker's inventory; None if nothing matches the name."""
        items: list[Any] = []
        for pattern, own in self.workers.items():
            if fnmatch.fnmatchcase(name, pattern):
                items += [item for item in own if item not in items]
        found: dict[str, Any] = {}
        for item in items:
            merge(found, self.contents[item] if isinstance(item, str) else item)
        return found or None

    def as_written(self) -> dict[str, Any]:
        """Return all sections of the main file, missing ones empty."""
        names = ("broker", "workers", "topology", "logging", "client", "hooks", "plugins")
        shown: dict[str, Any] = {name: {} for name in names}
        return shown | {name: copied(section) for name, section in self.sections.items()}


def load(path: str | Path, environ: Mapping[str, str] | None = None) -> Inventory:
    """Read an inventory; raise BrokenInventory with the file and the mistake."""
    path = Path(path)
    environ = os.environ if environ is None else environ
    stamps = {path: _stamp(path)}
    try:
        sections = _mapping(yaml_env.read(path, environ), f"{path}", "it begins with workers:")
        contents: dict[str, dict[str, Any]] = {}
        for items in _workers(path, sections.get("workers")).values():
            for item in items:
                if isinstance(item, str) and item not in contents:
                    file = path.parent / item
                    stamps[file] = _stamp(file)
                    content = yaml_env.read(file, environ)
                    contents[item] = _mapping(
                        content, f"{file}", "it holds a worker's settings by their names"
                    )
        return Inventory(path, sections, contents, stamps)
    except ConfigError as error:
        raise BrokenInventory(error, stamps) from error


class BrokenInventory(ConfigError):
    """Inventory that cannot be read. `stamps` are those of the files that were tried."""

    def __init__(self, error: ConfigError, stamps: dict[Path, Stamp | None]) -> None:
        super().__init__(error.message, hint=error.advice)
        self.stamps = stamps


def differ(stamps: Mapping[Path, Stamp | None]) -> bool:
    """Return whether one of these files has changed since its stamp was taken."""
    return any(_stamp(path) != stamp for path, stamp in stamps.items())


def merge(data: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Merge a copy of `more` into `data`, deeply."""
    for key, value in more.items():
        present = data.get(key)
        if isinstance(present, dict) and isinstance(value, dict):
            merge(present, value)
        elif isinstance(present, list) and isinstance(value, list):
            _append(present, value)
        else:
            data[key] = copied(value)


def copied(value: Any) -> Any:
    """Return a deep copy in which no two places share a value."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def _append(present: list[Any], more: list[Any]) -> None:
    """Append the items that are missing; through a set, because lists may have 20,000 names."""
    known = {item for item in present if not isinstance(item, dict | list)}
    for item in more:
        if isinstance(item, dict | list):
            if item not in present:
                present.append(copied(item))
        elif item not in known:
            known.add(item)
            present.append(item)


def _mapping(value: Any, place: str, hint: str) -> dict[str, Any]:
    """Return a mapping, which is empty if it is not given; raise ConfigError for another value."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{place}: is not a mapping", hint=hint)
    return value


def _workers(path: Path, section: Any) -> dict[str, list[Any]]:
    """Return the items of each pattern; a single mapping or file name counts as a list."""
    workers: dict[str, list[Any]] = {}
    patterns = _mapping(section, f"{path}: workers", "write names or patterns below it")
    for pattern, items in patterns.items():
        items = [] if items is None else items if isinstance(items, list) else [items]
        for item in items:
            if not isinstance(item, str | dict):
                raise ConfigError(
                    f"{path}: workers: {pattern}: {item!r} is neither a file's name nor a mapping",
                    hint="it is a list of these",
                )
        workers[pattern] = items
    return workers


def _resources(path: Path, section: Any) -> dict[str, list[str]]:
    """Return the resources of each service."""
    resources: dict[str, list[str]] = {}
    services = _mapping(section, f"{path}: services", "write {name: {resources: […]}}")
    for name, own in services.items():
        found = own.get("resources", []) if isinstance(own, dict) else None
        if not isinstance(found, list) or any(isinstance(item, dict | list) for item in found):
            raise ConfigError(
                f"{path}: services: {name}: resources is not a list of names",
                hint="write {resources: [one, two]}",
            )
        resources[name] = [str(item) for item in found]
    return resources


def _stamp(path: Path) -> Stamp | None:
    """Return a value that changes with the file, also when another file takes its place."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns)
