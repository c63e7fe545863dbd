"""Discovery of new segments: the ledger's folders compared with the bronze tables.

New segments are written to lists, small files of names that the stream reads. Spark's own file source could watch the
ledger's folders, but it identifies a file by name alone: it would never take the repaired version of a bad file, would
skip a segment that arrives with an old date, and would remember every name forever. So Spark streams our lists, which
are written once and in order, and the stream's checkpoint stays small. It may even be deleted: the pending lists are
read again, and known rows are not added twice.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from polydomo.errors import ConfigError
from polydomo.pipeline import files
from polydomo.pipeline.tables.bronze import BY_NAME, Segment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from polydomo.pipeline.lake import Lake

# Schema of a list's lines.
LINE: Final = "list string, table string, path string, size bigint, modified bigint"

_SUFFIX: Final = ".parquet"


class Intake:
    """Discovery of one ledger's segments for one lake."""

    def __init__(self, spark: SparkSession, lake: Lake, per_list: int) -> None:
        self._spark = spark
        self._lake = lake
        self._per_list = per_list
        self._ledger = lake.places.ledger
        self._folder = lake.places.intake
        if files.is_local(self._ledger) and not files.local(self._ledger).is_dir():
            raise ConfigError(
                f"there is no ledger at {files.local(self._ledger)}",
                hint="start the broker with a ledger (ledger.folder), or set spark.ledger",
            )
        # Size and time of each examined segment that is still in place, by path.
        self._known: dict[str, tuple[int, int]] = {}
        # Rejected segments that could not be moved: they may be repaired in place.
        self._rejected: set[str] = set()
        self._number = 0
        self._first = True

    def open(self) -> None:
        """Load the examined segments and those in pending lists."""
        if files.is_local(self._folder):
            files.local(self._folder).mkdir(parents=True, exist_ok=True)
        self._known, self._rejected, looked_at = known(self._lake)
        for found in files.listing(self._spark, self._folder):
            name = found.path.rpartition("/")[2]
            self._number = max(self._number, int(name.partition("-")[0]))
            segments = _parse(files.read(self._spark, found.path) or "")
            if all((segment.path, segment.size, segment.modified) in looked_at for segment in segments):
                self.done([name])  # its batch was committed before the list could be removed
                continue
            for segment in segments:
                self._known[segment.path] = (segment.size, segment.modified)

    def discover(self) -> list[Segment]:
        """Return new segments, the oldest first."""
        found: list[Segment] = []
        for table in BY_NAME:
            folder = f"{self._ledger}/{table}"
            if self._first or not files.is_local(folder):
                found += self._all(table, folder)
            else:
                found += self._by_name(table, folder)
        self._first = False
        for segment in found:
            self._known[segment.path] = (segment.size, segment.modified)
            self._rejected.discard(segment.path)
        return sorted(found, key=lambda segment: (segment.modified, segment.path))

    def note(self, rejected: Iterable[Segment]) -> None:
        """Mark segments as rejected: if they change, they are new."""
        self._rejected.update(segment.path for segment in rejected)

    def post(self, segments: Sequence[Segment]) -> int:
        """Write lists for the stream and return how many."""
        lists = 0
        for start in range(0, len(segments), self._per_list):
            self._number += 1
            lists += 1
            name = f"{self._number:012}-{uuid.uuid4().hex[:8]}.json"
            lines = [
                json.dumps({"list": name} | segment._asdict())
                for segment in segments[start : start + self._per_list]
            ]
            files.write(self._spark, f"{self._folder}/{name}", "\n".join(lines) + "\n")
        return lists

    def waiting(self) -> int:
        """Return the number of segments in pending lists."""
        return sum(
            len(_parse(files.read(self._spark, found.path) or ""))
            for found in files.listing(self._spark, self._folder)
        )

    def stream(self) -> DataFrame:
        """Return the lists as a Spark stream, one list per batch."""
        return (
            self._spark.readStream.schema(LINE)
            .option("maxFilesPerTrigger", 1)
            # A list is removed after its batch is committed, which Spark may not have recorded yet.
            .option("ignoreMissingFiles", "true")
            # By default Spark skips files that are a week older than the newest one.
            .option("maxFileAge", "36500d")
            .json(self._folder)
        )

    def done(self, lists: Iterable[str]) -> None:
        """Remove lists whose segments are in the tables."""
        for name in lists:
            files.remove(self._spark, f"{self._folder}/{name}")

    def _all(self, table: str, folder: str) -> list[Segment]:
        """List every file with its size and time, which also finds files replaced under the same name."""
        here = [f for f in files.listing(self._spark, folder) if f.path.endswith(_SUFFIX)]
        self._forget(folder, {f.path for f in here})
        return [Segment(table, *f) for f in here if self._known.get(f.path) != (f.size, f.modified)]

    def _by_name(self, table: str, folder: str) -> list[Segment]:
        """Check only new names and rejected segments. An accepted segment never changes."""
        paths = {f"{folder}/{name}" for name in files.names(folder) if name.endswith(_SUFFIX)}
        self._forget(folder, paths)
        looked = [files.stat(path) for path in paths if path not in self._known or path in self._rejected]
        return [Segment(table, *f) for f in looked if f and self._known.get(f.path) != (f.size, f.modified)]

    def _forget(self, folder: str, here: set[str]) -> None:
        """Forget removed files: if one returns, it is new."""
        for path in [p for p in self._known if p not in here and p.rpartition("/")[0] == folder]:
            del self._known[path]
            self._rejected.discard(path)


def known(lake: Lake) -> tuple[dict[str, tuple[int, int]], set[str], set[tuple[str, int, int]]]:
    """Read bronze: return the segments still in place (by the latest examination of each path), those of them that were
    rejected, and all that were ever examined."""
    pieces = lake.pieces("segments")
    if not pieces:
        return {}, set(), set()
    table = lake.edit("segments").table
    rows = table.scan(selected_fields=("path", "size", "modified", "accepted", "aside", "at")).to_arrow()
    found: dict[str, tuple[int, int]] = {}
    rejected: set[str] = set()
    looked_at: set[tuple[str, int, int]] = set()
    for row in rows.sort_by("at").to_pylist():
        path = row["path"]
        looked_at.add((path, row["size"], row["modified"]))
        if row["aside"] is not None:  # if it is put back, it is examined again
            found.pop(path, None)
            rejected.discard(path)
            continue
        found[path] = (row["size"], row["modified"])
        (rejected.discard if row["accepted"] else rejected.add)(path)
    return found, rejected, looked_at


def _parse(text: str) -> list[Segment]:
    rows = [json.loads(line) for line in text.splitlines()]
    return [Segment(row["table"], row["path"], row["size"], row["modified"]) for row in rows]
