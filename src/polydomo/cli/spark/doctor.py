"""`polydomo spark doctor`: would the other commands work here?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from polydomo.cli import common
from polydomo.cli.config import ConfigFile
from polydomo.cli.doctor import MARKS
from polydomo.cli.spark import options, session
from polydomo.errors import PolydomoError
from polydomo.redaction import redact

if TYPE_CHECKING:
    from polydomo.pipeline.doctor import Finding


def doctor(
    job: Annotated[bool, typer.Option("--job/--no-job", help="Start Spark, and run a small job.")] = True,
    master: options.Master = None,
    data: options.Data = None,
    ledger: options.Ledger = None,
    tables: options.Tables = None,
    file: ConfigFile = None,
    sets: options.Sets = None,
    verbose: options.Verbose = False,
    as_json: common.Json = False,
) -> None:
    """Look at libraries, Java, ledger and tables, and run a small job. Exit code 1: something is wrong."""
    settings = options.gather(file, sets, master=master, data=data, ledger=ledger, tables=tables)
    from polydomo.pipeline import doctor as looking

    findings: list[Finding] = []

    def take(finding: Finding) -> None:
        finding = finding._replace(found=redact(finding.found), hint=redact(finding.hint))
        findings.append(finding)
        if not as_json:
            common.out.print(_line(finding), soft_wrap=True)

    for finding in looking.before(settings):
        take(finding)
    startable = not any(finding.status == looking.WRONG for finding in findings if finding.name != "tables")
    if job and startable:
        try:
            with session.spark_session(settings, "a small job", verbose=verbose) as (spark, _):
                found = looking.tiny_job(spark)
        except PolydomoError as error:
            found = looking.Finding("a small job", looking.WRONG, error.message, error.advice)
        take(found)
    wrong = any(finding.status == looking.WRONG for finding in findings)
    if as_json:
        common.print_json({"ok": not wrong, "checks": [finding._asdict() for finding in findings]})
    if wrong:
        raise typer.Exit(common.FAILED)


def _line(finding: Finding) -> Text:
    mark, style = MARKS[finding.status]
    line = Text.assemble((mark, style), " ", (f"{finding.name:<14}", "bold"), finding.found)
    if finding.hint:
        line.append(f"\n{'':16}{finding.hint}", "cyan")
    return line
