"""Where everything is: the ledger that is read, the tables that are made, and what is kept beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from polydomo.errors import ConfigError
from polydomo.pipeline.files import is_local, local, url
from polydomo.server.data_dir import folder_for
from polydomo.server.settings import AUTO, Settings

# What is kept beside the tables and is none of them.
STATE = "_state"

NAMESPACE = "polydomo"


@dataclass(frozen=True)
class Places:
    """Folders here (file://…) or elsewhere (s3a://…, hdfs://…).

    `options` are the catalog's, as pyiceberg takes them.
    """

    ledger: str
    tables: str
    catalog: str = "polydomo"
    options: Mapping[str, str] = field(default_factory=dict)
    namespace: str = NAMESPACE

    @property
    def checkpoint(self) -> str:
        """Spark's own notes on how far the stream is."""
        return f"{self.tables}/{STATE}/checkpoint"

    @property
    def intake(self) -> str:
        """Lists of segments that wait to be taken: what the stream reads."""
        return f"{self.tables}/{STATE}/intake"

    @property
    def quarantine(self) -> str:
        """Segments that could not be read."""
        return f"{self.tables}/{STATE}/quarantine"

    @property
    def lock(self) -> Path | None:
        """Whoever changes the tables holds it. None where a lock means nothing: in an object store, where the
        catalog alone decides who comes first."""
        return local(self.tables) / STATE / "lock" if is_local(self.tables) else None


def places_for(settings: Settings) -> Places:
    """From the configuration. Nothing is made or opened."""
    spark = settings.spark
    data = folder_for(settings.broker.zmq) if settings.broker.data == AUTO else settings.broker.data
    ledger = spark.ledger or ("" if settings.ledger.folder == AUTO else settings.ledger.folder)
    if not ledger and not data:
        raise ConfigError(
            "it is not known where the ledger is: broker.data is empty, and so is spark.ledger",
            hint="set spark.ledger to the folder that the broker's ledger.folder names",
        )
    if not spark.tables and not data:
        raise ConfigError(
            "it is not known where the tables are to be: broker.data is empty, and so is spark.tables",
            hint="set spark.tables",
        )
    tables = url(spark.tables or f"{data}/tables")
    options = _pairs(spark.catalog_options)
    namespace = options.pop("namespace", NAMESPACE)
    name, found = _catalog(spark.catalog, tables)
    return Places(url(ledger or f"{data}/ledger"), tables, name, found | options, namespace)


def _catalog(said: str, tables: str) -> tuple[str, dict[str, str]]:
    """Its name and its properties."""
    if said and "://" not in said:
        return said, {"warehouse": tables}  # pyiceberg's own configuration knows the rest
    if not said:
        if not is_local(tables):
            raise ConfigError(
                f"the tables are at {tables}, where no SQLite catalog can be",
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
