"""`polydomo device`: run a WMP device until it is stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from polydomo.cli.config import INSECURE, LOG_OPTIONS
from polydomo.cli.option_groups import OptionGroup, SettingOption, takes_groups
from polydomo.server.config import Flag

# A device uses no settings but these and those of the log.
PLACES = {
    "--zmq": SettingOption(
        "broker.zmq", "ENDPOINT", "Listen here for workers: tcp://HOST:PORT, ipc://PATH; repeatable."
    ),
    "--http": SettingOption("broker.http", "HOST:PORT", "Serve /metrics and /healthz here; repeatable."),
    "--insecure": INSECURE,
}


@takes_groups
def device(
    up: Annotated[
        list[str], typer.Argument(metavar="URL...", help="The managers above: wmp://HOST:PORT, one or more.")
    ],
    *,
    places: Annotated[list[Flag], OptionGroup(PLACES)],
    name: Annotated[
        str | None, typer.Option(help="The device's name, unique among its managers. Default: random.")
    ] = None,
    log: Annotated[list[Flag], OptionGroup(LOG_OPTIONS)],
) -> None:
    """Forward WMP messages between workers below and managers above: brokers, other devices, or programs."""
    from polydomo.cli import device_runner  # here, because importing the broker is slow

    default = Flag("--zmq", "broker.zmq", ["tcp://127.0.0.1:5556"])  # a flag that was given overrides it
    device_runner.run([default, *places, *log], up, name or "")
