"""The inventory: what each worker is told about itself, read from norfab's own file layout.

    broker: {…}                          shown, otherwise ignored; so are client, logging, topology, hooks, plugins
    workers:
      nornir-*:                          a worker's name, or a pattern (*, ?, [abc])
        - nornir/common.yaml             a file, relative to this one
      nornir-worker-1:
        - {service: nornir}              or what would be in it
    services:                            ours
      nornir: {resources: [r1, r2]}      shared out among the service's workers

A worker gets everything under the names that fit its own, merged in the order of the file: mappings deeply, lists
appended without what is there already, anything else replaced. All files are read when the inventory is: a mistake in
one is found then, not when its worker asks. Environment variables: see `services.yaml_env`.
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
    """One reading of the files. Every answer is a copy: nothing that is done to it is seen by another worker."""

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
        """A worker's inventory; None if nothing in it is for this name."""
        items: list[Any] = []
        for pattern, own in self.workers.items():
            if fnmatch.fnmatchcase(name, pattern):
                items += [item for item in own if item not in items]
        found: dict[str, Any] = {}
        for item in items:
            merge(found, self.contents[item] if isinstance(item, str) else item)
        return found or None

    def as_written(self) -> dict[str, Any]:
        """All sections, those that are missing empty."""
        names = ("broker", "workers", "topology", "logging", "client", "hooks", "plugins")
        shown: dict[str, Any] = {name: {} for name in names}
        return shown | {name: copied(section) for name, section in self.sections.items()}

    def changed(self) -> bool:
        """Has a file been touched since?"""
        return differ(self.stamps)


def load(path: str | Path, environ: Mapping[str, str] | None = None) -> Inventory:
    """Read an inventory; BrokenInventory says what is wrong, and in which file."""
    path = Path(path)
    environ = os.environ if environ is None else environ
    stamps = {path: _stamp(path)}
    try:
        sections = yaml_env.read(path, environ)
        if sections is None:
            sections = {}
        if not isinstance(sections, dict):
            raise ConfigError(f"{path}: is not a mapping", hint="it begins with workers:")
        contents: dict[str, dict[str, Any]] = {}
        for items in _workers(path, sections.get("workers")).values():
            for item in items:
                if isinstance(item, str) and item not in contents:
                    file = path.parent / item
                    stamps[file] = _stamp(file)
                    contents[item] = _content(file, environ)
        return Inventory(path, sections, contents, stamps)
    except ConfigError as error:
        raise BrokenInventory(error, stamps) from error


class BrokenInventory(ConfigError):
    """It cannot be read. Worth another try when one of its `stamps` has changed."""

    def __init__(self, error: ConfigError, stamps: dict[Path, Stamp | None]) -> None:
        super().__init__(error.message, hint=error.advice)
        self.stamps = stamps


def differ(stamps: Mapping[Path, Stamp | None]) -> bool:
    """Has one of these files been touched since?"""
    return any(_stamp(path) != stamp for path, stamp in stamps.items())


def merge(data: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Put `more` into `data`, deeply. What gets in is copied, so `more` stays as it is for ever."""
    for key, value in more.items():
        present = data.get(key)
        if isinstance(present, dict) and isinstance(value, dict):
            merge(present, value)
        elif isinstance(present, list) and isinstance(value, list):
            _append(present, value)
        else:
            data[key] = copied(value)


def copied(value: Any) -> Any:
    """Nothing in the copy is shared, not even with itself."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def _append(present: list[Any], more: list[Any]) -> None:
    """What is not there yet. Lists may have 20,000 names in them, so these are not compared one by one."""
    known = {item for item in present if not isinstance(item, dict | list)}
    for item in more:
        if isinstance(item, dict | list):
            if item not in present:
                present.append(copied(item))
        elif item not in known:
            known.add(item)
            present.append(item)


def _content(file: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    content = yaml_env.read(file, environ)
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: is not a mapping", hint="it holds a worker's settings by their names")
    return content


def _workers(path: Path, section: Any) -> dict[str, list[Any]]:
    """By pattern; one mapping or file name alone counts as a list of it."""
    if section is None:
        return {}
    if not isinstance(section, dict):
        raise ConfigError(f"{path}: workers: is not a mapping", hint="write names or patterns below it")
    workers: dict[str, list[Any]] = {}
    for pattern, items in section.items():
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
    """The resources of each service that has some."""
    if section is None:
        return {}
    if not isinstance(section, dict):
        raise ConfigError(f"{path}: services: is not a mapping", hint="write {name: {resources: […]}}")
    resources: dict[str, list[str]] = {}
    for name, own in section.items():
        found = own.get("resources", []) if isinstance(own, dict) else None
        if not isinstance(found, list) or any(isinstance(item, dict | list) for item in found):
            raise ConfigError(
                f"{path}: services: {name}: resources is not a list of names",
                hint="write {resources: [one, two]}",
            )
        resources[name] = [str(item) for item in found]
    return resources


def _stamp(path: Path) -> Stamp | None:
    """Changes when the file does, also when another takes its place."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns)
