"""Test of killing Spark several times during its work: in the end every row is there, once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from polydomo.pipeline.compact import compact
from polydomo.pipeline.lake import Lake
from polydomo.pipeline.places import places_for
from polydomo.pipeline.run import run
from tests.support.gold import SERVICE_DAY
from tests.support.ledger import START, write_segment
from tests.support.tables_process import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEGMENTS = 8
ROWS = 50


def doomed(data: Path, step: str, times: int) -> subprocess.Popen[str]:
    """Start the process in its own group, so that its Java is killed with it."""
    command = [sys.executable, "-m", "tests.support.tables_process", str(data), step, str(times)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)  # it starts Spark three times
def test_no_kill_loses_or_doubles_a_row(spark: SparkSession, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    truth = Counter[str]()

    def write(number: int) -> None:
        service = f"service-{number % 3}"
        rows = [
            {
                "job_id": f"{number}-{n}",
                "service": service,
                "submitted": START + timedelta(minutes=number * 100 + n),
            }
            for n in range(ROWS)
        ]
        write_segment(ledger, "jobs", rows)
        write_segment(ledger, "attempts", [{"job_id": f"{number}-0", "service": service}])
        truth[service] += ROWS

    for number in range(SEGMENTS):
        write(number)
    # Between Spark's files and their commit; between silver and gold; at any time.
    for step, times in (("commit jobs", 2), ("gold", 1)):
        with doomed(tmp_path, step, times) as process:
            said = process.communicate(timeout=200)[0]
            assert process.returncode == -signal.SIGKILL, said
        write_segment(ledger, "jobs", [{"job_id": f"{step}", "service": "service-0"}])
        truth["service-0"] += 1
    with doomed(tmp_path, "none", 0) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        time.sleep(random.uniform(0.5, 3))
        os.killpg(process.pid, signal.SIGKILL)
    options = settings(str(tmp_path))
    with Lake(places_for(options), [SERVICE_DAY]) as lake:
        compact(spark, lake, options, keep=timedelta(0))
        write(SEGMENTS)
        run(spark, lake, options, once=True)
        jobs = Counter(row.service for row in lake.read(spark, "jobs").select("service").collect())
        assert jobs == truth
        assert lake.read(spark, "jobs").select("job_id").distinct().count() == truth.total()
        assert lake.read(spark, "attempts").where("NOT lost").count() == truth.total()
        assert lake.read(spark, "attempts").where("lost").count() == SEGMENTS + 1
        gold = Counter[str]()
        for row in lake.read(spark, "service_day").collect():
            gold[row.service] += row.jobs
        assert gold == truth
