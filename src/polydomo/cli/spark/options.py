"""Options shared by all `polydomo spark` commands, and what is made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import date
from typing import TYPE_CHECKING, Annotated

import typer

from polydomo.cli.config import ConfigFile, load, parse_set
from polydomo.cli.option_groups import OptionGroup, SettingOption
from polydomo.cli.spark.session import ProgressBar, need_spark, spark_session
from polydomo.errors import ConfigError
from polydomo.server import setting_keys
from polydomo.server.config import Flag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from polydomo.pipeline.lake import Lake
    from polydomo.pipeline.places import Places

SETTINGS = {
    "--master": SettingOption(
        "spark.master", "URL", "Spark's master: local[N], spark://HOST:PORT, yarn, k8s://…"
    ),
    "--data": SettingOption(
        "broker.data", "DIR", "The broker's data folder, with the ledger and the tables."
    ),
    "--ledger": SettingOption("spark.ledger", "DIR", "The ledger's folder or URL, if it is elsewhere."),
    "--tables": SettingOption("spark.tables", "DIR", "The tables' folder or URL, if they are elsewhere."),
}
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting, by its key in the file; repeatable."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show Spark's output.")]
Since = Annotated[str | None, typer.Option(metavar="DAY", help="From this day on, such as 2026-11-16.")]
Until = Annotated[str | None, typer.Option(metavar="DAY", help="Up to this day.")]


class SparkRun:
    """The settings of the file, the environment and the options, and what a command opens with them.

    If the settings have mistakes, these are printed, and the command exits.
    """

    def __init__(
        self, flags: list[Flag], file: ConfigFile = None, sets: Sets = None, verbose: Verbose = False
    ) -> None:
        several: dict[str, list[Flag]] = {}
        for flag in map(parse_set, sets or []):
            several.setdefault(flag.key, []).append(flag)
        for key, same in several.items():
            if key in setting_keys.KEYS and setting_keys.KEYS[key].many:
                flags.append(same[-1]._replace(value=[flag.value for flag in same]))
            else:
                flags.append(same[-1])
        self.settings = load(file, flags).settings
        self.verbose = verbose

    def places(self) -> Places:
        """Return the locations of the ledger and the tables."""
        need_spark()
        from polydomo.pipeline.places import places_for

        return places_for(self.settings)

    def lake(self) -> Lake:
        """Open the catalog of the tables."""
        places = self.places()
        from polydomo.pipeline.lake import Lake

        return Lake(places)

    def session(self, title: str) -> AbstractContextManager[tuple[SparkSession, ProgressBar]]:
        """Start Spark for a `with` block."""
        return spark_session(self.settings, title, verbose=self.verbose)

    @contextmanager
    def tables(
        self, title: str, check: Callable[[Lake], None] | None = None
    ) -> Iterator[tuple[SparkSession, Lake, ProgressBar]]:
        """Open the tables, check them, and start Spark for a `with` block."""
        with self.lake() as lake:
            if check is not None:
                check(lake)
            with self.session(title) as (spark, bar):
                yield spark, lake, bar


def _group(*flags: str) -> OptionGroup:
    return OptionGroup({flag: SETTINGS[flag] for flag in flags}, SparkRun)


# The options of commands that read the ledger, that use only the tables, and that use neither.
LedgerRun = Annotated[SparkRun, _group(*SETTINGS)]
TablesRun = Annotated[SparkRun, _group("--master", "--data", "--tables")]
PlainRun = Annotated[SparkRun, _group("--master")]


def need_ledger(lake: Lake) -> None:
    """Raise ConfigError if there is no ledger, or no segment in it."""
    from polydomo.pipeline.files import is_local, local, names

    ledger = lake.places.ledger
    if not is_local(ledger) or any(names(f"{ledger}/{table}") for table in ("jobs", "attempts", "events")):
        return
    folder = local(ledger)
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


def need_jobs(lake: Lake) -> None:
    """Raise ConfigError if the table of jobs is empty."""
    if not lake.pieces("jobs"):
        raise ConfigError(
            f"the table jobs at {lake.places.tables.removeprefix('file://')} is empty",
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
