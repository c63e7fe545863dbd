"""Principals with rights: an authority made of a table, and tasks performed for one of them."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

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
