"""What all `polydomo spark` commands are told, and the settings that come of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from polydomo.cli import common
from polydomo.cli.config import print_problems
from polydomo.errors import ConfigError
from polydomo.server import config
from polydomo.server.config import Flag
from polydomo.server.settings import Settings

if TYPE_CHECKING:
    from polydomo.pipeline.lake import Lake
    from polydomo.pipeline.places import Places

Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Where Spark runs: local[N], spark://HOST:PORT, yarn, k8s://…"),
]
Data = Annotated[
    str | None, typer.Option(metavar="DIR", help="The broker's folder: ledger and tables are in it.")
]
Ledger = Annotated[
    str | None, typer.Option(metavar="DIR", help="The ledger, if it is elsewhere; or its URL.")
]
Tables = Annotated[
    str | None, typer.Option(metavar="DIR", help="The tables, if they are elsewhere; or their URL.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Any other setting, by its key in the file; again for more."
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="What Spark says, too.")]


def gather(
    file: str | None,
    sets: list[str] | None = None,
    *,
    master: str | None = None,
    data: str | None = None,
    ledger: str | None = None,
    tables: str | None = None,
) -> Settings:
    """From the file, the environment and these flags; or all that is wrong with them, and the end."""
    given = {
        "--master": ("spark.master", master),
        "--data": ("broker.data", data),
        "--ledger": ("spark.ledger", ledger),
        "--tables": ("spark.tables", tables),
    }
    flags = [Flag(flag, key, value) for flag, (key, value) in given.items() if value]
    several: dict[str, list[str]] = {}
    for text in sets or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
        several.setdefault(key.strip(), []).append(value.strip())
    for key, values in several.items():
        known = config.KEYS.get(key)
        whole: Any = values if known is not None and known.many else values[-1]
        flags.append(Flag(f"--set {key}", key, whole))
    found = config.gather(file, flags)
    if found.problems:
        print_problems(found)
        raise typer.Exit(common.USAGE)
    return found.settings


def places(settings: Settings) -> Places:
    """Where everything is. Needs pyiceberg and the like only when something is opened."""
    need_spark()
    from polydomo.pipeline.places import places_for

    return places_for(settings)


def open_lake(settings: Settings) -> Lake:
    """The tables."""
    found = places(settings)
    from polydomo.pipeline.lake import Lake

    return Lake(found)


def need_spark() -> None:
    """A clear word where the extra is not installed."""
    from importlib.util import find_spec

    missing = [name for name in ("pyspark", "pandas", "pyiceberg") if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"{', '.join(missing)}: not installed",
            hint="pip install 'polydomo[spark]' brings all that is needed",
        )


def need_ledger(found: Places) -> None:
    """A clear word where no broker has written anything."""
    from polydomo.pipeline.files import is_local, local, names

    if not is_local(found.ledger):
        return
    folder = local(found.ledger)
    if any(names(f"{found.ledger}/{table}") for table in ("jobs", "attempts", "events")):
        return
    if folder.is_dir():
        raise ConfigError(
            f"there are no segments in {folder} yet",
            hint="a broker finishes one every ledger.roll (10s) while it has jobs; call a service, and wait a moment",
        )
    raise ConfigError(
        f"there is no ledger at {folder}",
        hint="a broker writes one with 'polydomo broker --ledger auto'; or name it with --ledger or --data, "
        "or make one up with 'polydomo spark synth'",
    )


def need_rows(lake: Lake, table: str) -> None:
    """A clear word where the tables were not made yet."""
    if not lake.pieces(table):
        raise ConfigError(
            f"the table {table} at {lake.places.tables.removeprefix('file://')} is empty",
            hint="make it with 'polydomo spark run --once'; look for a broken ledger with 'polydomo spark doctor'",
        )
