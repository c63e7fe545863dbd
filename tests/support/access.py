"""Principals with rights: an authority made of a table, and tasks performed for one of them."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from polydomo.core.ports import ActLog
from polydomo.core.principals import ANONYMOUS, Authority
from polydomo.services.builtin import Task, Tasks
from polydomo.services.management import ManagementService


class Grants(Authority):
    """Grants by principal: verb → patterns of services, SERVICE or SERVICE@NAME. `denials` keeps what was refused."""

    def __init__(self, **grants: dict[str, list[str]]) -> None:
        self.grants = grants
        self.denials: list[tuple[str, str, bytes, bytes]] = []

    def allows(self, principal: str, verb: str, service: bytes, name: bytes) -> bool:
        for pattern in self.grants.get(principal, {}).get(verb, []):
            wanted, _, named = pattern.partition("@")
            if fnmatchcase(service.decode(), wanted) and (not named or fnmatchcase(name.decode(), named)):
                return True
        return False

    def denied(self, principal: str, verb: str, service: bytes, name: bytes) -> None:
        self.denials.append((principal, verb, service, name))


def perform(tasks: Tasks, task: str, /, caller: str = ANONYMOUS, **kwargs: Any) -> Any:
    """Return the answer of a task to a principal."""
    principal = tasks.authorizer.principals.get(caller)
    return tasks.perform(Task(task=task, kwargs=kwargs), principal)


def manage(management: ManagementService, task: str, /, caller: str = ANONYMOUS, **kwargs: Any) -> Any:
    """Return the answer of a task of the catalogue to a principal."""
    return perform(management.tasks, task, caller, **kwargs)


class Acts(ActLog):
    """A log of acts that confirms by hand. `records` are in the order in which they came."""

    def __init__(self) -> None:
        self.records: list[tuple[str, str, str, str, str]] = []
        self._waiting: list[Callable[[str], None]] = []

    def record(
        self, principal: str, verb: str, action: str, target: str, address: str, then: Callable[[str], None]
    ) -> None:
        self.records.append((principal, verb, action, target, address))
        self._waiting.append(then)

    def confirm(self) -> None:
        """Everything is on disk."""
        self.fail("")

    def fail(self, reason: str) -> None:
        """Nothing can be written."""
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then(reason)
