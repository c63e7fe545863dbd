"""The last scene: Spark's tables of the demo's own traffic, from the broker's ledger."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from importlib.util import find_spec
from typing import Any

from rich.padding import Padding
from rich.text import Text

from polydomo.cli import broker_client, common
from polydomo.cli.demo.runner import SceneFailed, SceneRunner

# Seconds: longer than Spark takes on a busy machine.
SPARK_TIMEOUT = 180.0


async def on_spark(runner: SceneRunner) -> None:
    """Show services, clients and a capacity plan. The totals must equal the broker's."""
    missing = [name for name in ("pyspark", "pyiceberg", "pandas") if find_spec(name) is None]
    if missing:
        runner.note(f"skipped: {', '.join(missing)} is not installed (pip install 'polydomo[spark]')")
        return
    watch = common.Stopwatch()
    counted = await broker_count(runner)
    await runner.wait_for_ledger(counted)
    with common.out.status(Text("     Spark starts, reads the ledger and computes the tables", "dim")):
        found = await _compute(runner)
    took = str(watch)
    computed = {row["service"]: row["jobs"] for row in found["services"]}
    runner.check("the jobs per service, by Spark and by the broker", computed, counted)
    _show(_services(found["services"], counted))
    _show(_clients(found["clients"]))
    _show(_plan(found["plan"]))
    total = sum(counted.values())
    runner.report(
        "Spark counts ",
        (f"{sum(computed.values())} jobs", "bold green"),
        f" in {found['rows']} rows of the ledger, the broker ",
        (f"{total}", "bold green"),
        (f"  {took}", "dim"),
    )


async def broker_count(runner: SceneRunner) -> dict[str, int]:
    """Return the number of done jobs by service: of killed brokers, of this one, and durable ones on disk."""
    async with runner.client() as client:
        found = Counter({row["name"]: row["done"] for row in await client.services()})
        found.update(runner.done_before)  # also those of services whose workers have not reconnected yet
        for service in runner.durable:
            filters = {"service": service, "state": "done", "limit": 1000}
            page = await broker_client.call_task(client, runner.url(), "show_stored_jobs", filters)
            found[service] = len(page["jobs"])
    return {name: done for name, done in found.items() if done}


async def _compute(runner: SceneRunner) -> Any:
    """Run the Spark job in a process of its own, which ends with this one."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "polydomo.cli.demo.spark_job",
        str(runner.group.data),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(SPARK_TIMEOUT):
            output, errors = await process.communicate()
    except TimeoutError:
        raise SceneFailed(f"Spark took more than {SPARK_TIMEOUT:g} s") from None
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    if process.returncode:
        raise SceneFailed(f"Spark failed: {errors.decode(errors='replace').strip()[-1000:]}")
    return json.loads(output)


def _show(table: Any) -> None:
    common.show(Padding.indent(table, 5))
    common.out.print()


def _services(rows: list[dict[str, Any]], counted: dict[str, int]) -> Any:
    columns: common.Columns = {
        "service": lambda row: Text(row["service"], "bold"),
        ">jobs": "jobs",
        ">by the broker": lambda row: counted[row["service"]],
        "dialects": "dialects",
        ">retries": "retries",
        ">p95 wait": lambda row: common.optional_duration(row["wait_s"]),
        ">mean run": lambda row: common.optional_duration(row["run_s"]),
    }
    return common.listing(columns, rows, title="services")


def _clients(rows: list[dict[str, Any]]) -> Any:
    columns: common.Columns = {
        "dialect": "dialects",
        ">clients": "clients",
        ">jobs": "jobs",
        ">workers' time": lambda row: common.optional_duration(row["run_s"]),
        ">bytes": lambda row: common.size(row["bytes"]),
        "services": "services",
    }
    return common.listing(columns, rows, title="clients")


def _plan(rows: list[dict[str, Any]]) -> Any:
    from polydomo.cli.demo.spark_job import TARGET

    columns: common.Columns = {
        "service": lambda row: Text(row["service"], "bold"),
        ">seen": "seen",
        ">needed": lambda row: Text(str(row["workers"]), "bold green"),
        ">p95 wait": lambda row: common.optional_duration(row["wait"]),
        ">with one fewer": lambda row: common.optional_duration(row["fewer"]),
    }
    title = f"how many workers keep 95 % of the waits below {common.duration(TARGET)}"
    return common.listing(columns, rows, title=title)
