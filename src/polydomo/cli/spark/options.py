"""Options shared by all `polydomo spark` commands, and the settings made from them."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polydomo.cli.config import load
from polydomo.errors import ConfigError
from polydomo.server import config
from polydomo.server.config import Flag
from polydomo.server.settings import Settings

if TYPE_CHECKING:
    from polydomo.pipeline.lake import Lake
    from polydomo.pipeline.places import Places

Master = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark's master: local[N], spark://HOST:PORT, yarn, k8s://…"),
]
Data = Annotated[
    str | None, typer.Option(metavar="DIR", help="The broker's data folder, with the ledger and the tables.")
]
Ledger = Annotated[
    str | None, typer.Option(metavar="DIR", help="The ledger's folder or URL, if it is elsewhere.")
]
Tables = Annotated[
    str | None, typer.Option(metavar="DIR", help="The tables' folder or URL, if they are elsewhere.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting, by its key in the file; repeatable."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show Spark's output.")]


def gather(
    file: str | None,
    sets: list[str] | None = None,
    *,
    master: str | None = None,
    data: str | None = None,
    ledger: str | None = None,
    tables: str | None = None,
) -> Settings:
    """Return the settings of the file, the environment and these options; print mistakes and exit if there are any."""
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
    return load(file, flags).settings


def places(settings: Settings) -> Places:
    """Return the locations of the ledger and the tables."""
    need_spark()
    from polydomo.pipeline.places import places_for

    return places_for(settings)


def open_lake(settings: Settings) -> Lake:
    """Open the catalog of the tables."""
    found = places(settings)
    from polydomo.pipeline.lake import Lake

    return Lake(found)


def need_spark() -> None:
    """Raise ConfigError if the extra `spark` is not installed."""
    from importlib.util import find_spec

    missing = [name for name in ("pyspark", "pandas", "pyiceberg") if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"{', '.join(missing)}: not installed",
            hint="pip install 'polydomo[spark]'",
        )


def need_ledger(found: Places) -> None:
    """Raise ConfigError if there is no ledger, or no segment in it."""
    from polydomo.pipeline.files import is_local, local, names

    if not is_local(found.ledger):
        return
    folder = local(found.ledger)
    if any(names(f"{found.ledger}/{table}") for table in ("jobs", "attempts", "events")):
        return
    if folder.is_dir():
        raise ConfigError(
            f"there are no segments in {folder} yet",
            hint="a broker completes one every ledger.roll (10s) while it has jobs; call a service, and wait a moment",
        )
    raise ConfigError(
        f"there is no ledger at {folder}",
        hint="a broker writes one with 'polydomo broker --ledger auto'; or name it with --ledger or --data, "
        "or make one with 'polydomo spark synth'",
    )


def need_rows(lake: Lake, table: str) -> None:
    """Raise ConfigError if a table is empty."""
    if not lake.pieces(table):
        raise ConfigError(
            f"the table {table} at {lake.places.tables.removeprefix('file://')} is empty",
            hint="make it with 'polydomo spark run --once'; look for a broken ledger with 'polydomo spark doctor'",
        )


def parse_day(text: str | None, flag: str) -> date | None:
    """Parse a day; None stays None."""
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a day: write 2026-11-16", param_hint=flag) from None


def parse_number(text: str, flag: str) -> int:
    """Parse a positive number with optional _ or commas between digits, and an optional suffix k or M."""
    factor = {"k": 1000, "m": 1_000_000}.get(text[-1:].lower(), 1)
    digits = (text[:-1] if factor > 1 else text).replace("_", "").replace(",", "")
    if not digits.isdigit() or int(digits) * factor < 1:
        raise typer.BadParameter(f"{text!r}: write 10_000_000, 10000000 or 10M", param_hint=flag)
    return int(digits) * factor
