"""`polydomo spark`: the ledger's data on Spark. Spark itself is only imported by a command that runs."""

from __future__ import annotations

import typer

from polydomo.cli.spark import analysis, class_archive, doctor, query, sql_service, tables

app = typer.Typer(no_args_is_help=True, help="What happened to every job, as tables and answers (PySpark).")

MAKE, ASK, CHECK = "Make the tables", "Ask them", "Tools"

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
