"""`polydomo demo`: the broker in a few acts. `acts.py` is the programme, `stage.py` where it is played."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    fast: Annotated[
        bool, typer.Option("--fast", help="No pauses, and end by itself; 1: a step failed.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(help="TCP port; without it 5555, or a free one if that is taken.", show_default=False),
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="With the last act, which takes longest.")
    ] = True,
) -> None:
    """See a broker, workers and clients of several dialects at work; then try it yourself."""
    from polydomo.cli.demo.runner import play
    from polydomo.cli.demo.scenes import SCENES

    play(SCENES if spark else SCENES[:-1], fast=fast, port=port)
