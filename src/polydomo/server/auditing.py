"""The broker's audit log: acts before they are done, denials within a budget, and events of the broker itself.

An act that cannot be recorded is refused. Denials and events that cannot be recorded are counted, and the count is
recorded as soon as the disk can be written to again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from polydomo.core.ports import ActLog
from polydomo.core.principals import ANONYMOUS
from polydomo.deferred import Deferred
from polydomo.errors import ConfigError
from polydomo.security.audit_log import AuditLog, AuditUnavailable
from polydomo.security.audit_record import ACT, DENIED, EVENT, AuditEntry
from polydomo.security.denial_budget import DenialBudget
from polydomo.server.audit_writer import AuditWriter
from polydomo.server.data_dir import warn_if_open
from polydomo.server.host import ServerHost
from polydomo.server.log import Log

log = Log()

# Seconds between two looks for counted denials whose period is over.
COLLECT: Final = 5.0

# Seconds that a stopping broker waits for the last records.
CLOSE_TIMEOUT: Final = 10.0


class AuditHost(ServerHost, Protocol):
    """Server as its audit log sees it."""

    def run(self, step: Callable[[], object]) -> None:
        """Call `step` with the core's time set."""


class Auditing(ActLog):
    """Audit log of one server. Without a folder for it nothing is recorded, and nothing is refused."""

    def __init__(self, server: AuditHost) -> None:
        self.server = server
        self.latest_at_start = (
            ""  # the last record of before the start, to be compared with a copy kept elsewhere
        )
        self._writer: AuditWriter | None = None
        self._timer: asyncio.TimerHandle | None = None
        # Strangers do not use up the budget of known principals.
        now = server.clock.read()
        self._known = DenialBudget(now)
        self._strangers = DenialBudget(now)

    @property
    def on(self) -> bool:
        """Return whether there is an audit log."""
        return self._writer is not None

    def start(self) -> None:
        """Open the log and record the start. Raises ConfigError if it cannot be written and that will not pass."""
        settings = self.server.settings
        folder = settings.audit_folder()
        if not folder:
            return
        opened = AuditLog(
            Path(folder),
            lambda damage: log.error("audit log damaged", reason=damage),
            keep=settings.audit.keep,
        )
        try:
            latest = opened.open()
        except AuditUnavailable as error:
            if not error.passing:
                raise ConfigError(error.message, hint="change its owner, or audit.folder") from error
        else:
            warn_if_open(opened.path)
            self.latest_at_start = latest.anchor
        self._writer = AuditWriter(
            opened,
            self.server.loop.call_soon_threadsafe,
            lambda error: log.error("administration is refused", reason=error.message),
            lambda lost: log.warning("audit log written again", lost=lost),
        )
        self.server.broker.acts = self
        self.note("started", settings.broker.name)
        self._collect()

    async def close(self) -> None:
        """Record the stop, and wait until all records are written."""
        writer = self._writer
        if writer is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._record_counted(whole=True)
        self.note("stopped", self.server.settings.broker.name)
        if not await asyncio.to_thread(writer.close, CLOSE_TIMEOUT):
            log.error("last records of the audit log not written", lost=writer.lost, reason=writer.trouble)
        log.info("audit log closed", latest=writer.latest)

    def record(
        self, principal: str, verb: str, action: str, target: str, address: str, then: Callable[[str], None]
    ) -> None:
        """Record an administrative act, then call `then` with why it is to be refused; empty: it is on disk."""
        self.act(principal, verb, action, target, address).then(
            lambda _: self.server.run(partial(then, "")),
            lambda error: self.server.run(partial(then, str(error))),
        )

    def act(
        self, principal: str, verb: str, action: str, target: str = "", address: str = ""
    ) -> Deferred[None]:
        """Record an administrative act, which may be done when the deferred value has arrived.

        Fails with AuditUnavailable if the record is not on disk; the act is to be refused then.
        """
        if self._writer is not None:
            return self._writer.write(AuditEntry(ACT, principal, verb, action, target, address))
        done: Deferred[None] = Deferred()
        done.settle(None)
        return done

    def denied(self, principal: str, verb: str, service: str, name: str) -> None:
        """Record that the authority denied something. `name`: the worker concerned; empty: any."""
        target = f"{service}@{name}" if name else service
        self._deny(AuditEntry(DENIED, principal, verb, target=target))

    def refused(self, address: str, reason: str, principal: str = ANONYMOUS) -> None:
        """Record that a peer's key, token or certificate was not accepted, or its handshake was not correct."""
        self._deny(AuditEntry(DENIED, principal, action="authentication", address=address, reason=reason))

    def note(self, action: str, target: str = "", reason: str = "") -> None:
        """Record an event of the broker itself."""
        if self._writer is not None:
            self._writer.put(AuditEntry(EVENT, action=action, target=target, reason=reason))

    def show(self) -> dict[str, Any]:
        """Describe the audit log for `show_broker`."""
        writer = self._writer
        if writer is None:
            return {}
        folder = self.server.settings.audit_folder()
        return {"folder": folder, "written": writer.written, "lost": writer.lost, "trouble": writer.trouble}

    def _deny(self, entry: AuditEntry) -> None:
        if self._writer is None:
            return
        budget = self._strangers if entry.principal == ANONYMOUS else self._known
        if budget.admits(entry, self.server.clock.read()):
            self._writer.put(entry)

    def _collect(self) -> None:
        self._record_counted()
        self._timer = self.server.loop.call_later(COLLECT, self._collect)

    def _record_counted(self, *, whole: bool = False) -> None:
        """Record the denials that were only counted, if their period is over or with `whole`."""
        now = self.server.clock.read()
        for budget in (self._known, self._strangers):
            if self._writer is not None and (whole or budget.is_due(now)):
                for entry in budget.collect():
                    self._writer.put(entry)
