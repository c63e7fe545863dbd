"""`polydomo broker`: run a broker until it is stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from polydomo.cli.config import ConfigFile, LogFormat, LogLevel
from polydomo.server.config import Flag

# Option → the configuration key that it sets. `--set KEY=VALUE` sets any other.
KEYS = {
    "--zmq": "broker.zmq",
    "--nng": "broker.nng",
    "--http": "broker.http",
    "--events": "broker.events",
    "--data": "broker.data",
    "--ledger": "ledger.folder",
    "--inventory": "inventory.file",
    "--files": "files.folder",
    "--join": "join.up",
    "--name": "broker.name",
    "--drain": "broker.drain",
    "--heartbeat": "heartbeat.interval",
    "--liveness": "heartbeat.liveness",
    "--log-level": "log.level",
    "--log-format": "log.format",
}


def broker(
    ctx: typer.Context,
    zmq: Annotated[
        list[str] | None,
        typer.Option(
            "--zmq", metavar="ENDPOINT", help="Listen here: tcp://HOST:PORT, ipc://PATH; repeatable."
        ),
    ] = None,
    nng: Annotated[
        list[str] | None,
        typer.Option("--nng", metavar="ENDPOINT", help="Listen here for NNG peers (MemoDB); repeatable."),
    ] = None,
    http: Annotated[
        list[str] | None,
        typer.Option("--http", metavar="HOST:PORT", help="Serve the REST API here; repeatable."),
    ] = None,
    events: Annotated[
        list[str] | None,
        typer.Option(
            "--events", metavar="ENDPOINT", help="Publish workers' events here, for ZeroMQ SUB sockets."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The broker's own folder, locked against other brokers: durable jobs, and a file with "
            "the broker's endpoints.",
        ),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Write a record of every job here, as Parquet files for Spark and others; "
            "auto: into the folder `ledger` of --data.",
        ),
    ] = None,
    inventory: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The workers' inventory, in norfab's layout."),
    ] = None,
    files: Annotated[
        str | None, typer.Option(metavar="DIR", help="Share the files in this folder, as nf://FILE.")
    ] = None,
    join: Annotated[
        list[str] | None,
        typer.Option(
            "--join",
            metavar="URL",
            help="Offer idle workers to this broker: wmp://HOST:PORT; repeatable.",
        ),
    ] = None,
    file: ConfigFile = None,
    name: Annotated[str | None, typer.Option(help="The broker's name.")] = None,
    heartbeat: Annotated[str | None, typer.Option(metavar="TIME", help="Interval of heartbeats.")] = None,
    liveness: Annotated[
        str | None,
        typer.Option(metavar="N", help="Intervals without a heartbeat after which a peer is lost."),
    ] = None,
    drain: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long jobs may take to finish when the broker stops."),
    ] = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other setting, by its key in the file."),
    ] = None,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C. SIGHUP reads the configuration again."""
    given = {flag: ctx.params[flag.removeprefix("--").replace("-", "_")] for flag in KEYS}
    flags = [Flag(flag, KEYS[flag], value) for flag, value in given.items() if value]
    flags += [_set_flag(text) for text in sets or []]
    from polydomo.cli import broker_runner  # here, because importing the broker is slow

    broker_runner.run(flags, file)


def _set_flag(text: str) -> Flag:
    key, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
    return Flag(f"--set {key}", key.strip(), value.strip())
