"""An archive of Spark's classes (class data sharing), which Java maps into memory instead of loading them one by one.

A third of the time of a small Spark command is spent loading about sixteen thousand classes from three hundred jars.
`make` runs a small pipeline in its own process, records the classes it loads, and has Java write the archive: once per
Java and Spark version, in the user's cache folder. The launcher (`java`) passes it to Java from then on.

Java uses an archive only if the class path is the same, jar by jar, with the same sizes and dates; otherwise it starts
without one. Spark's own class path cannot be archived: it contains a jar twice, and a folder that may not exist. The
launcher substitutes the archive's class path for exactly that one; a custom class path disables the archive.
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

# Jobs of the small pipeline.
_JOBS: Final = 2000

# Seconds for each of the two steps.
_PATIENCE: Final = 600.0

_QUICK: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class Archive(NamedTuple):
    """An archive and its class path. `patterns`: the class paths of Spark that `class_path` replaces, as patterns of a
    shell's `case`."""

    path: Path
    class_path: str
    patterns: tuple[str, ...]


def cache() -> Path:
    """Return the folder of archives and launchers."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "polydomo" / "java"


def there(java_home: str, version: str) -> Archive | None:
    """Return the archive for this Java and the installed Spark, if it exists."""
    found = place(java_home, version)
    return found if found is not None and found.path.exists() else None


def place(java_home: str, version: str) -> Archive | None:
    """Return the archive's location, whether or not it exists. None: Spark is not installed."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    spark = Path(spec.origin).parent
    jars = sorted(spark.glob("jars/*.jar"))
    if not jars or any(letter in str(jars[0].parent) for letter in '"$`\\'):
        return None
    facts = [f"{jar.name} {(stat := jar.stat()).st_size} {stat.st_mtime_ns}" for jar in jars]
    # The same order as Spark's: the logging interface first.
    jars.sort(key=lambda jar: not jar.name.startswith("slf4j-api-"))
    begin, end = f'"{spark}/conf:', f'{spark}/jars/*"'
    return Archive(
        cache() / f"classes-{_digest(str(spark), java_home)}-{_digest(version, *facts)}.jsa",
        ":".join(map(str, jars)),
        (f"{begin}{end}", f'{begin}{spark}/jars/slf4j-api-"*".jar:{end}'),
    )


def make(java_home: str, version: str, told: Callable[[float, str], None]) -> Archive:
    """Create the archive. Takes 30 to 60 seconds and 200 MB."""
    archive = place(java_home, version)
    if archive is None:
        raise PolydomoError("Spark is not installed", hint="pip install 'polydomo[spark]'")
    archive.path.parent.mkdir(parents=True, exist_ok=True)
    remove(java_home, version)
    with tempfile.TemporaryDirectory(prefix="polydomo-classes-") as folder:
        told(0.02, "listing the classes that a small pipeline loads")
        needed = noted(folder)
        told(0.5, "writing the archive")
        made = f"{folder}/archive"
        _do(
            [
                *(f"{java_home}/bin/java", "-Xshare:dump", *_QUICK.split(), "-Xlog:disable"),
                *(f"-XX:SharedClassListFile={needed}", f"-XX:SharedArchiveFile={made}"),
                *("-cp", archive.class_path),
            ]
        )
        # Renamed within one file system, so that the archive appears whole.
        aside = archive.path.with_name(f".{archive.path.name}-{os.getpid()}")
        shutil.copyfile(made, aside)
        aside.replace(archive.path)
    return archive


def noted(folder: str) -> str:
    """Record the names of the loaded classes and return the file."""
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
    """Remove all archives for this Java and Spark and return the number of bytes freed."""
    archive = place(java_home, version)
    freed = 0
    for old in _of_the_same(archive) if archive is not None else []:
        freed += old.stat().st_size
        old.unlink(missing_ok=True)
    return freed


def exercise() -> None:
    """Run a small pipeline that loads the usual classes; argv[1] is the file for their names."""
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
        raise PolydomoError("the archive of Spark's classes could not be created", hint=said) from error
    except subprocess.TimeoutExpired as error:
        raise PolydomoError(f"creating the archive of Spark's classes took over {_PATIENCE:.0f} s") from error


def _of_the_same(archive: Archive) -> list[Path]:
    """Return the archives of the same installation, of other versions too."""
    return sorted(archive.path.parent.glob(f"{archive.path.stem.rpartition('-')[0]}-*.jsa"))


def _digest(*facts: str) -> str:
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
