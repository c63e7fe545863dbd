"""Public API of the data pipeline on Spark.

    import polydomo.spark

    spark = polydomo.spark.session()                      # or a session of your own
    tables = polydomo.spark.tables(data="data")           # what a broker with --data data did
    tables.service_minute.where("service = 'resize'").show()

    scored = polydomo.spark.call(orders, "score", url="nfp://broker:5555")     # each row a job
    plan = polydomo.spark.plan("resize", p95=0.2, data="data")                 # how many workers?

    spark.read.format("polydomo").option("url", …).load()                      # a live broker's jobs

Importing it is quick: Spark is imported on first use. The data source `polydomo` is registered with the existing
session, and with the one that `session()` creates; `register(spark)` does it for any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from polydomo.errors import ConfigError
from polydomo.redaction import redact
from polydomo.server import config as configuration
from polydomo.server.config import Flag
from polydomo.server.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from polydomo.pipeline.bulk import call
    from polydomo.pipeline.bulk_progress import watch
    from polydomo.pipeline.lake import Lake
    from polydomo.pipeline.plan import Plan
    from polydomo.pipeline.synth import synth

__all__ = ["Tables", "call", "plan", "register", "session", "synth", "tables", "watch"]

# Modules of names that are imported on first use.
_LAZY = {
    "call": "polydomo.pipeline.bulk",
    "synth": "polydomo.pipeline.synth",
    "watch": "polydomo.pipeline.bulk_progress",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(_LAZY[name]), name)
    except ModuleNotFoundError as error:
        raise _not_installed(error) from error


def session(
    master: str | None = None,
    conf: Iterable[str] | Mapping[str, str] = (),
    *,
    config: str | None = None,
    app: str = "polydomo",
) -> SparkSession:
    """Return the session of this process, created if necessary with the pipeline's settings: in UTC, with a Java even
    if none is installed, quick to start.

    `master` and `conf` are Spark's; defaults come from `[spark]` in the configuration (`config`: its file).
    """
    from polydomo.pipeline.session import session as make

    settings = _settings(config)
    pairs = [f"{key}={value}" for key, value in conf.items()] if isinstance(conf, Mapping) else list(conf)
    made = make(master or settings.spark.master, [*settings.spark.conf, *pairs], app=app)
    register(made)
    return made


def register(spark: SparkSession) -> None:
    """Register the data source for `spark.read.format("polydomo")`, `readStream`, `write` and `writeStream`."""
    from polydomo.pipeline.source import register as make

    make(spark)


def tables(
    spark: SparkSession | None = None,
    *,
    config: str | None = None,
    settings: Settings | None = None,
    data: str | None = None,
    tables: str | None = None,
) -> Tables:
    """Return all tables in their current state: `tables().jobs`, `.service_minute`, …

    Their location comes from the configuration (`config`: its file), from `data` (the broker's folder) or `tables`
    (their own folder).
    """
    from polydomo.pipeline.places import places_for

    found = settings if settings is not None else _settings(config, data=data, tables=tables)
    try:
        from polydomo.pipeline.lake import Lake

        lake = Lake(places_for(found))
    except ModuleNotFoundError as error:
        raise _not_installed(error) from error
    return Tables(spark or session(config=config), lake)


def plan(
    service: str | None = None,
    *,
    p95: float | None = None,
    spark: SparkSession | None = None,
    config: str | None = None,
    settings: Settings | None = None,
    data: str | None = None,
    tables: str | None = None,
    **more: Any,
) -> Plan:
    """Find the number of workers that keeps the 95th percentile of waits within `p95` seconds, for one service or all.

    `more`: further arguments of `polydomo.pipeline.plan.plan`: `target` and `percentile` for other percentiles, `load`,
    `speed`, `workers`, `window`, `credit`, `progress`.
    """
    if p95 is not None:
        more |= {"target": p95, "percentile": 0.95}
    found = _tables(spark, config=config, settings=settings, data=data, tables=tables)
    from polydomo.pipeline.plan import plan as work

    try:
        return work(found._spark, found.jobs, service, attempts=found.attempts, **more)
    finally:
        found.close()


class Tables(Mapping[str, "DataFrame"]):
    """The tables as DataFrames: attributes, or a mapping from names. Every access reads the newest snapshot; a
    DataFrame stays at the snapshot it was created from."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark = spark
        self._lake = lake

    def __getattr__(self, name: str) -> DataFrame:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except ConfigError as error:
            raise AttributeError(str(error)) from None

    def __getitem__(self, name: str) -> DataFrame:
        return self._lake.read(self._spark, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._lake.specs)

    def __len__(self) -> int:
        return len(self._lake.specs)

    def __contains__(self, name: object) -> bool:
        return name in self._lake.specs

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        return f"<Tables at {redact(self._lake.places.tables)}: {', '.join(self)}>"

    def register(self) -> None:
        """Register all tables as temporary views of the session: `spark.sql("SELECT … FROM jobs")`."""
        self._lake.register(self._spark)

    def describe(self, name: str) -> str:
        """Return the description of a table and its columns."""
        spec = self._lake.spec(name)
        return "\n".join([f"{name}: {spec.doc}", *(f"  {c.name} {c.kind}: {c.doc}" for c in spec.columns)])

    def close(self) -> None:
        """Close the catalog's connections. Existing DataFrames stay usable."""
        self._lake.close()


_tables = tables  # for functions with a parameter of that name


def _settings(file: str | None, *, data: str | None = None, tables: str | None = None) -> Settings:
    flags = [
        Flag(name, key, value)
        for name, key, value in (("data=", "broker.data", data), ("tables=", "spark.tables", tables))
        if value
    ]
    return configuration.gather(file, flags).checked()


def _not_installed(error: ModuleNotFoundError) -> Exception:
    if error.name and error.name.partition(".")[0] == "polydomo":
        return error
    return ConfigError(f"{error.name} is not installed", hint="pip install 'polydomo[spark]'")


def _register_with_active() -> None:
    """Register the data source with the existing session, if any."""
    import sys

    if "pyspark.sql" not in sys.modules:
        return
    from polydomo.pipeline.session import active

    there = active()
    if there is not None:
        register(there)


_register_with_active()
