"""`polydomo dev`: a broker with example services, to try things out."""

from __future__ import annotations

from typing import Annotated

import typer

from polydomo.cli import processes
from polydomo.cli.config import ConfigFile, Port
from polydomo.server.config import Flag


def dev(
    port: Port = None,
    file: ConfigFile = None,
    log_level: Annotated[
        str, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")
    ] = "warning",
) -> None:
    """Run a broker with example services until Ctrl-C, and print commands to try."""
    from polydomo.cli import dev_runner  # here, because importing the broker is slow

    chosen = processes.port_to_listen_on() if port is None else str(port)
    flags = [
        Flag("--port", "broker.zmq", [f"tcp://127.0.0.1:{chosen}"]),
        Flag("--log-level", "log.level", log_level),
        Flag("dev", "broker.drain", "1s"),
    ]
    dev_runner.run(flags, file)
