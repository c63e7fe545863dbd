"""`polydomo spark doctor`: check what the other commands need."""

from __future__ import annotations

from typing import Annotated

import typer

from polydomo.cli import common
from polydomo.cli.doctor import CheckReport
from polydomo.cli.option_groups import takes_groups
from polydomo.cli.spark import options
from polydomo.errors import PolydomoError
from polydomo.pipeline import doctor as checks


@takes_groups
def doctor(
    job: Annotated[bool, typer.Option("--job/--no-job", help="Start Spark and run a small job.")] = True,
    *,
    chosen: options.LedgerRun,
    as_json: common.Json = False,
) -> None:
    """Check libraries, Java, ledger and tables, and run a small job. Exit code 1: something is wrong."""
    report = CheckReport(as_json)
    for finding in checks.before(chosen.settings):
        report.add(finding)
    startable = all(finding.status != checks.WRONG for finding in report.findings if finding.name != "tables")
    if job and startable:
        try:
            with chosen.session("a small job") as (spark, _):
                found = checks.tiny_job(spark)
        except PolydomoError as error:
            found = checks.Finding("a small job", checks.WRONG, error.message, error.advice)
        report.add(found)
    report.finish()
