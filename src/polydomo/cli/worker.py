"""`polydomo worker module:object`: run somebody's functions as services."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from polydomo.cli import common
from polydomo.cli.reloader import ProcessReloader


def worker(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:OBJECT", help="A Worker, a function, or a dict of names and functions."
        ),
    ],
    url: Annotated[
        str | None,
        typer.Option(
            "--url", "-u", envvar="POLYDOMO_URL", metavar="URL", help="The broker, and the dialect."
        ),
    ] = None,
    service: Annotated[
        str | None, typer.Option("--service", "-s", help="A function's name as a service, if not its own.")
    ] = None,
    codec: Annotated[
        str | None, typer.Option(metavar="CODEC", help="For functions: json (default), msgpack, cbor, raw.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Jobs at the same time.")] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="nfp:// and wmp://: by which jobs can be addressed to it."),
    ] = None,
    resources: Annotated[
        list[str] | None,
        typer.Option("--resource", metavar="NAME", help="nfp:// only: what it looks after; again for more."),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="nfp:// only: keep requests and results there, across restarts."),
    ] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Start anew when a Python file changes.")] = False,
    folders: Annotated[
        list[Path] | None,
        typer.Option(
            "--reload-dir", exists=True, file_okay=False, help="Where to look, if not here; again for more."
        ),
    ] = None,
) -> None:
    """Offer services until SIGTERM or Ctrl-C.

    The module is looked for in the current folder first. Without :OBJECT its only Worker is meant.
    """
    if reload or folders:
        _supervise(folders or [Path()])
        return
    from polydomo.cli import worker_loader  # only here: the other commands need no worker

    own = {"name": name, "resources": resources, "store": store}
    worker_loader.run(
        target, url, service, codec, concurrency, {key: said for key, said in own.items() if said}
    )


def _supervise(folders: list[Path]) -> None:
    """The same command without --reload, in a process that is started anew."""
    words = iter(sys.argv[1:])
    command = [sys.executable, "-m", "polydomo"]
    for word in words:
        if word == "--reload-dir":
            next(words, None)
        elif word != "--reload" and not word.startswith("--reload-dir="):
            command.append(word)
    reloader = ProcessReloader(
        command, folders, lambda line: common.err.print(Text(f"reload: {line}", "cyan"))
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: reloader.stop())
    reloader.run()
