"""`polydomo spark doctor`: check what the other commands need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from polydomo.cli import common
from polydomo.cli.config import ConfigFile
from polydomo.cli.doctor import check_line
from polydomo.cli.spark import options, session
from polydomo.errors import PolydomoError
from polydomo.redaction import redact

if TYPE_CHECKING:
    from polydomo.pipeline.doctor import Finding


def doctor(
    job: Annotated[bool, typer.Option("--job/--no-job", help="Start Spark and run a small job.")] = True,
    master: options.Master = None,
    data: options.Data = None,
    ledger: options.Ledger = None,
    tables: options.Tables = None,
    file: ConfigFile = None,
    sets: options.Sets = None,
    verbose: options.Verbose = False,
    as_json: common.Json = False,
) -> None:
    """Check libraries, Java, ledger and tables, and run a small job. Exit code 1: something is wrong."""
    settings = options.gather(file, sets, master=master, data=data, ledger=ledger, tables=tables)
    from polydomo.pipeline import doctor as checks

    findings: list[Finding] = []

    def add(finding: Finding) -> None:
        finding = finding._replace(found=redact(finding.found), hint=redact(finding.hint))
        findings.append(finding)
        if not as_json:
            line = check_line(finding.status, finding.name, finding.found, finding.hint)
            common.out.print(line, soft_wrap=True)

    for finding in checks.before(settings):
        add(finding)
    startable = not any(finding.status == checks.WRONG for finding in findings if finding.name != "tables")
    if job and startable:
        try:
            with session.spark_session(settings, "a small job", verbose=verbose) as (spark, _):
                found = checks.tiny_job(spark)
        except PolydomoError as error:
            found = checks.Finding("a small job", checks.WRONG, error.message, error.advice)
        add(found)
    wrong = any(finding.status == checks.WRONG for finding in findings)
    if as_json:
        common.print_json({"ok": not wrong, "checks": [finding._asdict() for finding in findings]})
    if wrong:
        raise typer.Exit(common.FAILED)
