"""Which segments are new: the ledger's folders against what bronze knows.

New segments are posted as lists, small files of names that the stream reads. Spark's own file source could watch the
ledger's folders, but it knows a file by its name alone: it would never take a bad file's repaired successor, would
pass over a segment that arrives with an old date, and would remember every name for ever. So Spark streams our lists,
which are written once and in order, and the stream's checkpoint is small. It may even be deleted: the lists that still
wait are read again, and rows that are known are not taken twice.
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

# What a list's lines are.
LINE: Final = "list string, table string, path string, size bigint, modified bigint"

_SUFFIX: Final = ".parquet"


class Intake:
    """Of one ledger into one lake."""

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
        # By path: size and time of what was looked at, and still is where it was.
        self._known: dict[str, tuple[int, int]] = {}
        # Those of them that were not accepted and could not be moved: they may be repaired in their place.
        self._rejected: set[str] = set()
        self._number = 0
        self._first = True

    def open(self) -> None:
        """Remember what was looked at before, and what waits in lists."""
        if files.is_local(self._folder):
            files.local(self._folder).mkdir(parents=True, exist_ok=True)
        self._known, self._rejected, looked_at = known(self._lake)
        for found in files.listing(self._spark, self._folder):
            name = found.path.rpartition("/")[2]
            self._number = max(self._number, int(name.partition("-")[0]))
            segments = _parse(files.read(self._spark, found.path) or "")
            if all((segment.path, segment.size, segment.modified) in looked_at for segment in segments):
                self.done([name])  # its batch was over, and nobody had the time to remove it
                continue
            for segment in segments:
                self._known[segment.path] = (segment.size, segment.modified)

    def discover(self) -> list[Segment]:
        """New segments, the oldest first."""
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
        """These were not accepted: should they change, they are new."""
        self._rejected.update(segment.path for segment in rejected)

    def post(self, segments: Sequence[Segment]) -> int:
        """Lists for the stream. How many."""
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
        """Segments in lists."""
        return sum(
            len(_parse(files.read(self._spark, found.path) or ""))
            for found in files.listing(self._spark, self._folder)
        )

    def stream(self) -> DataFrame:
        """The lists as Spark's stream, one in a batch."""
        return (
            self._spark.readStream.schema(LINE)
            .option("maxFilesPerTrigger", 1)
            # A list is removed when its batch is in the tables. Should Spark not know that yet, it is not missed.
            .option("ignoreMissingFiles", "true")
            # Spark passes over files that are so much older than the newest one.
            .option("maxFileAge", "36500d")
            .json(self._folder)
        )

    def done(self, lists: Iterable[str]) -> None:
        """Their segments are in the tables."""
        for name in lists:
            files.remove(self._spark, f"{self._folder}/{name}")

    def _all(self, table: str, folder: str) -> list[Segment]:
        """Every file with its size and time: also finds what was replaced under its old name."""
        here = [f for f in files.listing(self._spark, folder) if f.path.endswith(_SUFFIX)]
        self._forget(folder, {f.path for f in here})
        return [Segment(table, *f) for f in here if self._known.get(f.path) != (f.size, f.modified)]

    def _by_name(self, table: str, folder: str) -> list[Segment]:
        """Only names that are new, or that were not accepted. A segment never changes once it was."""
        paths = {f"{folder}/{name}" for name in files.names(folder) if name.endswith(_SUFFIX)}
        self._forget(folder, paths)
        looked = [files.stat(path) for path in paths if path not in self._known or path in self._rejected]
        return [Segment(table, *f) for f in looked if f and self._known.get(f.path) != (f.size, f.modified)]

    def _forget(self, folder: str, here: set[str]) -> None:
        """What is no longer there: should it come again, it is new."""
        for path in [p for p in self._known if p not in here and p.rpartition("/")[0] == folder]:
            del self._known[path]
            self._rejected.discard(path)


def known(lake: Lake) -> tuple[dict[str, tuple[int, int]], set[str], set[tuple[str, int, int]]]:
    """From bronze: what is where it was (the latest look at each path counts), which of it was not accepted, and all
    that was ever looked at."""
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
        if row["aside"] is not None:  # should it be put back, it is looked at again
            found.pop(path, None)
            rejected.discard(path)
            continue
        found[path] = (row["size"], row["modified"])
        (rejected.discard if row["accepted"] else rejected.add)(path)
    return found, rejected, looked_at


def _parse(text: str) -> list[Segment]:
    rows = [json.loads(line) for line in text.splitlines()]
    return [Segment(row["table"], row["path"], row["size"], row["modified"]) for row in rows]
