"""Roles: what principals may do.

A role grants verbs (`core/principals.py`) at services. A principal has all roles of the entries that match its name,
and may do what one of them grants; everything else is denied. Names that are not printable are compared as they are
shown (`core/names.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from polydomo.core.names import printable
from polydomo.core.principals import (
    CALL,
    CANCEL,
    OBSERVE,
    OPERATE,
    READ,
    SERVE,
    VERBS,
    Authority,
    Quota,
)
from polydomo.security.patterns import ANY, matches, matches_principal, precision

# Between the service and the worker in a grant.
AT: Final = "@"

# Keys that need no quotes in TOML.
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


class Grant(NamedTuple):
    """Permission to do something at the services, and for the workers, whose names match."""

    verb: str
    service: str
    worker: str = ANY

    @classmethod
    def parse(cls, verb: str, text: str) -> Grant:
        """Return the grant written as SERVICE or SERVICE@WORKER; raise ValueError if one of them is empty.

        The first `@` ends the service. A service with `@` in its name is matched by `*` in its place.
        """
        service, at, worker = text.partition(AT)
        if not service or (at and not worker):
            raise ValueError(text)
        return cls(verb, service, worker or ANY)

    def covers(self, service: str, worker: str) -> bool:
        """Return whether this is granted. `worker` is empty if it may be any."""
        if not matches(self.service, service):
            return False
        return self.worker == ANY or (worker != "" and matches(self.worker, worker))

    def __str__(self) -> str:
        return self.service if self.worker == ANY else f"{self.service}{AT}{self.worker}"


class Reason(NamedTuple):
    """Why something is allowed: a role, what it grants, and the entry that gives the role to the principal."""

    role: str
    grant: Grant
    entry: str


# The roles that every broker has, from few rights to all.
BUILT_IN: Final[dict[str, list[Grant]]] = {
    "client": [Grant(CALL, ANY)],
    "worker": [Grant(SERVE, ANY)],
    "observer": [Grant(OBSERVE, ANY)],
    "operator": [Grant(verb, ANY) for verb in (OBSERVE, OPERATE, READ, CANCEL)],
    "admin": [Grant(verb, ANY) for verb in VERBS],
}


class Denial(NamedTuple):
    """Something that a principal may not do. `worker` is empty if it may be any."""

    principal: str
    verb: str
    service: str
    worker: str = ""

    def __str__(self) -> str:
        at = f" at the worker {self.worker}" if self.worker and self.verb != SERVE else ""
        return f"{self.principal} may not {self.verb} {self.service}{at}"


class Roles:
    """All roles, and the principals that have them.

    - `roles`: what each of the operator's own roles grants.
    - `principals`: the roles of principals by name or pattern.
    """

    def __init__(self, roles: Mapping[str, Sequence[Grant]], principals: Mapping[str, Sequence[str]]) -> None:
        self.own = dict(roles)
        self.all = {**BUILT_IN, **self.own}
        self.principals = principals
        self._patterns = [pattern for pattern in principals if ANY in pattern]

    def of(self, principal: str) -> dict[str, str]:
        """Return the roles of a principal, each with the entry that gives it."""
        found = dict.fromkeys(self.principals.get(principal, ()), principal)
        for pattern in self._patterns:
            if pattern != principal and matches_principal(pattern, principal):
                for role in self.principals[pattern]:
                    found.setdefault(role, pattern)
        return found

    def holders(self, role: str) -> list[str]:
        """Return the entries that give a role."""
        return [entry for entry, roles in self.principals.items() if role in roles]

    def reasons(self, principal: str, verb: str, service: bytes, worker: bytes = b"") -> Iterator[Reason]:
        """Yield everything that allows a principal to do this."""
        names = printable(service), printable(worker)
        for role, entry in self.of(principal).items():
            for grant in self.all[role]:
                if grant.verb == verb and grant.covers(*names):
                    yield Reason(role, grant, entry)

    def advice(self, denial: Denial) -> str:
        """Return what to add to the configuration to allow this; empty for a name that only a wider pattern matches.

        That is an existing role, the most precise one; else a line in the principal's own role; else a new role.
        """
        principal, verb, service, worker = denial
        if AT in service or ANY in worker or (ANY in service and (service != ANY or verb in (CALL, SERVE))):
            return ""
        fitting = [
            (precision(grant.service), -len(self.all[role]), role)
            for role in ([*self.own, *BUILT_IN] if service == ANY else [*self.own])
            for grant in self.all[role]
            if grant.verb == verb and grant.covers(service, worker)
        ]
        held = self.principals.get(principal, ())
        if fitting:
            return f"[principals] {_assignment(principal, [*held, max(fitting)[2]])}"
        # Of a worker's name the broker does not know whether it was made up.
        new = str(Grant(verb, service, ANY if verb == SERVE else worker or ANY))
        for role in held:
            if role in self.own and self.holders(role) == [principal]:
                granted = [str(grant) for grant in self.own[role] if grant.verb == verb]
                return f"[roles.{_key(role)}] {_assignment(verb, [*granted, new])}"
        entry = _assignment(principal, [*held, "ROLE"])
        return f"[roles.ROLE] {_assignment(verb, [new])} and [principals] {entry}"


class RoleAuthority(Authority):
    """Authority of a broker with roles, quotas or both.

    - `roles`: None allows everything.
    - `quotas`: by name or pattern of principals; the most precise one counts.
    - `on_denied`: is told of every refusal.
    """

    def __init__(
        self, roles: Roles | None, quotas: Mapping[str, Quota], on_denied: Callable[[Denial], object]
    ) -> None:
        self.roles = roles
        self._quotas = quotas
        self._on_denied = on_denied

    def allows(self, principal: str, verb: str, service: bytes, name: bytes) -> bool:
        """Return whether a role of the principal grants this."""
        if self.roles is None:
            return True
        return next(self.roles.reasons(principal, verb, service, name), None) is not None

    def quota(self, principal: str) -> Quota | None:
        """Return the quota of the most precise entry that matches."""
        found = [pattern for pattern in self._quotas if matches_principal(pattern, principal)]
        return self._quotas[max(found, key=precision)] if found else None

    def denied(self, principal: str, verb: str, service: bytes, name: bytes) -> None:
        """Report a refusal to the owner's `on_denied`."""
        self._on_denied(Denial(principal, verb, printable(service), printable(name)))


def _assignment(key: str, values: list[str]) -> str:
    return f"{_key(key)} = {json.dumps(values, ensure_ascii=False)}"


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)
