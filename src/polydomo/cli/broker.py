"""`polydomo broker`: run a broker until it is stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from polydomo.cli.config import INSECURE, LOG_OPTIONS, ConfigFile, parse_set
from polydomo.cli.option_groups import OptionGroup, SettingOption, takes_groups
from polydomo.server.config import Flag

# The options that set settings. `--set KEY=VALUE` sets any other.
PLACES = {
    "--zmq": SettingOption("broker.zmq", "ENDPOINT", "Listen here: tcp://HOST:PORT, ipc://PATH; repeatable."),
    "--nng": SettingOption(
        "broker.nng",
        "ENDPOINT",
        "Listen here for NNG peers (MemoDB), with TLS on tls+tcp://HOST:PORT; repeatable.",
    ),
    "--http": SettingOption(
        "broker.http", "HOST:PORT", "Serve the REST API here, with TLS on https://HOST:PORT; repeatable."
    ),
    "--events": SettingOption(
        "broker.events", "ENDPOINT", "Publish workers' events here, for ZeroMQ SUB sockets."
    ),
    "--data": SettingOption(
        "broker.data",
        "DIR",
        "The broker's own folder, locked against other brokers: durable jobs, and a file with "
        "the broker's endpoints.",
    ),
    "--ledger": SettingOption(
        "ledger.folder",
        "DIR",
        "Write a record of every job here, as Parquet files for Spark and others; "
        "auto: into the folder `ledger` of --data.",
    ),
    "--inventory": SettingOption("inventory.file", "FILE", "The workers' inventory, in norfab's layout."),
    "--files": SettingOption("files.folder", "DIR", "Share the files in this folder, as nf://FILE."),
    "--join": SettingOption(
        "join.up", "URL", "Offer idle workers to this broker: wmp://HOST:PORT; repeatable."
    ),
}
BEHAVIOUR = {
    "--insecure": INSECURE,
    "--name": SettingOption("broker.name", None, "The broker's name."),
    "--heartbeat": SettingOption("heartbeat.interval", "TIME", "Interval of heartbeats."),
    "--liveness": SettingOption(
        "heartbeat.liveness", "N", "Intervals without a heartbeat after which a peer is lost."
    ),
    "--drain": SettingOption(
        "broker.drain", "TIME", "How long jobs may take to finish when the broker stops."
    ),
    **LOG_OPTIONS,
}
OPTIONS = PLACES | BEHAVIOUR


@takes_groups
def broker(
    *,
    places: Annotated[list[Flag], OptionGroup(PLACES)],
    file: ConfigFile = None,
    behaviour: Annotated[list[Flag], OptionGroup(BEHAVIOUR)],
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other setting, by its key in the file."),
    ] = None,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C. SIGHUP reads the configuration again."""
    flags = [*places, *behaviour, *map(parse_set, sets or [])]
    from polydomo.cli import broker_runner  # here, because importing the broker is slow

    broker_runner.run(flags, file)
