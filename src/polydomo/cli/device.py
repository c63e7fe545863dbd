"""`polydomo device`: run a WMP device until it is stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from polydomo.cli.config import LogFormat, LogLevel
from polydomo.server.config import Flag

# Option → the configuration key that it sets. A device uses no other settings.
KEYS = {
    "--zmq": "broker.zmq",
    "--http": "broker.http",
    "--log-level": "log.level",
    "--log-format": "log.format",
}


def device(
    ctx: typer.Context,
    up: Annotated[
        list[str], typer.Argument(metavar="URL...", help="The managers above: wmp://HOST:PORT, one or more.")
    ],
    zmq: Annotated[
        list[str] | None,
        typer.Option(
            "--zmq",
            metavar="ENDPOINT",
            help="Listen here for workers: tcp://HOST:PORT, ipc://PATH; repeatable.",
        ),
    ] = None,
    http: Annotated[
        list[str] | None,
        typer.Option("--http", metavar="HOST:PORT", help="Serve /metrics and /healthz here; repeatable."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The device's name, unique among its managers. Default: random.")
    ] = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> None:
    """Forward WMP messages between workers below and managers above: brokers, other devices, or programs."""
    from polydomo.cli import device_runner  # here, because importing the broker is slow

    given = {flag: ctx.params[flag.removeprefix("--").replace("-", "_")] for flag in KEYS}
    given["--zmq"] = zmq or ["tcp://127.0.0.1:5556"]
    device_runner.run(
        [Flag(flag, KEYS[flag], value) for flag, value in given.items() if value], up, name or ""
    )
