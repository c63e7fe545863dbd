"""`polydomo audit ls` and `polydomo audit verify`: the audit log of a broker. No broker needs to run."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from polydomo.cli import common
from polydomo.cli.config import ConfigFile, load
from polydomo.cli.inspect import ListingGroup
from polydomo.core.principals import VERBS
from polydomo.errors import ConfigError
from polydomo.security.audit_check import Anchor, AuditReport, check, read
from polydomo.security.audit_record import ACT, DENIED, EVENT, KINDS, AuditRecord
from polydomo.security.patterns import matches
from polydomo.server.config import Flag
from polydomo.server.data_dir import folder_for
from polydomo.server.settings import AUTO

app = typer.Typer(
    cls=ListingGroup, help="The audit log: administrative acts and denials. Without a command: ls."
)

STYLES = {ACT: "bold", DENIED: "red", EVENT: "cyan"}


COLUMNS: common.Columns = {
    ">number": "number",
    "at": lambda row: common.local_time(_time(row["at"]).timestamp()),
    "kind": lambda row: Text(row["kind"], STYLES[row["kind"]]),
    "principal": lambda row: row["principal"] or "–",
    "verb": lambda row: row["verb"] or "–",
    "action": lambda row: row["action"] or "–",
    "target": lambda row: row["target"] or "–",
}

# Columns that are shown if a record has a value; the address only if there is space.
ADDRESS: common.Columns = {"from": lambda row: row["address"] or "–"}
REASON: common.Columns = {"reason": lambda row: row["reason"] or "–"}
TIMES: common.Columns = {">times": lambda row: row["count"] or "–"}

Data = Annotated[
    str | None,
    typer.Option("--data", metavar="FOLDER", help="The broker's data folder; default: as configured."),
]


@app.command("ls")
def ls(
    data: Data = None,
    configuration: ConfigFile = None,
    principal: Annotated[
        str | None,
        typer.Option(
            "--principal", "-p", metavar="NAME", help="Only this principal's; `*` matches any text."
        ),
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help=f"Only {', '.join(KINDS)}.")
    ] = None,
    verb: Annotated[
        str | None, typer.Option("--verb", metavar="VERB", help="Only those of this verb.")
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(
            "--action", metavar="NAME", help="Only this task, route or event; `*` matches any text."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="NAME", help="Only at this service, worker, job or key; `*` matches any text."
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="From this local time on, such as 2026-01-31T12:00.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Up to this local time.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Number of records, at most; the newest.")
    ] = 50,
    as_json: common.Json = False,
) -> None:
    """List the newest records, the oldest of them first. This does not check the log; `verify` does."""
    common.check_choice(kind, KINDS, "--kind")
    common.check_choice(verb, VERBS, "--verb")
    patterns = {"principal": principal, "action": action, "target": target}
    chosen = _Filter(
        {name: value for name, value in {"kind": kind, "verb": verb}.items() if value is not None},
        {name: value for name, value in patterns.items() if value is not None},
        _bound(since, "--since"),
        _bound(until, "--until"),
    )
    newest: deque[AuditRecord] = deque(maxlen=limit)
    unreadable = 0
    for record in read(audit_folder(data, configuration)):
        if record is None:
            unreadable += 1
        elif chosen.matches(record):
            newest.append(record)
    if unreadable:
        lines = "1 line" if unreadable == 1 else f"{unreadable} lines"
        common.print_error(f"not listed: {lines} that are no record", "'polydomo audit verify' names them")
    rows = [msgspec.structs.asdict(record) for record in newest]
    common.print_result(rows, as_json, lambda: common.listing(_columns(rows), rows, "no records"))


@app.command("verify")
def verify(
    data: Data = None,
    configuration: ConfigFile = None,
    anchor: Annotated[
        list[str] | None,
        typer.Option(
            "--anchor",
            metavar="NUMBER:HASH",
            help="A record noted elsewhere, as an earlier `verify` or the broker's log shows it; may be repeated.",
        ),
    ] = None,
    as_json: common.Json = False,
) -> None:
    """Check the whole log for changed, missing and moved records. Exit code 1: there are some."""
    folder = audit_folder(data, configuration)
    report = check(folder, [_anchor(text) for text in anchor or []])
    if as_json:
        common.print_json({"folder": str(folder), "ok": not report.problems, **msgspec.to_builtins(report)})
    else:
        common.show(_shown(report, folder))
    if report.problems:
        raise typer.Exit(common.FAILED)


def audit_folder(data: str | None, file: str | None) -> Path:
    """Return the folder of a broker's audit log; raise ConfigError if it has none."""
    settings = load(file, [] if data is None else [Flag("--data", "broker.data", data)]).settings
    if settings.broker.data == AUTO:
        settings.broker.data = folder_for(settings.broker.zmq)
    folder = settings.audit_folder()
    if not folder:
        raise ConfigError("this broker has no audit log", hint="give --data, or set audit.folder")
    return Path(folder)


class _Filter(NamedTuple):
    """Choice of records."""

    equal: dict[str, str]  # values by field
    patterns: dict[str, str]  # the same, with `*`
    since: datetime | None
    until: datetime | None

    def matches(self, record: AuditRecord) -> bool:
        """Return whether a record is to be listed."""
        at = _time(record.at)
        return (
            all(getattr(record, name) == value for name, value in self.equal.items())
            and all(matches(pattern, getattr(record, name)) for name, pattern in self.patterns.items())
            and (self.since is None or at >= self.since)
            and (self.until is None or at <= self.until)
        )


def _columns(rows: list[dict[str, Any]]) -> common.Columns:
    found = dict(COLUMNS)
    if common.is_wide() and any(row["address"] for row in rows):
        found |= ADDRESS
    if any(row["reason"] for row in rows):
        found |= REASON
    if any(row["count"] for row in rows):
        found |= TIMES
    return found


def _shown(report: AuditReport, folder: Path) -> RenderableType:
    if not report.problems:
        head = f"{report.records} records in {folder}, the last is {report.number}:{report.hash}"
        return Text.assemble(("ok", "bold green"), f"  {head}")
    rows = [[Text(one.kind, "red"), one.where, one.message] for one in report.problems]
    shown = common.table(["problem", "where", "what"], rows)
    return Group(shown, Text(f"and {report.more} more", "dim")) if report.more else shown


def _anchor(text: str) -> Anchor:
    try:
        return Anchor.parse(text, "--anchor")
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not NUMBER:HASH", param_hint="--anchor") from None


def _bound(text: str | None, flag: str) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time such as 2026-01-31T12:00", param_hint=flag) from None


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
