"""Who may do what: every principal, every verb, every task of the broker's own services, every route of HTTP, in every
dialect (services/access)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from polydomo.core.principals import (
    ANONYMOUS,
    CALL,
    VERBS,
)
from polydomo.services import access
from polydomo.services.access import TASKS, Rule
from tests.support.access import Grants
from tests.support.access_site import (
    BURIED,
    CLIENT,
    FORMS,
    IDLE,
    MEMO,
    OWNER,
    REACHED,
    SERVICE,
    WAITING,
    WORKER,
    WORKER_OWNER,
    Site,
)

# Every verb at everything, and at what the tests are about; all verbs elsewhere; nothing.
GRANTS: dict[str, dict[str, list[str]]] = {
    **{f"{verb}-all": {verb: ["*"]} for verb in VERBS},
    **{f"{verb}-hidden": {verb: ["hidden*"]} for verb in VERBS},
    "elsewhere": {verb: ["elsewhere"] for verb in VERBS},
    OWNER: {},
    WORKER_OWNER: {},
    "nobody": {},
    ANONYMOUS: {},
}

# Arguments of the tasks that need some.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "mmi.service.broker pause_service": {"name": SERVICE},
    "mmi.service.broker resume_service": {"name": SERVICE},
    "mmi.service.broker forget_memos": {"name": SERVICE},
    "mmi.service.broker disconnect": {"service": IDLE},
    "mmi.service.broker set_resources": {"worker": WORKER, "resources": []},
    "mmi.service.broker share_out": {"service": SERVICE, "resources": []},
    "mmi.service.broker show_stored_job": {"id": BURIED},
    "mmi.service.broker cancel_job": {"id": WAITING},
    "mmi.service.broker resend_job": {"id": BURIED},
    "mmi.service.broker forget_job": {"id": BURIED},
    "mmi.service.broker trace_jobs": {"client": CLIENT, "ids": [BURIED]},
    "sid.service.broker get_inventory": {"name": WORKER},
    "sid.service.broker show_inventory": {"name": WORKER},
    "fss.service.broker file_details": {"url": "nf://x"},
    "fss.service.broker fetch_file": {"url": "nf://x"},
    "filesharing file_details": {"url": "nf://x"},
    "filesharing fetch_file": {"url": "nf://x"},
}

# Lists in which an owner finds its own without any verb.
OWN_ROWS = {
    "show_clients": OWNER,
    "show_jobs": OWNER,
    "show_stored_jobs": OWNER,
    "show_dead_letters": OWNER,
    "scan_jobs": OWNER,
    "scan_endings": OWNER,
    "trace_jobs": OWNER,
    "show_workers": WORKER_OWNER,
    "show_resources": WORKER_OWNER,
}

# Something that each list shows to those who may see it.
SHOWN = {
    "show_services": SERVICE,
    "show_workers": WORKER,
    "show_clients": CLIENT,
    "show_jobs": SERVICE,
    "show_memos": MEMO,
    "show_resources": WORKER,
    "show_stored_jobs": BURIED,
    "show_dead_letters": BURIED,
    "scan_jobs": BURIED,
    "scan_endings": BURIED,
    "trace_jobs": BURIED,
}


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    async with Site(folder, Grants(**GRANTS)) as made:
        yield made


def holds(principal: str, verbs: tuple[str, ...], service: str) -> bool:
    return any(Grants(**GRANTS).allows(principal, verb, service.encode(), b"x") for verb in verbs)


def expected(principal: str, rule: Rule) -> str:
    """Say what the table promises: reached, denied, or unknown."""
    service = rule.fixed.decode() or ("*" if rule.about in (access.BROKER, access.INVENTORY) else SERVICE)
    if rule.about == access.NOTHING or holds(principal, rule.verbs, service):
        return REACHED
    if rule.about == access.JOB:
        return REACHED if principal == OWNER else "unknown"
    if rule.about == access.INVENTORY and principal == WORKER_OWNER:
        return REACHED
    return "denied"


def outcome(answer: bytes) -> str:
    if REACHED.encode() in answer or b'"QUEUED"' in answer or b'"DISPATCHED"' in answer:
        return REACHED
    if b"may not" in answer:
        return "denied"
    return "unknown" if b"no job" in answer else f"neither: {answer!r}"


def requests() -> list[tuple[str, str, Rule, bytes]]:
    """Every task that is no list, with a request for it."""
    return [
        (
            service,
            task,
            rule,
            json.dumps({"task": task, "kwargs": ARGUMENTS.get(f"{service} {task}", {})}).encode(),
        )
        for service, rules in TASKS.items()
        for task, rule in rules.items()
        if rule.about != access.ROWS
    ]


async def test_every_task_for_every_principal_in_every_dialect(tmp_path: Path) -> None:
    wrong = []
    async with site(tmp_path) as made:
        made.probe_tasks()
        for principal in GRANTS:
            for form in FORMS:
                client = made.client(form, principal)
                for service, task, rule, body in requests():
                    promised = expected(principal, rule)
                    if rule.about == access.SUBMIT:
                        promised = REACHED if holds(principal, rule.verbs, service) else "denied"
                        client.close()
                        client = made.client(form, principal)  # the former may hear of its job later
                    found = outcome(await client.call(service, body))
                    if found != promised:
                        wrong.append((principal, form, service, task, promised, found))
                client.close()
    assert not wrong, f"{len(wrong)}: {wrong[:10]}"
