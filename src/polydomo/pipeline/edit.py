"""A change of one table: files are written first, then one commit adds them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from polydomo.errors import PolydomoError
from polydomo.pipeline import files
from polydomo.pipeline.iceberg import data_file
from polydomo.pipeline.tables.spec import FILE_ROWS, TableSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyspark.sql import DataFrame, SparkSession

NOTE: Final = "polydomo."

# Kinds of snapshots. Only appended rows are new to the tables derived from this one.
APPEND: Final = "append"  # new rows
COMPACT: Final = "compact"  # the same rows in other files
REBUILD: Final = "rebuild"  # all rows replaced
Kind = Literal["append", "compact", "rebuild", "merge"]

# Stands for the snapshot id of a table that had no snapshot.
NOTHING: Final = 0

# Name of the folders of a write. Not the partition column's own name, so that the column stays in the files.
_FOLDER: Final = "part_day"

# Threads that read the footers of written files.
_THREADS: Final = 8

_EPOCH: Final = date(1970, 1, 1)


class Conflict(PolydomoError):
    """A table was changed by another process during this change."""

    code = "conflict"
    hint = "run only one of 'polydomo spark run', 'backfill' and 'compact' on the same tables at a time"


class TableFile(NamedTuple):
    """One file of a table. `data`: its manifest entry."""

    path: str
    rows: int
    size: int
    day: date | None
    data: DataFile


class Edit:
    """One change of one table, based on the current snapshot."""

    def __init__(
        self,
        spec: TableSpec,
        table: Table,
        read: Callable[[Table], list[TableFile]],
        commits: threading.RLock,
    ) -> None:
        self.spec = spec
        self._table = table
        self._read = read
        self._commits = commits

    @property
    def notes(self) -> dict[str, str]:
        """Return the notes of the current snapshot."""
        return notes_of(self._table.current_snapshot())

    @property
    def snapshot(self) -> int | None:
        """Return the id of the current snapshot."""
        head = self._table.current_snapshot()
        return head.snapshot_id if head is not None else None

    @property
    def location(self) -> str:
        """Return the table's folder."""
        return self._table.location()

    @property
    def table(self) -> Table:
        """Return the table as a pyiceberg object."""
        return self._table

    def pieces(self) -> list[TableFile]:
        """Return the files of the current snapshot."""
        return self._read(self._table)

    def overlapping(self, column: str, low: Any, high: Any) -> list[TableFile]:
        """Return the files that may have rows with `low` ≤ column ≤ `high`."""
        from pyiceberg.conversions import from_bytes

        field = self._table.schema().find_field(column)
        kind: Any = field.field_type
        convert = _raw(low), _raw(high)
        found = []
        for piece in self.pieces():
            least, most = (
                bounds.get(field.field_id) if bounds else None
                for bounds in (piece.data.lower_bounds, piece.data.upper_bounds)
            )
            if (
                least is None
                or most is None
                or not (from_bytes(kind, least) > convert[1] or from_bytes(kind, most) < convert[0])
            ):
                found.append(piece)
        return found

    def write(self, spark: SparkSession, rows: DataFrame) -> list[TableFile]:
        """Write these rows with Spark and return the files, which are not part of the table yet. If the table has a
        sort order, the rows must be sorted by it."""
        from pyspark.sql import functions as F

        schema = self._table.schema()
        columns = [
            F.col(column.name)
            .cast(column.kind)
            .alias(column.name, metadata={"parquet.field.id": schema.find_field(column.name).field_id})
            for column in self.spec.columns
        ]
        folder = f"{self.location}/data/{uuid.uuid4().hex}"
        (
            rows.select(*columns, F.col(self.spec.partition).alias(_FOLDER))
            .write.partitionBy(_FOLDER)
            .option("compression", "zstd")
            .option("maxRecordsPerFile", FILE_ROWS if self.spec.order else 0)
            .parquet(folder)
        )
        return self.described(found.path for found in files.listing(spark, folder, deep=True))

    def write_arrow(self, rows: pa.Table) -> list[TableFile]:
        """Write a few rows without Spark and return the files."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        there, day = self._table.schema().as_arrow(), self.spec.partition
        plan = pa.schema([there.field(name) for name in self.spec.names()])
        folder = f"{self.location}/data/{uuid.uuid4().hex}"
        paths = []
        for value in rows[day].unique():
            wanted = pc.is_null(rows[day]) if not value.is_valid else pc.equal(rows[day], value)
            found = rows.filter(wanted).select(plan.names).cast(plan)
            most = FILE_ROWS if self.spec.order else found.num_rows
            for first in range(0, found.num_rows, most):
                paths.append(f"{folder}/{_FOLDER}={value}/{uuid.uuid4().hex}.parquet")
                with self._table.io.new_output(paths[-1]).create() as place:
                    pq.write_table(found.slice(first, most), place, compression="zstd")
        return self.described(paths)

    def described(self, paths: Iterable[str]) -> list[TableFile]:
        """Return manifest entries for these files, read from their footers."""
        wanted = list(paths)
        with ThreadPoolExecutor(_THREADS) as pool:
            return [piece_of(file) for file in pool.map(lambda path: data_file(self._table, path), wanted)]

    def commit(
        self,
        kind: Kind,
        *,
        add: Sequence[TableFile] = (),
        remove: Sequence[TableFile] = (),
        notes: Mapping[str, str] | None = None,
    ) -> int:
        """Commit one snapshot that adds and removes files and carries the notes. Return its id."""
        with self._committing(kind, notes) as (transaction, summary):
            update = transaction.update_snapshot(snapshot_properties=summary)
            # Only a merging append limits the number of manifests.
            producer = update.overwrite() if remove else update.merge_append()
            with producer as change:
                for piece in remove:
                    change.delete_data_file(piece.data)
                for piece in add:
                    change.append_data_file(piece.data)
        head = self._table.current_snapshot()
        assert head is not None
        return head.snapshot_id

    def append_arrow(
        self, rows: pa.Table, notes: Mapping[str, str] | None = None, *, anew: bool = False
    ) -> None:
        """Append a few rows without Spark, or replace all existing rows by them."""
        with self._committing(REBUILD if anew else APPEND, notes) as (transaction, summary):
            if anew and self.pieces():
                transaction.overwrite(rows, snapshot_properties=summary)
            else:
                transaction.append(rows, snapshot_properties=summary)

    @contextmanager
    def _committing(
        self, kind: Kind, notes: Mapping[str, str] | None
    ) -> Iterator[tuple[Any, dict[str, str]]]:
        from pyiceberg.exceptions import CommitFailedException, ValidationException

        kept = self.notes | dict(notes or {}) | {"kind": kind}
        summary = {f"{NOTE}{key}": value for key, value in kept.items()}
        try:
            with self._commits, self._table.transaction() as transaction:
                yield transaction, summary
        except (CommitFailedException, ValidationException) as error:
            raise Conflict(f"the table {self.spec.name} was changed by another process: {error}") from error


def _raw(value: Any) -> Any:
    """Convert a bound to the manifests' form: microseconds, or days, since 1970."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return (value - _EPOCH).days if isinstance(value, date) else value


def piece_of(file: DataFile) -> TableFile:
    """Convert a manifest entry."""
    value = file.partition[0]
    if isinstance(value, int):
        value = _EPOCH + timedelta(days=value)
    return TableFile(file.file_path, file.record_count, file.file_size_in_bytes, value, file)


def notes_of(snapshot: Snapshot | None) -> dict[str, str]:
    """Return our notes from a snapshot's summary."""
    if snapshot is None or snapshot.summary is None:
        return {}
    said = snapshot.summary.additional_properties
    return {key.removeprefix(NOTE): value for key, value in said.items() if key.startswith(NOTE)}
