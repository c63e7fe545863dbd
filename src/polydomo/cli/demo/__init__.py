"""`polydomo demo`: a tour of the broker. `scenes.py` has the scenes, `runner.py` runs them."""

from __future__ import annotations

from typing import Annotated

import typer

from polydomo.cli.config import Port


def demo(
    fast: Annotated[
        bool, typer.Option("--fast", help="No pauses; exit at the end, with code 1 if a step failed.")
    ] = False,
    port: Port = None,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Include the last scene, which takes longest.")
    ] = True,
) -> None:
    """Show a broker with workers and clients of several protocols, then leave it running to try."""
    from polydomo.cli.demo.runner import run_scenes
    from polydomo.cli.demo.scenes import SCENES

    run_scenes(SCENES if spark else SCENES[:-1], fast=fast, port=port)
