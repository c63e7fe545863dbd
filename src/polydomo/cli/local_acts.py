"""Administrative acts of commands that need no broker: they are recorded in its audit log before they are done."""

from __future__ import annotations

import os
from pathlib import Path

from polydomo.cli import common
from polydomo.core.principals import ADMINISTER
from polydomo.security.audit_log import AuditLog
from polydomo.security.audit_record import ACT, AuditEntry
from polydomo.server.identification import USER, user_name
from polydomo.server.settings import Settings

# Where the acts come from, in place of a peer's address.
SOURCE = "command line"


def record_act(settings: Settings, action: str, target: str) -> None:
    """Record an act of the user of this process. Raises AuditUnavailable if that fails: the act is refused then.

    Without an audit log, only say so.
    """
    folder = settings.audit_folder()
    if not folder:
        common.err.print("note: not recorded, because no audit log is known; give --data", style="dim")
        return
    log = AuditLog(Path(folder), lambda damage: common.print_error(f"the audit log was damaged: {damage}"))
    log.append([AuditEntry(ACT, USER + user_name(os.getuid()), ADMINISTER, action, target, SOURCE)])
