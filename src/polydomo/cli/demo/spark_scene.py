"""The last act: the demo's own traffic, from the broker's ledger, computed by Spark."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
from collections import Counter
from importlib.util import find_spec
from typing import Any

from rich.padding import Padding
from rich.text import Text

from polydomo.cli import common
from polydomo.cli.demo.runner import SceneFailed, SceneRunner

# Longer than Spark takes on a machine that has other things to do.
PATIENCE = 180.0


async def on_spark(stage: SceneRunner) -> None:
    """What was done, who used it, what it would need. The totals are the broker's own."""
    missing = [name for name in ("pyspark", "pyiceberg", "pandas") if find_spec(name) is None]
    if missing:
        stage.tell(f"not shown: {', '.join(missing)} is not installed (pip install 'polydomo[spark]')")
        return
    start = time.perf_counter()
    counted = await broker_count(stage)
    await stage.written(counted)
    with common.out.status(Text("     Spark starts, reads the ledger, makes tables, computes", "dim")):
        found = await _compute(stage)
    took = common.duration(time.perf_counter() - start)
    computed = {row["service"]: row["jobs"] for row in found["services"]}
    stage.check("the jobs per service, by Spark and by the broker", computed, counted)
    _show(_services(found["services"], counted))
    _show(_clients(found["clients"]))
    _show(_plan(found["plan"]))
    total = sum(counted.values())
    stage.happened(
        "Spark counts ",
        (f"{sum(computed.values())} jobs", "bold green"),
        f" in {found['rows']} rows of the ledger, the broker ",
        (f"{total}", "bold green"),
        (f"  {took}", "dim"),
    )


async def broker_count(stage: SceneRunner) -> dict[str, int]:
    """Jobs that are done, by service: what brokers said before they were killed, what this one says, and for durable
    jobs what it has on disk."""
    async with stage.client() as client:
        found = Counter({row["name"]: row["done"] for row in await client.services()})
    found.update(stage.counted)  # also of services whose workers are not back yet
    for service in stage.durable:
        found[service] = await asyncio.to_thread(_on_disk, stage.http, service)
    return {name: done for name, done in found.items() if done}


def _on_disk(place: str, service: str) -> int:
    """All pages of the broker's list."""
    number, after = 0, ""
    while True:
        url = f"http://{place}/v1/jobs?service={service}&state=done&limit=100{after}"
        with urllib.request.urlopen(url, timeout=15) as answer:
            page = json.load(answer)
        number += len(page["jobs"])
        if page["next"] is None:
            return number
        after = f"&after={page['next']}"


async def _compute(stage: SceneRunner) -> Any:
    """In a process of its own, which ends with ours."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "polydomo.cli.demo.spark_job",
        str(stage.household.data),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            said, noise = await process.communicate()
    except TimeoutError:
        raise SceneFailed(f"Spark took more than {PATIENCE:g} s") from None
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    if process.returncode:
        raise SceneFailed(f"Spark failed: {noise.decode(errors='replace').strip()[-1000:]}")
    return json.loads(said)


def _show(table: Any) -> None:
    common.show(Padding.indent(table, 5))
    common.out.print()


def _services(rows: list[dict[str, Any]], counted: dict[str, int]) -> Any:
    columns = ["service", ">jobs", ">the broker says", "asked by", ">retries", ">p95 wait", ">mean run"]
    cells = [
        [
            Text(row["service"], "bold"),
            row["jobs"],
            counted[row["service"]],
            row["dialects"],
            row["retries"],
            _time(row["wait_s"]),
            _time(row["run_s"]),
        ]
        for row in rows
    ]
    return common.table(columns, cells, title="what was done")


def _clients(rows: list[dict[str, Any]]) -> Any:
    columns = ["clients", ">how many", ">jobs", ">workers' time", ">bytes", "services"]
    cells = [
        [
            row["dialects"],
            row["clients"],
            row["jobs"],
            _time(row["run_s"]),
            common.size(row["bytes"]),
            row["services"],
        ]
        for row in rows
    ]
    return common.table(columns, cells, title="who used what")


def _plan(rows: list[dict[str, Any]]) -> Any:
    from polydomo.cli.demo.spark_job import TARGET

    title = f"how many workers keep 95 % of the waits below {common.duration(TARGET)}"
    columns = ["service", ">were there", ">needed", ">p95 wait", ">with one fewer"]
    cells = [
        [
            Text(row["service"], "bold"),
            row["seen"],
            Text(str(row["workers"]), "bold green"),
            _time(row["wait"]),
            _time(row["fewer"]),
        ]
        for row in rows
    ]
    return common.table(columns, cells, title=title)


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else "0" if seconds < 1e-6 else common.duration(seconds)
