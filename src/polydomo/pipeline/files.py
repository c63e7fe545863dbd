"""File operations, local or in an object store, other than reading and writing rows.

Local paths are handled by Python. All others go through Hadoop's file systems, which the session has anyway: whatever
Spark can read can be listed.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Found(NamedTuple):
    """A file. `modified`: microseconds since 1970."""

    path: str
    size: int
    modified: int


def is_local(place: str) -> bool:
    """Return whether a path or URL is local or mounted."""
    return "://" not in place or place.startswith("file://")


def local(place: str) -> Path:
    """Return a local path or file:// URL as a Path."""
    return Path(place.removeprefix("file://"))


def url(place: str) -> str:
    """Return the absolute URL of a path. A path without a scheme would refer to Spark's default file system, which is
    another one on a cluster."""
    return place.rstrip("/") if not is_local(place) else f"file://{os.path.abspath(local(place))}"


def literal(path: str) -> str:
    """Escape a path for Spark, which expands patterns."""
    return "".join(f"\\{letter}" if letter in "\\{}[]*?^," else letter for letter in path)


def listing(spark: SparkSession, folder: str, *, deep: bool = False) -> list[Found]:
    """Return the files except those that begin with a dot or `_`; an empty list if there is no such folder."""
    if is_local(folder):
        root = local(folder)
        return sorted(_local(str(root), deep)) if root.is_dir() else []
    system, path = _hadoop(spark, folder)
    if not system.exists(path):
        return []
    found = []
    walk = system.listFiles(path, deep)
    while walk.hasNext():
        status = walk.next()
        name = status.getPath().toString()
        inner = name.removeprefix(path.toString()).split("/")
        if status.getPath().getName()[0] not in "._" and not any(part.startswith(".") for part in inner):
            found.append(Found(name, status.getLen(), status.getModificationTime() * 1000))
    return sorted(found)


def names(folder: str) -> list[str]:
    """Return the visible files of a local folder without a stat of each."""
    try:
        with os.scandir(local(folder)) as entries:
            return [entry.name for entry in entries if entry.name[0] not in "._"]
    except FileNotFoundError:
        return []


def stat(path: str) -> Found | None:
    """Return size and time of a local file; None if it does not exist."""
    try:
        status = os.stat(local(path))
    except OSError:
        return None
    return Found(path, status.st_size, status.st_mtime_ns // 1000)


def remove(spark: SparkSession, path: str) -> None:
    """Remove a file, or a folder and its contents, if it exists."""
    if not is_local(path):
        system, there = _hadoop(spark, path)
        system.delete(there, True)
        return
    here = local(path)
    if here.is_dir():
        shutil.rmtree(here, ignore_errors=True)
    else:
        here.unlink(missing_ok=True)


def write(spark: SparkSession, path: str, text: str) -> None:
    """Write a small file atomically."""
    folder, _, name = path.rpartition("/")
    if is_local(path):
        aside = local(f"{folder}/.{name}")
        aside.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(local(path))
        return
    system, aside_there = _hadoop(spark, f"{folder}/.{name}")
    out = system.create(aside_there, True)
    out.write(bytearray(text.encode()))
    out.close()
    _, there = _hadoop(spark, path)
    system.delete(there, False)
    system.rename(aside_there, there)


def read(spark: SparkSession, path: str) -> str | None:
    """Return the text of a small file; None if it does not exist."""
    if is_local(path):
        try:
            return local(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
    system, there = _hadoop(spark, path)
    if not system.exists(there):
        return None
    stream = system.open(there)
    try:
        jvm: Any = spark._jvm
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def _local(folder: str, deep: bool) -> list[Found]:
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name[0] in "._":
                continue
            try:
                if entry.is_dir():
                    found += _local(entry.path, deep) if deep else []
                else:
                    status = entry.stat()
                    found.append(Found(f"file://{entry.path}", status.st_size, status.st_mtime_ns // 1000))
            except FileNotFoundError:
                continue  # removed during the listing
    return found


def _hadoop(spark: SparkSession, place: str) -> tuple[Any, Any]:
    """Return Hadoop's file system of a URL, and its path object."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(place)
    jsc: Any = spark.sparkContext._jsc
    return path.getFileSystem(jsc.hadoopConfiguration()), path
