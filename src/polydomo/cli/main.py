"""The `polydomo` command: its parts put together, and how errors end it."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from polydomo import __version__
from polydomo.cli import (
    admin,
    bench,
    broker,
    call,
    catalogue,
    common,
    config,
    demo,
    dev,
    device,
    doctor,
    durable,  # noqa: F401 (its commands join those of `catalogue`)
    files,
    inventory,
    memo,
    spark,
    worker,
)
from polydomo.errors import PolydomoError


class Commands(TyperGroup):
    """Our own errors, and bugs, end a command with one line instead of a traceback."""

    def invoke(self, ctx: Any) -> Any:
        common.Mode.json = False
        try:
            return super().invoke(ctx)
        except PolydomoError as error:
            if common.debugging():
                common.err.print(getattr(error, "traceback", ""), markup=False)  # the worker's
                raise
            raise typer.Exit(common.report(error)) from None
        except KeyboardInterrupt:
            raise typer.Exit(common.INTERRUPTED) from None
        except Exception as error:
            # Typer's own exceptions know how to end a command; a closed pipe (`| head`) is its business too.
            if common.debugging() or hasattr(error, "exit_code") or isinstance(error, BrokenPipeError):
                raise
            common.fail(
                f"{type(error).__name__}: {error}",
                "this is a bug; POLYDOMO_DEBUG=1 shows where. Please report it.",
            )


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"polydomo {__version__}\n")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """A service broker: clients and workers of Majordomo, DagBox, NORFAB, WMP and MemoDB call each other."""


RUN, USE, LOOK, TOOLS = "Run", "Use", "Look", "Tools"

app.command(rich_help_panel=RUN)(broker.broker)
app.command(rich_help_panel=RUN)(device.device)
app.command(rich_help_panel=RUN)(dev.dev)
app.command(rich_help_panel=RUN)(worker.worker)
app.command(rich_help_panel=USE)(call.call)
app.command(rich_help_panel=LOOK)(catalogue.status)
app.command("broker-info", hidden=True)(catalogue.status)
app.add_typer(catalogue.services_app, name="services", rich_help_panel=LOOK)
app.add_typer(catalogue.workers_app, name="workers", rich_help_panel=LOOK)
app.add_typer(catalogue.clients_app, name="clients", rich_help_panel=LOOK)
app.add_typer(catalogue.jobs_app, name="jobs", rich_help_panel=LOOK)
app.add_typer(inventory.app, name="inventory", rich_help_panel=LOOK)
app.add_typer(files.app, name="files", rich_help_panel=USE)
app.add_typer(memo.app, name="memo", rich_help_panel=LOOK)
app.add_typer(spark.app, name="spark", rich_help_panel=LOOK)
app.add_typer(admin.app, name="admin", rich_help_panel=TOOLS)
app.add_typer(config.app, name="config", rich_help_panel=TOOLS)
app.command(rich_help_panel=TOOLS)(doctor.doctor)
app.command(rich_help_panel=TOOLS)(bench.bench)
app.command(rich_help_panel=TOOLS)(demo.demo)


def run() -> None:
    """The entry point."""
    app(prog_name="polydomo")
