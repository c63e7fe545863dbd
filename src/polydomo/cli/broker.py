"""`polydomo broker`: run a broker until it is told to stop."""

from __future__ import annotations

from typing import Annotated

import typer

from polydomo.cli.config import ConfigFile
from polydomo.server.config import Flag

# Flag → the key it sets in the file. `--set KEY=VALUE` sets any other.
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
    zmq: Annotated[
        list[str] | None,
        typer.Option(
            "--zmq", metavar="ENDPOINT", help="Listen here; again for more. tcp://HOST:PORT, ipc://PATH."
        ),
    ] = None,
    nng: Annotated[
        list[str] | None,
        typer.Option("--nng", metavar="ENDPOINT", help="Listen here for NNG peers (MemoDB); again for more."),
    ] = None,
    http: Annotated[
        list[str] | None,
        typer.Option("--http", metavar="HOST:PORT", help="Serve the REST API here; again for more."),
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
            help="A folder of its own: locked, so that no two brokers share it; it says there where it can "
            "be reached, and keeps durable jobs there if there are any.",
        ),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Write what happens to every job here, as Parquet files for Spark and others; "
            "auto: into the folder `ledger` of --data.",
        ),
    ] = None,
    inventory: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="What workers are told about themselves, in norfab's layout."),
    ] = None,
    files: Annotated[
        str | None, typer.Option(metavar="DIR", help="Share the files in this folder, as nf://FILE.")
    ] = None,
    join: Annotated[
        list[str] | None,
        typer.Option(
            "--join",
            metavar="URL",
            help="Offer idle workers to this broker: wmp://HOST:PORT; again for more.",
        ),
    ] = None,
    file: ConfigFile = None,
    name: Annotated[str | None, typer.Option(help="What the broker calls itself.")] = None,
    heartbeat: Annotated[str | None, typer.Option(metavar="TIME", help="Signs of life this often.")] = None,
    liveness: Annotated[
        str | None, typer.Option(metavar="N", help="Given up after N silent intervals.")
    ] = None,
    drain: Annotated[
        str | None, typer.Option(metavar="TIME", help="For jobs to finish when it stops.")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")
    ] = None,
    log_format: Annotated[str | None, typer.Option(metavar="FORMAT", help="auto, text or json.")] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other setting, by its key in the file."),
    ] = None,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C. SIGHUP reads the configuration again."""
    values = (
        zmq,
        nng,
        http,
        events,
        data,
        ledger,
        inventory,
        files,
        join,
        name,
        drain,
        heartbeat,
        liveness,
        log_level,
        log_format,
    )
    given = dict(zip(KEYS, values, strict=True))
    flags = [Flag(flag, KEYS[flag], value) for flag, value in given.items() if value]
    flags += [_set_flag(text) for text in sets or []]
    from polydomo.cli import broker_runner  # only here: the other commands need none of the broker

    broker_runner.run(flags, file)


def _set_flag(text: str) -> Flag:
    key, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
    return Flag(f"--set {key}", key.strip(), value.strip())
