"""`polydomo spark`: the ledger's data on Spark. Spark itself is only imported by a command that runs."""

from __future__ import annotations

import typer

from polydomo.cli.spark import answers, doctor, making, preparing, query, serving

app = typer.Typer(no_args_is_help=True, help="What happened to every job, as tables and answers (PySpark).")

MAKE, ASK, CHECK = "Make the tables", "Ask them", "Tools"

app.command(rich_help_panel=MAKE)(making.run)
app.command(rich_help_panel=MAKE)(making.backfill)
app.command(rich_help_panel=MAKE)(making.compact)
app.command(rich_help_panel=ASK)(answers.plan)
app.command(rich_help_panel=ASK)(answers.report)
app.command(rich_help_panel=ASK)(query.sql)
app.command(rich_help_panel=ASK)(serving.serve)
app.command(rich_help_panel=CHECK)(doctor.doctor)
app.command(rich_help_panel=CHECK)(preparing.prepare)
app.command(rich_help_panel=CHECK)(making.synth)
