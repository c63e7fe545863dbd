"""`polydomo spark`: the ledger's tables, with Spark. Spark is imported only by a command that runs."""

from __future__ import annotations

import typer

from polydomo.cli.spark import analysis, class_archive, doctor, query, sql_service, tables

app = typer.Typer(
    no_args_is_help=True, help="Tables, reports and plans from the records of all jobs (PySpark)."
)

for panel, commands in {
    "Make the tables": (tables.run, tables.backfill, tables.compact),
    "Use the tables": (analysis.plan, analysis.report, query.sql, sql_service.serve),
    "Tools": (doctor.doctor, class_archive.prepare, tables.synth),
}.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
