"""`polydomo spark`: the ledger's tables, with Spark. Spark is imported only by a command that runs."""

from __future__ import annotations

import typer

from polydomo.cli.spark import analysis, class_archive, doctor, query, sql_service, tables

app = typer.Typer(
    no_args_is_help=True, help="Tables, reports and plans from the records of all jobs (PySpark)."
)

MAKE, ASK, CHECK = "Make the tables", "Use the tables", "Tools"

app.command(rich_help_panel=MAKE)(tables.run)
app.command(rich_help_panel=MAKE)(tables.backfill)
app.command(rich_help_panel=MAKE)(tables.compact)
app.command(rich_help_panel=ASK)(analysis.plan)
app.command(rich_help_panel=ASK)(analysis.report)
app.command(rich_help_panel=ASK)(query.sql)
app.command(rich_help_panel=ASK)(sql_service.serve)
app.command(rich_help_panel=CHECK)(doctor.doctor)
app.command(rich_help_panel=CHECK)(class_archive.prepare)
app.command(rich_help_panel=CHECK)(tables.synth)
