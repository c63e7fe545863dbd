"""Spark's classes, read and checked once: an archive that Java maps into memory instead of loading them one by one.

A third of the time that a small command on Spark takes goes into loading some sixteen thousand classes from three
hundred jars. Java can keep them as it has them in memory (class data sharing). `make` lets a small pipeline run in a
process of its own, which notes the classes that it needs, and has Java write the archive: once per Java and version
of Spark, in the user's cache folder. The launcher (`java`) names it from then on.

Java takes an archive only if the class path is the same, jar by jar, with the same sizes and dates; otherwise it goes
on without. Spark's own class path cannot be archived as it is: it has a jar twice, and a folder that need not exist.
The launcher puts the archive's in its place, and only in that one's: who has a class path of their own has no archive.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from polydomo.errors import PolydomoError

# What the small pipeline is made of.
_JOBS: Final = 2000

# Seconds that each of both steps may take.
_PATIENCE: Final = 600.0

_QUICK: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class Archive(NamedTuple):
    """`patterns`: the class paths of Spark's that `class_path` stands for, as a shell's `case` takes them."""

    path: Path
    class_path: str
    patterns: tuple[str, ...]


def cache() -> Path:
    """Where all of it is."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "polydomo" / "java"


def there(java_home: str, version: str) -> Archive | None:
    """The archive for this Java and the Spark that is installed, if it was made."""
    found = place(java_home, version)
    return found if found is not None and found.path.exists() else None


def place(java_home: str, version: str) -> Archive | None:
    """Where the archive is, or is to be. None: Spark is not installed."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    spark = Path(spec.origin).parent
    jars = sorted(spark.glob("jars/*.jar"))
    if not jars or any(letter in str(jars[0].parent) for letter in '"$`\\'):
        return None
    facts = [f"{jar.name} {(stat := jar.stat()).st_size} {stat.st_mtime_ns}" for jar in jars]
    # As Spark has it: the interface of its log first.
    jars.sort(key=lambda jar: not jar.name.startswith("slf4j-api-"))
    begin, end = f'"{spark}/conf:', f'{spark}/jars/*"'
    return Archive(
        cache() / f"classes-{_digest(str(spark), java_home)}-{_digest(version, *facts)}.jsa",
        ":".join(map(str, jars)),
        (f"{begin}{end}", f'{begin}{spark}/jars/slf4j-api-"*".jar:{end}'),
    )


def make(java_home: str, version: str, told: Callable[[float, str], None]) -> Archive:
    """Takes half a minute to a minute, and 200 MB."""
    archive = place(java_home, version)
    if archive is None:
        raise PolydomoError("there is no Spark to prepare", hint="pip install 'polydomo[spark]'")
    archive.path.parent.mkdir(parents=True, exist_ok=True)
    remove(java_home, version)
    with tempfile.TemporaryDirectory(prefix="polydomo-classes-") as folder:
        told(0.02, "which classes does a small pipeline need?")
        needed = noted(folder)
        told(0.5, "writing them down as Java has them in memory")
        made = f"{folder}/archive"
        _do(
            [
                *(f"{java_home}/bin/java", "-Xshare:dump", *_QUICK.split(), "-Xlog:disable"),
                *(f"-XX:SharedClassListFile={needed}", f"-XX:SharedArchiveFile={made}"),
                *("-cp", archive.class_path),
            ]
        )
        # In one file system, so that it appears whole.
        aside = archive.path.with_name(f".{archive.path.name}-{os.getpid()}")
        shutil.copyfile(made, aside)
        aside.replace(archive.path)
    return archive


def noted(folder: str) -> str:
    """A file with the names of the classes that are needed."""
    _do(
        [
            sys.executable,
            "-c",
            "from polydomo.pipeline import classes; classes.exercise()",
            f"{folder}/classes",
        ]
    )
    return f"{folder}/classes"


def remove(java_home: str, version: str) -> int:
    """All archives for this Java and this Spark. How many bytes are free again."""
    archive = place(java_home, version)
    freed = 0
    for old in _of_the_same(archive) if archive is not None else []:
        freed += old.stat().st_size
        old.unlink(missing_ok=True)
    return freed


def exercise() -> None:
    """A bit of everything, in a process of its own, which is told the file for the classes' names."""
    from polydomo.pipeline.lake import Lake
    from polydomo.pipeline.places import places_for
    from polydomo.pipeline.run import run
    from polydomo.pipeline.session import end, session
    from polydomo.pipeline.synth import synth
    from polydomo.server.settings import Settings

    (place,) = sys.argv[1:]
    folder = str(Path(place).parent)
    spark = session("local[2]", [f"spark.driver.extraJavaOptions={_QUICK} -XX:DumpLoadedClassList={place}"])
    settings = Settings()
    settings.broker.data = folder
    synth(spark, f"{folder}/ledger", _JOBS, days=2, services=4, clients=8)
    with Lake(places_for(settings)) as lake:
        run(spark, lake, settings, once=True)
        lake.register(spark)
        spark.sql("SELECT service, count(*) AS n, avg(run_s) FROM jobs GROUP BY service ORDER BY n").collect()
    end(spark)


def _do(command: list[str]) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=True)
    except subprocess.CalledProcessError as error:
        said = "\n".join((error.stderr or error.stdout or "").strip().splitlines()[-6:])
        raise PolydomoError("the archive of Spark's classes could not be made", hint=said) from error
    except subprocess.TimeoutExpired as error:
        raise PolydomoError(f"the archive of Spark's classes was not made in {_PATIENCE:.0f} s") from error


def _of_the_same(archive: Archive) -> list[Path]:
    """Also of other versions, that were in the same places."""
    return sorted(archive.path.parent.glob(f"{archive.path.stem.rpartition('-')[0]}-*.jsa"))


def _digest(*facts: str) -> str:
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
