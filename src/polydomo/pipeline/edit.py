"""One change of one table: files are written first, then one commit makes them part of it."""

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

# Kinds of snapshots. Only what is appended is new to the tables that follow this one.
APPEND: Final = "append"  # new rows
COMPACT: Final = "compact"  # the same rows in other files
REBUILD: Final = "rebuild"  # everything anew
Kind = Literal["append", "compact", "rebuild", "merge"]

# In the place of a snapshot's id: the table had none.
NOTHING: Final = 0

# The folders of a write are named after the partition, but not like it: the column stays in the files.
_FOLDER: Final = "part_day"

# Files of one folder are opened by several threads: each is a footer to read.
_THREADS: Final = 8

_EPOCH: Final = date(1970, 1, 1)


class Conflict(PolydomoError):
    """Somebody else changed a table while this process was about to."""

    code = "conflict"
    hint = "only one 'polydomo spark run', 'backfill' or 'compact' may be at work on the same tables"


class Piece(NamedTuple):
    """One file of a table. `data`: as the manifests have it."""

    path: str
    rows: int
    size: int
    day: date | None
    data: DataFile


class Edit:
    """One change of one table, which must not change in between."""

    def __init__(
        self, spec: TableSpec, table: Table, read: Callable[[Table], list[Piece]], commits: threading.RLock
    ) -> None:
        self.spec = spec
        self._table = table
        self._read = read
        self._commits = commits

    @property
    def notes(self) -> dict[str, str]:
        """Of the snapshot that is to be followed."""
        return notes_of(self._table.current_snapshot())

    @property
    def snapshot(self) -> int | None:
        """Its id."""
        head = self._table.current_snapshot()
        return head.snapshot_id if head is not None else None

    @property
    def location(self) -> str:
        """The table's folder."""
        return self._table.location()

    @property
    def table(self) -> Table:
        """As pyiceberg has it."""
        return self._table

    def pieces(self) -> list[Piece]:
        """Its files, as they are."""
        return self._read(self._table)

    def overlapping(self, column: str, low: Any, high: Any) -> list[Piece]:
        """Those of its files that may have rows with `low` ≤ column ≤ `high`."""
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

    def write(self, spark: SparkSession, rows: DataFrame) -> list[Piece]:
        """Files with these rows, which are not part of the table yet. Spark writes them. If the table has an order, the
        rows must have it."""
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

    def write_arrow(self, rows: pa.Table) -> list[Piece]:
        """The same for a few rows, without Spark."""
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

    def described(self, paths: Iterable[str]) -> list[Piece]:
        """Files as the manifests will have them: their footers are read for this."""
        wanted = list(paths)
        with ThreadPoolExecutor(_THREADS) as pool:
            return [piece_of(file) for file in pool.map(lambda path: data_file(self._table, path), wanted)]

    def commit(
        self,
        kind: Kind,
        *,
        add: Sequence[Piece] = (),
        remove: Sequence[Piece] = (),
        notes: Mapping[str, str] | None = None,
    ) -> int:
        """One snapshot: the new files are in, the old ones are out, and the notes say so. Its id."""
        with self._committing(kind, notes) as (transaction, summary):
            update = transaction.update_snapshot(snapshot_properties=summary)
            # Only a merging append keeps the number of manifests down.
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
        """A few rows, without Spark. `anew`: in the place of all that are there."""
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
            raise Conflict(f"the table {self.spec.name} was changed by somebody else: {error}") from error


def _raw(value: Any) -> Any:
    """A bound as the manifests have it: microseconds, or days, since 1970."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return (value - _EPOCH).days if isinstance(value, date) else value


def piece_of(file: DataFile) -> Piece:
    """As we see it."""
    value = file.partition[0]
    if isinstance(value, int):
        value = _EPOCH + timedelta(days=value)
    return Piece(file.file_path, file.record_count, file.file_size_in_bytes, value, file)


def notes_of(snapshot: Snapshot | None) -> dict[str, str]:
    """What it says of itself."""
    if snapshot is None or snapshot.summary is None:
        return {}
    said = snapshot.summary.additional_properties
    return {key.removeprefix(NOTE): value for key, value in said.items() if key.startswith(NOTE)}
