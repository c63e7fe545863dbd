"""`polydomo roles`: what the configuration allows principals to do. No broker needs to run."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from polydomo.cli import common
from polydomo.cli.config import ConfigFile, load
from polydomo.cli.inspect import ListingGroup
from polydomo.core.names import parse_name
from polydomo.core.principals import VERBS
from polydomo.security.roles import BUILT_IN, Denial, Reason, Roles
from polydomo.server.authorization import roles_of
from polydomo.server.config import Config
from polydomo.server.setting_keys import PRINCIPALS, named_path

app = typer.Typer(cls=ListingGroup, help="Roles of principals. Without a command: ls.")

OFF = "roles are off: everything is allowed to everybody"

COLUMNS: common.Columns = {
    "role": lambda row: Text(row["role"], "bold"),
    "grants": lambda row: _grants(row["grants"]),
    "principals": lambda row: ", ".join(row["principals"]) or "–",
    "from": lambda row: Text(row["source"] or "built in", "dim"),
}


@app.command("ls")
def ls(configuration: ConfigFile = None, as_json: common.Json = False) -> None:
    """List all roles, what they grant, and the principals that have them."""
    config = load(configuration)
    roles = _roles(config)
    rows = [_row(config, roles, role) for role in [*roles.own, *BUILT_IN]]
    common.print_result(rows, as_json, lambda: common.listing(COLUMNS, rows))
    if not as_json and not config.settings.roles_apply():
        common.err.print(Text(OFF, "yellow"))


@app.command("check")
def check(
    principal: Annotated[str, typer.Argument(metavar="PRINCIPAL", help="The principal's name.")],
    verb: Annotated[str, typer.Argument(metavar="VERB", help=f"One of {', '.join(VERBS)}.")],
    service: Annotated[
        str, typer.Argument(metavar="SERVICE", help="The service's name; default: the broker as a whole.")
    ] = "*",
    worker: Annotated[
        str, typer.Option("--worker", metavar="NAME", help="At this worker; default: at any.")
    ] = "",
    configuration: ConfigFile = None,
    as_json: common.Json = False,
) -> None:
    """Tell whether a principal may do something, and why. Exit code 1: it may not.

    A running broker uses the configuration that it has read at its start, or after SIGHUP.
    """
    common.check_choice(verb, VERBS, "VERB")
    config = load(configuration)
    roles = roles_of(config.settings)
    asked = Denial(principal, verb, service, worker)
    names = parse_name(service), parse_name(worker)
    reasons = [] if roles is None else list(roles.reasons(principal, verb, *names))
    allowed = roles is None or bool(reasons)
    advice = "" if allowed or roles is None else roles.advice(asked)
    if as_json:
        value = asked._asdict() | {
            "allowed": allowed,
            "roles_apply": roles is not None,
            "has": {} if roles is None else roles.of(principal),
            "granted_by": [_shown(config, reason) for reason in reasons],
            "advice": advice,
        }
        common.print_json(value)
    elif allowed:
        common.print_done(None, False, str(asked).replace(" may not ", " may ", 1))
        for reason in reasons:
            common.out.print(Text("  " + _sentence(config, reason)), soft_wrap=True)
        if roles is None:
            common.out.print(Text(f"  {OFF}", "yellow"))
    else:
        has = ", ".join(roles.of(principal)) if roles is not None else ""
        hint = f"this would grant it: {advice}" if advice else ""
        common.print_error(f"{asked} ({f'has the roles: {has}' if has else 'has no role'})", hint)
    if not allowed:
        raise typer.Exit(common.FAILED)


def _roles(config: Config) -> Roles:
    """Return the configured roles, whether or not they apply."""
    settings = config.settings
    return Roles({name: role.parsed() for name, role in settings.roles.items()}, settings.principals)


def _row(config: Config, roles: Roles, role: str) -> dict[str, Any]:
    grants: dict[str, list[str]] = {}
    for grant in roles.all[role]:
        grants.setdefault(grant.verb, []).append(str(grant))
    sources = [config.sources.get(named_path("roles", role, verb), "") for verb in grants]
    return {
        "role": role,
        "built_in": role in BUILT_IN,
        "grants": grants,
        "principals": roles.holders(role),
        "source": sources[0] if sources else "",
    }


def _grants(grants: dict[str, list[str]]) -> str:
    """Return what a role grants, verbs for the same services together: `call, serve: resize; observe: *`."""
    verbs: dict[str, list[str]] = {}
    for verb, names in grants.items():
        verbs.setdefault(", ".join(names), []).append(verb)
    return "; ".join(f"{', '.join(same)}: {names}" for names, same in verbs.items())


def _shown(config: Config, reason: Reason) -> dict[str, str]:
    return {
        "role": reason.role,
        "grant": str(reason.grant),
        "grant_source": config.sources.get(named_path("roles", reason.role, reason.grant.verb), ""),
        "principal": reason.entry,
        "principal_source": config.sources.get(named_path(PRINCIPALS, reason.entry), ""),
    }


def _sentence(config: Config, reason: Reason) -> str:
    shown = _shown(config, reason)
    role = f"the role {reason.role} grants {reason.grant.verb} {reason.grant}"
    place = f" ({shown['grant_source']})" if shown["grant_source"] else ""
    return f"{role}{place}; {reason.entry} has the role ({shown['principal_source']})"
