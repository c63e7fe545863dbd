"""The `polydomo` command: the table of its commands, and the handling of errors."""

from __future__ import annotations

import logging
import os
import sys
from collections import UserDict
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from polydomo import __version__
from polydomo.cli import common
from polydomo.errors import PolydomoError

RUN, USE, INSPECT, TOOLS = "Run", "Use", "Inspect", "Tools"


class CommandSpec(NamedTuple):
    """The location of a command or a group of commands."""

    panel: str  # heading in the help
    module: str
    name: str
    hidden: bool = False


COMMANDS = {
    "broker": CommandSpec(RUN, "broker", "broker"),
    "device": CommandSpec(RUN, "device", "device"),
    "dev": CommandSpec(RUN, "dev", "dev"),
    "worker": CommandSpec(RUN, "worker", "worker"),
    "call": CommandSpec(USE, "call", "call"),
    "status": CommandSpec(INSPECT, "inspect", "status"),
    "broker-info": CommandSpec(INSPECT, "inspect", "status", hidden=True),
    "doctor": CommandSpec(TOOLS, "doctor", "doctor"),
    "bench": CommandSpec(TOOLS, "bench", "bench"),
    "demo": CommandSpec(TOOLS, "demo", "demo"),
    "services": CommandSpec(INSPECT, "stored_jobs", "services_app"),
    "workers": CommandSpec(INSPECT, "inspect", "workers_app"),
    "clients": CommandSpec(INSPECT, "inspect", "clients_app"),
    "jobs": CommandSpec(INSPECT, "stored_jobs", "jobs_app"),
    "inventory": CommandSpec(INSPECT, "inventory", "app"),
    "files": CommandSpec(USE, "files", "app"),
    "memo": CommandSpec(INSPECT, "memo", "app"),
    "spark": CommandSpec(INSPECT, "spark", "app"),
    "admin": CommandSpec(TOOLS, "admin", "app"),
    "config": CommandSpec(TOOLS, "config", "app"),
    "keys": CommandSpec(TOOLS, "keys", "app"),
    "profile": CommandSpec(TOOLS, "profile", "app"),
    "tokens": CommandSpec(TOOLS, "tokens", "app"),
    "roles": CommandSpec(TOOLS, "roles", "app"),
    "audit": CommandSpec(TOOLS, "audit", "app"),
    "store": CommandSpec(TOOLS, "store", "app"),
}


class LazyCommands(UserDict[str, Any]):
    """The commands, each imported on first use: importing all of them takes a quarter of a second."""

    def __getitem__(self, name: str) -> Any:
        command = super().__getitem__(name)
        if isinstance(command, CommandSpec):
            command = self[name] = _load(name, command)
        return command


def _load(name: str, spec: CommandSpec) -> Any:
    command = getattr(import_module(f"polydomo.cli.{spec.module}"), spec.name)
    holder = typer.Typer(cls=TyperGroup)
    options: dict[str, Any] = {"rich_help_panel": spec.panel, "hidden": spec.hidden}
    if isinstance(command, typer.Typer):
        holder.add_typer(command, name=name, **options)
    else:
        holder.command(name, **options)(command)
    made = typer.main.get_group(holder).commands[name]
    _add_profile_option(made)
    return made


def _add_profile_option(command: Any) -> None:
    """Add `--profile` to every command that takes the URL of a broker."""
    for below in getattr(command, "commands", {}).values():
        _add_profile_option(below)
    if any(parameter.name == "url" for parameter in command.params):
        holder = typer.Typer(add_completion=False)
        holder.command()(_profile)
        command.params += typer.main.get_command(holder).params


def _use_profile(ctx: typer.Context, name: str | None) -> None:
    """Let a profile apply in this process, and in those that the command starts."""
    if name is None:
        return
    from polydomo.sdk import (
        profiles,  # here, because commands that need no broker start faster without the SDK
    )

    profiles.choose(name, "")  # raises ConfigError if there is none
    before = os.environ.get(profiles.VARIABLE)
    os.environ[profiles.VARIABLE] = name
    ctx.find_root().call_on_close(lambda: _set_variable(profiles.VARIABLE, before))


def _profile(
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help="The profile with the URL and the keys.",
            callback=_use_profile,
            is_eager=True,
            expose_value=False,
        ),
    ] = None,
) -> None:
    """Hold the option for `_add_profile_option`."""


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


class CommandGroup(TyperGroup):
    """The top-level group. Errors and bugs end a command with one line instead of a traceback."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = LazyCommands(COMMANDS)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: Any) -> Any:
        common.OutputMode.json = False
        if logging.lastResort is not None:
            logging.lastResort.setFormatter(common.SafeFormatter())
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(common.INTERRUPTED) from None
        except Exception as error:
            # Typer handles its own exceptions and a closed pipe (`| head`).
            if hasattr(error, "exit_code") or isinstance(error, BrokenPipeError):
                raise
            common.show_traceback(error)
            if isinstance(error, PolydomoError):
                raise typer.Exit(common.report(error)) from None
            common.fail(
                f"{type(error).__name__}: {error}",
                "this is a bug; POLYDOMO_DEBUG=1 shows where. Please report it.",
            )


app = typer.Typer(
    cls=CommandGroup,
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
    """Run and use a service broker for clients and workers of Majordomo, DagBox, NORFAB, WMP and MemoDB."""


def run() -> None:
    """Run the command line."""
    app(prog_name="polydomo")
