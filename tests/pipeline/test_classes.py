"""Tests of the archive of Spark's classes and its launcher, with a small archive: a full one takes a minute."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pyspark
import pytest

from polydomo.pipeline import classes, java
from tests.cli.support import here

SPARK = Path(pyspark.__file__).parent
MAIN = "org.apache.spark.launcher.Main"


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_java: None) -> java.Java:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return java.find()


@pytest.fixture
def few_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    def noted(folder: str) -> str:
        wanted = Path(folder, "classes")
        wanted.write_text(f"java/lang/Object\njava/lang/String\n{MAIN.replace('.', '/')}\n")
        return str(wanted)

    monkeypatch.setattr(classes, "noted", noted)


def started(home: str, class_path: str, *more: str) -> str:
    """Return where Java loads Spark's main class from. (Without arguments the class itself only prints an error.)"""
    words = [f"{home}/bin/java", "--add-modules=jdk.incubator.vector", *more, "-Xlog:class+load"]
    done = subprocess.run(
        [*words, "-cp", class_path, MAIN], capture_output=True, text=True, timeout=60, check=False
    )
    (line,) = [line for line in done.stdout.splitlines() if f"{MAIN} source:" in line]
    return line.partition("source: ")[2]


def test_spark_is_started_with_the_archive_and_without_it(found: java.Java, few_classes: None) -> None:
    interface = next(SPARK.glob("jars/slf4j-api-*.jar"))
    spark_s = f"{SPARK}/conf:{interface}:{SPARK}/jars/*"
    assert started(java.home_for(found), spark_s).startswith("file:")
    made = json.loads(here("spark", "prepare", "--json").stdout)
    assert Path(made["archive"]).stat().st_size == made["bytes"]
    assert started(java.home_for(found), spark_s) == "shared objects file"
    assert started(java.home_for(found), f"{SPARK}/conf:{SPARK}/jars/*") == "shared objects file"
    # A custom class path is left alone, and the archive does no harm.
    assert started(java.home_for(found), f"/elsewhere.jar:{SPARK}/jars/*").startswith("file:")
    checks = json.loads(here("spark", "doctor", "--no-job", "--json").stdout)["checks"]
    assert made["archive"] in next(check["found"] for check in checks if check["name"] == "quick start")
    assert json.loads(here("spark", "prepare", "--json").stdout)["bytes"] == made["bytes"]  # reused
    assert json.loads(here("spark", "prepare", "--remove", "--json").stdout)["freed"] == made["bytes"]
    assert started(java.home_for(found), spark_s).startswith("file:")
    assert "nothing to remove" in here("spark", "prepare", "--remove").stdout


def test_an_upgrade_makes_it_another_one(
    found: java.Java, few_classes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = classes.make(found.home, found.version, lambda *_: None)
    assert classes.there(found.home, "22.0.1") is None
    monkeypatch.setattr(Path, "stat", _later(Path.stat))
    assert classes.there(found.home, found.version) is None
    second = classes.make(found.home, found.version, lambda *_: None)
    assert second.path != first.path
    assert [path.name for path in classes.cache().glob("*.jsa")] == [
        second.path.name
    ]  # the old one is removed


def _later(stat):  # type: ignore[no-untyped-def]
    """Return the stat of a jar with another date."""

    def found(self, **more):  # type: ignore[no-untyped-def]
        there = stat(self, **more)
        if self.suffix != ".jar":
            return there

        class Later:
            st_size, st_mtime_ns = there.st_size, there.st_mtime_ns + 86_400_000_000_000

        return Later()

    return found


def test_a_launcher_is_known_again(found: java.Java, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process started with a launcher resolves JAVA_HOME to the same Java."""
    home = java.home_for(found)
    monkeypatch.setenv("JAVA_HOME", home)
    assert java.find() == found
    assert java.home_for(java.find()) == home


def test_another_java_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert java.home_for(java.Java("/opt/java", "21", "JAVA_HOME")) == "/opt/java"


def test_what_goes_wrong_is_told(found: java.Java, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(classes, "noted", lambda folder: f"{folder}/missing")
    done = here("spark", "prepare")
    assert done.exit_code != 0
    assert "could not be created" in done.stderr
    assert classes.there(found.home, found.version) is None
