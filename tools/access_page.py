"""The reference page of access, from the table in `services.access`."""

from __future__ import annotations

from collections.abc import Iterable

from markdown_parts import flow, table

from polydomo.core.principals import VERBS
from polydomo.security.roles import BUILT_IN
from polydomo.services.access import COMMANDS, NOTHING, ROUTES, ROWS, TASKS, Rule

MEANINGS = {
    "call": "submit jobs to a service",
    "serve": "be a worker of a service",
    "read": "read requests and results of others' jobs",
    "cancel": "cancel others' jobs, and add input to them",
    "observe": "see services, workers, clients, jobs without their bodies, metrics and events",
    "operate": "pause services, resend or remove dead letters, dismiss and manage workers, change stored values",
    "administer": "stop the broker, read its log and its inventory",
    "delegate": "act for another principal",
}


def access_page() -> list[str]:
    """Return the page of verbs, tasks, routes and commands."""
    parts = [
        "Access",
        flow("""
            What a [role](../how-to/roles.md) has to grant, for everything that a peer can ask of the broker. Where
            roles are off, everybody may do everything. A request that is not granted is denied; a job of somebody else
            is then unknown, and a list leaves out what its reader may not see. The owner of a job may always read,
            follow and cancel it.
        """),
        flow("""
            The object is a service, or `*` for the broker as a whole, which only the pattern `*` grants. Some of the
            broker's own services stand for things that are no tasks: `fss.service.broker` for the shared folder over
            HTTP, `memodb` for MemoDB's values and heads.
        """),
        "## Verbs",
        _verbs(),
    ]
    parts += [
        "## Tasks of the broker's own services",
        flow("""
            They are the same in every dialect. What is *recorded* is in the audit log before it is done, and refused
            if it cannot be recorded, except where it only reads. Acts on jobs are recorded if the job is another
            principal's; a worker that reads its own inventory is not.
        """),
    ]
    for service, tasks in TASKS.items():
        parts += [f"### {service}", _rules("task", tasks.items())]
    parts += ["## Routes of HTTP", _routes()]
    parts += [
        "## Commands of the dialects",
        "Requests for the broker's own services need what their tasks need.",
    ]
    parts.append(
        table(
            ["dialect", "command", "verb", "object"],
            [
                [dialect, command, _verb(rule), rule.describe()]
                for dialect, commands in COMMANDS.items()
                for command, rule in commands.items()
            ],
        )
    )
    return parts


def _verbs() -> str:
    names = list(BUILT_IN)
    rows = []
    for verb in VERBS:
        held = ["yes" if any(grant.verb == verb for grant in BUILT_IN[role]) else "" for role in names]
        rows.append([f"`{verb}`", MEANINGS[verb], *held])
    return table(["verb", "allows to", *(f"`{name}`" for name in names)], rows)


def _rules(what: str, rules: Iterable[tuple[str, Rule]]) -> str:
    rows = [
        [f"`{name}`" if name else "(any request)", _verb(rule), rule.describe(), _recorded(rule)]
        for name, rule in rules
    ]
    return table([what, "verb", "object", "recorded"], rows)


def _routes() -> str:
    return _rules("route", ((f"{method} {path}", rule) for (method, path), rule in ROUTES.items()))


def _recorded(rule: Rule) -> str:
    return ("if possible" if rule.reads else "yes") if rule.is_act else ""


def _verb(rule: Rule) -> str:
    if rule.about == NOTHING:
        return "none"
    text = " or ".join(f"`{verb}`" for verb in rule.verbs)
    if rule.about == ROWS and rule.verbs == ("observe", "read"):
        return "`observe`; with bodies `read`"
    return text
