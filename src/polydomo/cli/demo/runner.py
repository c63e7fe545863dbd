"""The runner of the demo's scenes: the broker, the workers' processes, and the output."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import typer
from rich.text import Text

from polydomo.cli import common, processes
from polydomo.cli.processes import ChildProcess, ProcessGroup
from polydomo.errors import PolydomoError
from polydomo.sdk import Client

PAUSE = 0.7
BROKER_FLAGS = (
    *("--drain", "1s", "--nng", "tcp://127.0.0.1:*", "--set", "services.cube.memo=true"),
    *("--ledger", "auto", "--set", "ledger.roll=500ms"),
)
# Seconds.
WORKER_TIMEOUT = 15.0
CALL_TIMEOUT = 60.0  # for a busy machine


class Scene(NamedTuple):
    """A title and a function."""

    title: str
    run: Callable[[SceneRunner], Awaitable[None]]


class SceneFailed(Exception):
    """A step of a scene failed."""


class SceneRunner:
    """The argument of a scene: a broker, methods to start workers and clients, and output."""

    def __init__(self, group: ProcessGroup, endpoint: str, broker: ChildProcess, fast: bool) -> None:
        self.group = group
        self.endpoint = endpoint
        self.broker = broker
        self.fast = fast
        self.workers: list[ChildProcess] = []
        self.done_before: dict[str, int] = {}  # jobs done by brokers that were killed, by service
        self.durable: list[str] = []  # services with durable jobs, which are counted at the end

    def url(self, dialect: str = "mdp") -> str:
        """Return the broker's URL for a dialect."""
        endpoint = self.group.endpoints()["nng"][0] if dialect == "memo" else self.endpoint
        return processes.url_of(endpoint, dialect)

    @property
    def http(self) -> str:
        """The broker's HTTP endpoint: HOST:PORT."""
        return self.group.endpoints()["http"][0]

    def client(self, dialect: str = "mdp") -> Client:
        """Return a client that speaks a dialect."""
        return Client(self.url(dialect), timeout=CALL_TIMEOUT)

    def start_worker(self, name: str, dialect: str = "mdp", endpoint: str | None = None) -> ChildProcess:
        """Start a worker of `demo/workers.py`, at this broker or at `endpoint`. Does not wait for it."""
        url = self.url(dialect) if endpoint is None else processes.url_of(endpoint, dialect)
        child = self.group.start("worker", f"polydomo.cli.demo.workers:{name}", "--url", url)
        self.workers.append(child)
        return child

    def restart_broker(self) -> None:
        """Kill the broker with SIGKILL and start another one with the same port and folder."""
        flags = (*BROKER_FLAGS, "--http", self.http)
        self.broker.kill()
        self.broker, self.endpoint = self.group.start_broker(self.endpoint, *flags, again=True)

    async def wait_for_workers(self, client: Client, service: str, workers: int = 1) -> None:
        """Wait until so many workers offer a service."""
        deadline = time.monotonic() + WORKER_TIMEOUT
        while True:
            rows = await client.services()
            if any(row["name"] == service and row["workers"] >= workers for row in rows):
                return
            for child in self.workers:
                if child.process.poll() not in (None, -signal.SIGKILL):
                    raise SceneFailed(f"a worker ended: {child.log_tail()}")
            if time.monotonic() > deadline:
                raise SceneFailed(f"no worker offered {service} within {WORKER_TIMEOUT:g} s")
            await asyncio.sleep(0.01)

    async def wait_for_ledger(self, jobs: dict[str, int]) -> None:
        """Wait until the ledger has so many jobs of each service."""
        from pyarrow import parquet  # here, because importing it is slow

        folder = self.group.data / "ledger" / "jobs"
        deadline = time.monotonic() + WORKER_TIMEOUT
        while True:
            written: Counter[str] = Counter()
            for path in folder.glob("[!.]*.parquet"):
                written.update(parquet.read_table(path, columns=["service"])["service"].to_pylist())
            missing = [name for name, count in jobs.items() if written[name] < count]
            if not missing:
                return
            if time.monotonic() > deadline:
                raise SceneFailed(f"the ledger does not have all jobs of {', '.join(missing)}")
            await asyncio.sleep(0.1)

    def note(self, text: str) -> None:
        """Print an explanation of the next step."""
        common.out.print(Text(f"     {text}", "dim"), soft_wrap=True)

    def report(self, *parts: str | tuple[str, str]) -> None:
        """Print the result of a successful step."""
        common.out.print(Text.assemble(("   ✓ ", "bold green"), *parts), soft_wrap=True)

    def begin_line(self, text: str) -> None:
        """Print the start of a result; `extend_line` adds to it."""
        common.out.print(Text.assemble(("   ✓ ", "bold green"), text), end="")

    def extend_line(self, text: str, style: str) -> None:
        """Print the next part of a result."""
        common.out.print(Text(text, style), end="")

    def check(self, what: str, found: object, expected: object) -> None:
        """Raise SceneFailed if a result is not as expected."""
        if found != expected:
            raise SceneFailed(f"{what}: expected {expected!r}, got {found!r}")


def run_scenes(scenes: list[Scene], *, fast: bool, port: int | None) -> None:
    """Run all scenes in order; then leave the broker running until Ctrl-C, unless `fast`."""
    watch = common.Stopwatch()
    common.out.print(Text.assemble(("polydomo demo", "bold"), ("  one broker, several protocols\n", "dim")))
    zmq = processes.port_to_listen_on() if port is None else str(port)
    with ProcessGroup() as group:
        http = f"127.0.0.1:{processes.port_to_listen_on(8080) if port is None else 0}"
        broker, endpoint = group.start_broker(f"tcp://127.0.0.1:{zmq}", *BROKER_FLAGS, "--http", http)
        runner = SceneRunner(group, endpoint, broker, fast)
        runner.report("a broker listens on ", (endpoint, "bold"), (f"  process {broker.pid}, {watch}", "dim"))
        try:
            asyncio.run(_run(runner, scenes))
        except (SceneFailed, PolydomoError) as error:
            common.out.print(Text.assemble(("   ✗ ", "bold red"), str(error)), soft_wrap=True)
            common.print_error("the demo failed", broker.log_tail())
            raise typer.Exit(common.FAILED) from None
        common.out.print(Text(f"\nAll of it took {watch}.", "dim"))
        if not fast:
            _wait_for_interrupt(runner)


async def _run(runner: SceneRunner, scenes: list[Scene]) -> None:
    for number, scene in enumerate(scenes, 1):
        common.out.print(Text.assemble((f"\n {number} ", "bold cyan"), (f" {scene.title}", "bold")))
        await scene.run(runner)
        if not runner.fast:
            await asyncio.sleep(PAUSE)


def _wait_for_interrupt(runner: SceneRunner) -> None:
    """Print commands to copy, and leave the broker and its workers running until Ctrl-C."""
    commands = ("call upper hello", "call count 5 --stream", "services ls", "jobs ls", "workers ls --watch")
    text = common.commands_to_try(runner.url(), commands)
    text.append(f"  curl http://{runner.http}/v1/services/cube/jobs -H 'Prefer: wait' -d 9\n", "cyan")
    text.append(f"  {common.command_name()} bench\n", "cyan")
    text.append("\nThe broker and its workers run until Ctrl-C.", "dim")
    common.out.print(text, soft_wrap=True)
    try:
        runner.broker.process.wait()
    except KeyboardInterrupt:
        common.out.print(Text("stopping", "dim"))
