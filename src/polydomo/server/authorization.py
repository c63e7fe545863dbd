"""Roles and quotas of a running broker: they come from the settings, apply at once, and refusals are logged."""

from __future__ import annotations

from collections.abc import Callable

from polydomo.core.broker import Broker
from polydomo.security.roles import Denial, RoleAuthority, Roles
from polydomo.server.log import Log
from polydomo.server.settings import Settings

log = Log()

# Is told of a refusal, and has a function that returns what would grant it.
OnDenied = Callable[[Denial, Callable[[], str]], object]


class Authorization:
    """The authority of one broker."""

    def __init__(self, broker: Broker, on_denied: OnDenied) -> None:
        self._broker = broker
        self._on_denied = on_denied
        self._roles: Roles | None = None

    def configure(self, settings: Settings) -> None:
        """Apply roles and quotas, also to those who are here: a worker that may no longer serve is dismissed."""
        self._roles = roles_of(settings)
        quotas = {name: section.quota() for name, section in settings.quotas.items()}
        if self._roles is None and not quotas:
            self._broker.principals.use(None)
            return
        self._broker.principals.use(RoleAuthority(self._roles, quotas, self._denied))
        self._broker.workers.dismiss_denied()

    def show(self) -> str:
        """Return whether roles apply, for the broker's description."""
        return "off" if self._roles is None else "on"

    def _denied(self, denial: Denial) -> None:
        roles = self._roles
        self._on_denied(denial, lambda: "" if roles is None else roles.advice(denial))


def roles_of(settings: Settings) -> Roles | None:
    """Return the configured roles; None if everything is allowed."""
    if not settings.roles_apply():
        return None
    return Roles({name: role.parsed() for name, role in settings.roles.items()}, settings.principals)


def log_start(settings: Settings) -> None:
    """Log that roles are on, and that nobody has one."""
    if settings.roles_apply():
        log.info("roles are on", roles=len(settings.roles), principals=len(settings.principals))
        if not settings.principals:
            log.warning(
                "no principal has a role, so every call and worker is refused",
                hint='grant roles in [principals], or set security.roles = "off"',
            )
