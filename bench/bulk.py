"""Throughput and guarantees of bulk calls from Spark, against a plain pipelined client: `python bench/bulk.py`.

One broker, two workers that reply at once, durable jobs (SQLite, stored before they are dispatched):

- plain: one process per connection with `polydomo.Client`, a window of calls in flight, without Spark;
- call: `polydomo.spark.call` on a DataFrame with as many partitions, all its rows counted by outcome.

Both send the same rows, in the same round; the ratio is taken within a round. The session and its Python processes are
warm: their start is not measured, nor is that of the plain clients. The CPU time of all participants (broker, workers,
clients or Spark) is reported as well, because it hardly depends on other load. `--memory` measures jobs that are not
durable (DCP).

`--check` sends 100,000 rows (`--rows`), a tenth of them twice, with workers that kill themselves on the way and a Spark
task that dies after it received results and is retried. Then every row must have its own result, and the number of
executions must equal the number of different rows.

Exit codes: 0 measured, or all guarantees kept; 1 not; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import psutil
from rich.console import Console

import report as reporting
from bulk_peers import body_of
from harness import BenchError, candidate, running

SERVICE = "echo"
PEERS = str(Path(__file__).resolve().with_name("bulk_peers.py"))
WORKERS = 2
GOAL = 0.8


def parse_options(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure and check Polydomo's bulk calls from Spark.")
    add = parser.add_argument
    add("--check", action="store_true", help="do not measure: check that every row is run once")
    add("--rows", type=int, default=100_000, help="rows in a round (default 100,000)")
    add("--rounds", type=int, default=5, help="rounds (default 5)")
    add("--partitions", type=int, default=2, help="partitions, and plain clients (default 2)")
    add("--window", type=int, default=256, help="rows in flight per connection (default 256)")
    add("--memory", action="store_true", help="jobs that are not durable, over DCP")
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args(argv)


@contextmanager
def worker(url: str, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, PEERS, "worker", url, SERVICE, *more])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def spark_session() -> Any:
    """Start Spark with two tasks at a time, each of which may fail three times."""
    from polydomo.pipeline.session import session

    quick = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"}
    return session("local[2,4]", quick, app="polydomo-bench-bulk")


def dialect(endpoint: str, name: str) -> str:
    return endpoint.replace("tcp://", f"{name}://", 1)


# -- how fast


def measure(options: argparse.Namespace, progress: Console) -> list[dict[str, float]]:
    rounds = []
    with ExitStack() as stack:
        broker = stack.enter_context(running(candidate(sys.executable, extra=("--data", "data"))))
        serving = [broker.popen.pid]
        for _ in range(WORKERS):
            started = stack.enter_context(worker(dialect(broker.endpoint, "dcp"), "--concurrency", "64"))
            serving.append(started.pid)
        url = dialect(broker.endpoint, "dcp" if options.memory else "nfp")
        spark = spark_session()
        stack.callback(spark.stop)
        with progress.status("warming up"):
            for _ in range(2):
                with_spark(spark, url, options, min(options.rows, 5000))
        for number in range(1, options.rounds + 1):
            ways = {"plain": lambda: plainly(url, options), "call": lambda: with_spark(spark, url, options)}
            found: dict[str, float] = {}
            for name in ways if number % 2 else reversed(ways):  # alternate which one goes first
                with progress.status(f"round {number}/{options.rounds} {name}"):
                    before, spark_before = cpu_seconds(serving), spark_cpu(serving)
                    seconds, own = ways[name]()
                    used = cpu_seconds(serving) - before + own
                    if name == "call":
                        used += spark_cpu(serving) - spark_before
                found[name] = options.rows / seconds
                found[f"{name} cpu"] = used * 1e6 / options.rows
            rounds.append(found)
            progress.print(
                f"round {number}/{options.rounds}  plain {found['plain']:>8,.0f} rows/s {found['plain cpu']:>4.0f} µs  "
                f"call {found['call']:>8,.0f} rows/s {found['call cpu']:>4.0f} µs  "
                f"× {found['call'] / found['plain']:.2f}",
                highlight=False,
            )
    return rounds


def cpu_seconds(pids: list[int]) -> float:
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)


def spark_cpu(others: list[int]) -> float:
    """Return the CPU time of the driver's Java and all Python processes it has started."""
    found = [one.pid for one in psutil.Process().children(recursive=True) if one.pid not in others]
    return cpu_seconds(found)


def plainly(url: str, options: argparse.Namespace) -> tuple[float, float]:
    """Return the seconds from start to last reply, and the CPU time of the clients."""
    share = options.rows // options.partitions
    clients = []
    for number in range(options.partitions):
        command = [sys.executable, PEERS, "client", url, SERVICE, "--rows", str(share), "--run", uuid4().hex]
        command += ["--first", str(number * share), "--window", str(options.window)]
        command += ["--memory"] if options.memory else []
        clients.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for client in clients:
        if client.stdout.readline() != "ready\n":
            raise BenchError("a plain client did not start")
    started = time.perf_counter()
    for client in clients:
        client.stdin.write("\n")
        client.stdin.flush()
    said = [json.loads(client.stdout.readline()) for client in clients]
    seconds = time.perf_counter() - started
    for client in clients:
        client.communicate()
    if sum(one["right"] for one in said) != share * options.partitions:
        raise BenchError(f"a plain client received wrong replies: {said}")
    return seconds * options.rows / (share * options.partitions), sum(one["cpu"] for one in said)


def with_spark(
    spark: Any, url: str, options: argparse.Namespace, rows: int | None = None
) -> tuple[float, float]:
    """Return the seconds of the action. Spark's CPU time is measured separately."""
    from pyspark.sql import functions as fn

    from polydomo.pipeline.bulk import call

    wanted = rows or options.rows
    source = spark.range(0, wanted, 1, options.partitions)
    source = source.select("id", fn.concat(fn.lit("row "), fn.col("id")).alias("text"))
    answered = call(source, SERVICE, url=url, window=options.window, durable=not options.memory)
    right = fn.col("result").cast("string") == fn.to_json(fn.struct("id", "text"))
    started = time.perf_counter()
    found = answered.groupBy("outcome", right.alias("right")).count().collect()
    seconds = time.perf_counter() - started
    if [tuple(row) for row in found] != [("done", True, wanted)]:
        raise BenchError(f"Spark's rows are wrong: {found}")
    return seconds, 0.0


# -- how safe


class Crew:
    """Workers that die on the way and are replaced."""

    def __init__(self, url: str, folder: Path, workers: int, die_after: int) -> None:
        self.url, self.folder, self.die_after = url, folder, die_after
        self.deaths = 0
        self.started = 0
        self.living = [self.start() for _ in range(workers)]

    def start(self) -> subprocess.Popen[bytes]:
        self.started += 1
        # Workers must not all die at the same moment.
        die_after = self.die_after + 7 * self.started
        command = [sys.executable, PEERS, "worker", self.url, SERVICE, "--die-after", str(die_after)]
        return subprocess.Popen([*command, "--count", str(self.folder / f"{self.started}.txt")])

    def look(self) -> None:
        for place, one in enumerate(self.living):
            if one.poll() is not None:
                self.deaths += 1
                self.living[place] = self.start()

    def executions(self) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        for file in self.folder.glob("*.txt"):
            found.update(file.read_bytes().splitlines())
        return found

    def stop(self) -> None:
        for one in self.living:
            one.kill()
            one.wait()


def dies_once(folder: str) -> Any:
    """Return a function for `mapInArrow` that kills the first attempt of a partition after some results."""

    def through(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        for batch in batches:
            yield batch
            if context.attemptNumber() == 0:
                Path(folder, f"retried-{context.partitionId()}").touch()
                os.kill(os.getpid(), signal.SIGKILL)

    return through


def check(options: argparse.Namespace, progress: Console) -> dict[str, Any]:
    from pyspark.sql import functions as fn

    from polydomo.pipeline.bulk import call

    rows, twice = options.rows, options.rows // 10
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="polydomo-bulk-")))
        flags = ("--data", "data", "--set", f"services.{SERVICE}.retries=20")
        broker = stack.enter_context(running(candidate(sys.executable, extra=flags)))
        spark = spark_session()
        stack.callback(spark.stop)
        crew = Crew(dialect(broker.endpoint, "mdp"), folder, 4, max(rows // 40, 300))
        stack.callback(crew.stop)
        source = spark.range(0, rows, 1, options.partitions).select(
            fn.pmod("id", fn.lit(rows - twice)).alias("id")
        )
        source = source.select("id", fn.concat(fn.lit("row "), fn.col("id")).alias("text"))
        answered = call(source, SERVICE, url=dialect(broker.endpoint, "nfp"), window=options.window)
        wrong = fn.coalesce(
            fn.col("result").cast("string") != fn.to_json(fn.struct("id", "text")), fn.lit(True)
        )
        checked = answered.mapInArrow(dies_once(str(folder)), answered.schema).agg(
            fn.count("*").alias("rows"),
            fn.count_if(fn.col("outcome") == "done").alias("done"),
            fn.count_if(wrong).alias("wrong"),
            fn.count_if(fn.col("attempts") > 1).alias("again"),
        )
        started = time.perf_counter()
        (found,) = _replacing_dead(crew, checked.collect)
        seconds = time.perf_counter() - started
        executions = crew.executions()
        different = {body_of(row) for row in range(rows - twice)}
        return {
            "rows": found["rows"],
            "done": found["done"],
            "wrong results": found["wrong"],
            "rows of more than one attempt": found["again"],
            "different rows": len(different),
            "executions": sum(executions.values()),
            "executed twice": sum(1 for number in executions.values() if number > 1),
            "not executed": len(different - executions.keys()),
            "workers killed": crew.deaths,
            "tasks repeated": len(list(folder.glob("retried-*"))),
            "seconds": round(seconds, 1),
            "kept": (
                found["rows"] == found["done"] == rows
                and not found["wrong"]
                and sum(executions.values()) == len(different) == len(executions)
                and crew.deaths > 0
                and any(folder.glob("retried-*"))
            ),
        }


def _replacing_dead(crew: Crew, work: Any) -> Any:
    """Replace dead workers until the work is done."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(work)
        while not result.done():
            crew.look()
            time.sleep(0.05)
        return result.result()


def main(argv: list[str] | None = None) -> int:
    options = parse_options(argv)
    progress = Console(stderr=True)
    environment = reporting.environment()
    try:
        if options.check:
            found = check(options, progress)
            for name, value in found.items():
                print(f"{name:<30} {value}")
            code = 0 if found["kept"] else 1
        else:
            rounds = measure(options, progress)
            ratios = [one["call"] / one["plain"] for one in rounds]
            found = {"rounds": rounds, "ratio": median(ratios), "goal": GOAL}
            print(
                f"call ÷ plain: × {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), goal × {GOAL:g} "
                f"{'reached' if median(ratios) >= GOAL else 'NOT reached'}; medians: call "
                f"{median(one['call'] for one in rounds):,.0f} rows/s, plain "
                f"{median(one['plain'] for one in rounds):,.0f} rows/s; CPU of all participants: call "
                f"{median(one['call cpu'] for one in rounds):,.0f} µs/row, plain "
                f"{median(one['plain cpu'] for one in rounds):,.0f} µs/row"
            )
            code = 0
    except BenchError as error:
        progress.print(f"bench: {error}", style="red", markup=False, highlight=False)
        return 1
    if options.json:
        options.json.write_text(json.dumps({"environment": environment, **found}, indent=2) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
