"""Locations of the ledger, the tables, and the state stored next to the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from polydomo.errors import ConfigError
from polydomo.pipeline.files import is_local, local, url
from polydomo.server.data_dir import folder_for
from polydomo.server.settings import AUTO, Settings

# Folder next to the tables for everything that is not a table.
STATE = "_state"

NAMESPACE = "polydomo"


@dataclass(frozen=True)
class Places:
    """URLs of folders, local (file://…) or remote (s3a://…, hdfs://…).

    `options`: properties of pyiceberg's catalog.
    """

    ledger: str
    tables: str
    catalog: str = "polydomo"
    options: Mapping[str, str] = field(default_factory=dict)
    namespace: str = NAMESPACE

    @property
    def checkpoint(self) -> str:
        """Return the folder of Spark's checkpoint of the stream."""
        return f"{self.tables}/{STATE}/checkpoint"

    @property
    def intake(self) -> str:
        """Return the folder of pending lists of segments, which the stream reads."""
        return f"{self.tables}/{STATE}/intake"

    @property
    def quarantine(self) -> str:
        """Return the folder of unreadable segments."""
        return f"{self.tables}/{STATE}/quarantine"

    @property
    def lock(self) -> Path | None:
        """Return the lock file of writers. None for an object store, where only the catalog serialises commits."""
        return local(self.tables) / STATE / "lock" if is_local(self.tables) else None


def places_for(settings: Settings) -> Places:
    """Return the locations from the configuration, without creating or opening anything."""
    spark = settings.spark
    data = folder_for(settings.broker.zmq) if settings.broker.data == AUTO else settings.broker.data
    ledger = spark.ledger or ("" if settings.ledger.folder == AUTO else settings.ledger.folder)
    if not ledger and not data:
        raise ConfigError(
            "the ledger's location is unknown: both broker.data and spark.ledger are empty",
            hint="set spark.ledger to the folder that the broker's ledger.folder names",
        )
    if not spark.tables and not data:
        raise ConfigError(
            "the location of the tables is unknown: both broker.data and spark.tables are empty",
            hint="set spark.tables",
        )
    tables = url(spark.tables or f"{data}/tables")
    options = _pairs(spark.catalog_options)
    namespace = options.pop("namespace", NAMESPACE)
    name, found = _catalog(spark.catalog, tables)
    return Places(url(ledger or f"{data}/ledger"), tables, name, found | options, namespace)


def _catalog(said: str, tables: str) -> tuple[str, dict[str, str]]:
    """Return the catalog's name and properties."""
    if said and "://" not in said:
        return said, {"warehouse": tables}  # the rest is in pyiceberg's own configuration
    if not said:
        if not is_local(tables):
            raise ConfigError(
                f"a SQLite catalog cannot be stored at {tables}",
                hint="set spark.catalog to a database or a REST catalog",
            )
        said = f"sqlite:///{local(tables)}/catalog.db"
    scheme = said.partition(":")[0]
    kinds = {"http": "rest", "https": "rest", "thrift": "hive"}
    return NAMESPACE, {"type": kinds.get(scheme, "sql"), "uri": said, "warehouse": tables}


def _pairs(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{text!r} in spark.catalog_options is not KEY=VALUE")
        found[key.strip()] = value.strip()
    return found
