"""The tables: Apache Iceberg. Spark reads and writes the files, pyiceberg commits the snapshots.

A table changes by one snapshot at a time: new files are written first, under unused names; then one commit adds them
to the table or replaces others. A reader sees the files of one snapshot, always complete. A commit fails if the table
has changed since the edit began: nothing is merged or retried automatically, because the added rows were compared with
the existing ones.

Each snapshot's summary carries notes (`polydomo.…`): the last batch, and the snapshots of the source tables up to which
the table is current. Notes are copied from snapshot to snapshot, so the newest one has them all.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from polydomo import private_files
from polydomo.errors import ConfigError
from polydomo.pipeline import files
from polydomo.pipeline.edit import (
    APPEND,
    COMPACT,
    NOTHING,
    REBUILD,
    Conflict,
    Edit,
    Kind,
    TableFile,
    notes_of,
    piece_of,
)
from polydomo.pipeline.iceberg import (
    PROPERTIES,
    added,
    iceberg_schema,
    live,
    missing,
    partition_by,
)
from polydomo.pipeline.places import Places
from polydomo.pipeline.scan import FileStore
from polydomo.pipeline.tables.spec import GoldTable, TableSpec

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyspark.sql import DataFrame, SparkSession

# Maximum number of cached manifests.
_REMEMBERED: Final = 2000


@dataclass
class _Known:
    """Contents of a manifest, which never change."""

    live: list[DataFile]
    added: dict[int, list[DataFile]]


class Lake:
    """All tables of one location."""

    def __init__(self, places: Places, gold: Sequence[GoldTable] | None = None) -> None:
        self.places = places
        self.gold = tuple(_gold() if gold is None else gold)
        self.specs: dict[str, TableSpec] = {
            spec.name: spec for spec in [*_ours(), *[g.spec for g in self.gold]]
        }
        self._catalog: Catalog | None = None
        self._manifests: dict[str, _Known] = {}
        self._cache = threading.Lock()
        # SQLite takes one writer at a time, and a commit is short.
        self._commits = threading.RLock()

    def __enter__(self) -> Lake:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the catalog's connections."""
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None

    def spec(self, name: str) -> TableSpec:
        """Return a table's spec by name."""
        try:
            return self.specs[name]
        except KeyError:
            raise ConfigError(
                f"there is no table {name!r}", hint=f"tables: {', '.join(sorted(self.specs))}"
            ) from None

    # Reading

    def snapshot(self, name: str) -> int | None:
        """Return the id of the current snapshot. None: the table has never been written to."""
        table = self._load(name)
        head = table.current_snapshot() if table is not None else None
        return head.snapshot_id if head is not None else None

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        """Return all rows of the current snapshot as a DataFrame."""
        return self.frame(spark, name, self.pieces(name))

    def register(self, spark: SparkSession) -> None:
        """Register the current snapshots of all tables as temporary views."""
        for name in self.specs:
            self.read(spark, name).createOrReplaceTempView(name)

    def pieces(self, name: str) -> list[TableFile]:
        """Return the files of the current snapshot."""
        table = self._load(name)
        return [] if table is None else self._pieces(table, table.current_snapshot())

    def frame(self, spark: SparkSession, name: str, pieces: Sequence[TableFile]) -> DataFrame:
        """Return the rows of these files as a DataFrame."""
        spec = self.spec(name)
        if not pieces:
            return spark.createDataFrame([], spec.ddl())
        return spark.read.schema(spec.ddl()).parquet(*[files.literal(piece.path) for piece in pieces])

    def store(self, name: str) -> FileStore:
        """Return an accessor of a table's files that also works in Spark tasks."""
        return FileStore.of(self._made(name).io.properties)

    def notes(self, name: str) -> dict[str, str]:
        """Return the notes of the current snapshot."""
        table = self._load(name)
        return {} if table is None else notes_of(table.current_snapshot())

    def news(self, name: str, snapshot: int | None) -> tuple[int | None, list[TableFile] | None]:
        """Return the current snapshot, and the files appended since an earlier one. None: treat all rows as new."""
        table = self._load(name)
        head = table.current_snapshot() if table is not None else None
        if table is None or head is None:
            return None, [] if snapshot in (None, NOTHING) else None
        if snapshot is None:
            return head.snapshot_id, None
        found: list[TableFile] = []
        at: Snapshot | None = head
        while at is not None and at.snapshot_id != snapshot:
            kind = notes_of(at).get("kind")
            if kind == REBUILD:
                return head.snapshot_id, None
            if kind == APPEND:
                found += [piece_of(file) for file in self._added(table, at)]
            if at.parent_snapshot_id is None:
                return head.snapshot_id, found if snapshot == NOTHING else None
            at = table.metadata.snapshot_by_id(at.parent_snapshot_id)
        return head.snapshot_id, found if at is not None else None

    def pieces_at(self, name: str, snapshot: int | None) -> list[TableFile]:
        """Return the files of a snapshot."""
        table = self._load(name)
        if table is None or snapshot is None:
            return []
        return self._pieces(table, table.metadata.snapshot_by_id(snapshot))

    def bounds(self, name: str, pieces: Sequence[TableFile], *columns: str) -> tuple[int, int] | None:
        """Return the least and greatest value of these columns in these files; None: all are null. Files without bounds
        are treated as unbounded."""
        from pyiceberg.conversions import from_bytes

        schema = self._made(name).schema()
        lows: list[Any] = []
        highs: list[Any] = []
        for column in columns:
            field = schema.find_field(column)
            kind: Any = field.field_type
            for piece in pieces:
                least = (piece.data.lower_bounds or {}).get(field.field_id)
                most = (piece.data.upper_bounds or {}).get(field.field_id)
                nulls = (piece.data.null_value_counts or {}).get(field.field_id)
                if least is not None and most is not None:
                    lows.append(from_bytes(kind, least))
                    highs.append(from_bytes(kind, most))
                elif nulls != piece.rows:
                    return -(2**62), 2**62
        return (min(lows), max(highs)) if lows else None

    # Writing

    def edit(self, name: str) -> Edit:
        """Return an edit of the current snapshot. Creates the table if necessary."""
        return Edit(self.spec(name), self._made(name), self._now, self._commits)

    # Maintenance

    def expire(self, name: str, *, older_than: datetime | None = None, most: int | None = None) -> int:
        """Expire snapshots before a time, or all but the newest `most`, and return how many. The files stay.

        Snapshots that a derived table has not processed yet are kept.
        """
        table = self._load(name)
        head = table.current_snapshot() if table is not None else None
        if table is None or head is None:
            return 0
        anchors = {
            int(notes[f"from.{name}"])
            for follower in self.specs
            if f"from.{name}" in (notes := self.notes(follower))
        }
        needed: set[int] = set()
        at: Snapshot | None = head
        while at is not None:
            needed.add(at.snapshot_id)
            anchors.discard(at.snapshot_id)
            if not anchors:
                break
            at = table.metadata.snapshot_by_id(at.parent_snapshot_id) if at.parent_snapshot_id else None
        old = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms)
        if older_than is not None:
            old = [snapshot for snapshot in old if snapshot.timestamp_ms < older_than.timestamp() * 1000]
        if most is not None:
            old = old[: max(0, len(table.metadata.snapshots) - most)]
        gone = [snapshot.snapshot_id for snapshot in old if snapshot.snapshot_id not in needed]
        if gone:
            with self._commits:
                table.maintenance.expire_snapshots().by_ids(gone).commit()
        return len(gone)

    def referenced(self, name: str) -> set[str]:
        """Return all data and metadata files of all snapshots, local ones as plain paths."""
        table = self._load(name)
        if table is None:
            return set()
        found = {table.metadata_location, *[entry.metadata_file for entry in table.metadata.metadata_log]}
        for snapshot in table.metadata.snapshots:
            found.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                found.add(manifest.manifest_path)
                found.update(file.file_path for file in self._manifest(table, manifest).live)
        return {path.removeprefix("file://") for path in found}

    # Internals

    @property
    def catalog(self) -> Catalog:
        """Return the catalog, opened on first use."""
        with self._commits:
            if self._catalog is None:
                self._catalog = _open(self.places)
            return self._catalog

    def _load(self, name: str) -> Table | None:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        self.spec(name)
        try:
            return self.catalog.load_table((self.places.namespace, name))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def _made(self, name: str) -> Table:
        table = self._load(name)
        spec = self.spec(name)
        if table is None:
            schema = iceberg_schema(spec)
            with self._commits:
                self.catalog.create_namespace_if_not_exists(self.places.namespace)
                table = self.catalog.create_table_if_not_exists(
                    (self.places.namespace, name),
                    schema=schema,
                    location=f"{self.places.tables}/{spec.layer}/{name}",
                    partition_spec=partition_by(schema, spec.partition),
                    properties=PROPERTIES | {"comment": spec.doc},
                )
        new = missing(table, spec)
        if new:  # the table was created by an older version
            with self._commits, table.update_schema() as update:
                for column, kind, doc in new:
                    update.add_column(column, kind, doc)
        return table

    def _now(self, table: Table) -> list[TableFile]:
        return self._pieces(table, table.current_snapshot())

    def _pieces(self, table: Table, snapshot: Snapshot | None) -> list[TableFile]:
        if snapshot is None:
            return []
        return [
            piece_of(file)
            for manifest in snapshot.manifests(table.io)
            for file in self._manifest(table, manifest).live
        ]

    def _added(self, table: Table, snapshot: Snapshot) -> list[DataFile]:
        return [
            file
            for manifest in snapshot.manifests(table.io)
            if manifest.added_snapshot_id == snapshot.snapshot_id
            for file in self._manifest(table, manifest).added.get(snapshot.snapshot_id, [])
        ]

    def _manifest(self, table: Table, manifest: Any) -> _Known:
        known = self._manifests.get(manifest.manifest_path)
        if known is None:
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            known = _Known(live(entries), added(entries))
            with self._cache:
                self._manifests[manifest.manifest_path] = known
                while len(self._manifests) > _REMEMBERED:
                    self._manifests.pop(next(iter(self._manifests)))
        return known


def _open(places: Places) -> Catalog:
    from pyiceberg.catalog import load_catalog

    if files.is_local(places.tables):
        folder = files.local(places.tables)
        private_files.make_folder(folder.parent)  # usually the broker's data folder
        folder.mkdir(exist_ok=True)
    try:
        return load_catalog(places.catalog, **places.options)
    except Exception as error:
        shown = places.options.get("uri", places.catalog)
        raise ConfigError(
            f"cannot open the catalog {shown}: {error}",
            hint="check spark.catalog and spark.catalog_options",
        ) from error


__all__ = ["APPEND", "COMPACT", "NOTHING", "REBUILD", "Conflict", "Edit", "Kind", "Lake", "TableFile"]


def _ours() -> list[TableSpec]:
    from polydomo.pipeline.tables import bronze, silver

    return [*bronze.BRONZE, *silver.SILVER]


def _gold() -> tuple[GoldTable, ...]:
    from polydomo.pipeline.tables.gold import GOLD

    return GOLD
