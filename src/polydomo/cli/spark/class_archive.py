"""`polydomo spark prepare`: so that the other commands start sooner."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from polydomo.cli import common
from polydomo.cli.spark import options, session


def prepare(
    again: Annotated[bool, typer.Option("--again", help="Also if it was done before.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Undo it, and free the disk.")] = False,
    as_json: common.Json = False,
) -> None:
    """Make Spark start about four seconds sooner: its classes are written down once, as Java has them in memory.

    Takes a minute and 200 MB in the user's cache folder, for the Java and the Spark that are installed now. After an
    upgrade of either, Spark starts as before until it is done again.
    """
    options.need_spark()
    from polydomo.pipeline import classes, java

    found = java.find()
    if remove:
        freed = classes.remove(found.home, found.version)
        if as_json:
            common.print_json({"archive": None, "freed": freed})
        else:
            said = f"{common.size(freed)} freed" if freed else "there was nothing to remove"
            common.out.print(Text.assemble(("✓ ", "bold green"), said))
        return
    began = session.clock()
    archive = None if again else classes.there(found.home, found.version)
    if archive is None:
        with session.ProgressBar("preparing Spark") as bar:
            archive = classes.make(found.home, found.version, bar.tell)
    took, size = session.clock() - began, archive.path.stat().st_size
    if as_json:
        common.print_json({"archive": str(archive.path), "bytes": size, "seconds": round(took, 3)})
        return
    common.out.print(
        Text.assemble(
            ("✓ ", "bold green"),
            f"Java {found.version} starts Spark with {archive.path}",
            (f"  {common.size(size)}, {common.duration(took)}", "dim"),
        ),
        soft_wrap=True,
    )
