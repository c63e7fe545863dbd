"""`polydomo worker MODULE:OBJECT`: offer functions as services."""

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
    url: Annotated[str | None, common.URL_OPTION] = None,
    service: Annotated[
        str | None, typer.Option("--service", "-s", help="The service's name; default: the function's.")
    ] = None,
    codec: Annotated[
        str | None, typer.Option(metavar="CODEC", help="For functions: json (default), msgpack, cbor, raw.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Number of concurrent jobs.")] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="nfp:// and wmp:// only: the worker's name, as a target of jobs."),
    ] = None,
    resources: Annotated[
        list[str] | None,
        typer.Option(
            "--resource", metavar="NAME", help="nfp:// only: a resource of this worker; repeatable."
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="nfp:// only: keep requests and results here across restarts."),
    ] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Restart when a Python file changes.")] = False,
    folders: Annotated[
        list[Path] | None,
        typer.Option(
            "--reload-dir",
            exists=True,
            file_okay=False,
            help="Folder to watch; default: the current one; repeatable.",
        ),
    ] = None,
) -> None:
    """Offer services until SIGTERM or Ctrl-C.

    The module is searched for in the current folder first. Without :OBJECT it must have exactly one Worker.
    """
    if reload or folders:
        _supervise(folders or [Path()])
        return
    from polydomo.cli import worker_loader  # here, because importing the SDK is slow

    attributes = {"name": name, "resources": resources, "store": store, "concurrency": concurrency}
    given = {key: value for key, value in attributes.items() if value}
    worker_loader.run(target, url, service, codec, given)


def _supervise(folders: list[Path]) -> None:
    """Run the same command without --reload in a child process, and restart it after each change."""
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
