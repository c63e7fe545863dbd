"""The demo's stage: the broker, the workers' processes, and the narrator."""

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
WORKER_PATIENCE = 15.0
CALL_PATIENCE = 60.0  # on a machine that has much else to do


class Scene(NamedTuple):
    """A title and what happens."""

    title: str
    play: Callable[[SceneRunner], Awaitable[None]]


class SceneFailed(Exception):
    """A step did not do what it should."""


class SceneRunner:
    """What an act is given: a broker, ways to start workers and clients, and a voice."""

    def __init__(self, household: ProcessGroup, endpoint: str, broker: ChildProcess, fast: bool) -> None:
        self.household = household
        self.endpoint = endpoint
        self.broker = broker
        self.fast = fast
        self.workers: dict[str, list[ChildProcess]] = {}
        self.counted: dict[str, int] = {}  # jobs done, by service, as brokers said that were killed since
        self.durable: list[str] = []  # services whose jobs outlive the broker: it is asked about them later

    def url(self, dialect: str = "mdp") -> str:
        """The broker for peers of a dialect."""
        endpoint = self.household.places()["nng"][0] if dialect == "memo" else self.endpoint
        return processes.url_of(endpoint, dialect)

    @property
    def http(self) -> str:
        """The broker for web clients: HOST:PORT."""
        return self.household.places()["http"][0]

    def client(self, dialect: str = "mdp") -> Client:
        """One that speaks it."""
        return Client(self.url(dialect), timeout=CALL_PATIENCE)

    def start_worker(self, name: str, dialect: str = "mdp", endpoint: str | None = None) -> ChildProcess:
        """A worker of `demo/workers.py` in a process of its own, at our broker or another; `offered` waits for it."""
        url = self.url(dialect) if endpoint is None else processes.url_of(endpoint, dialect)
        child = self.household.start("worker", f"polydomo.cli.demo.workers:{name}", "--url", url)
        self.workers.setdefault(name, []).append(child)
        return child

    def restart_broker(self) -> None:
        """kill -9, and another one on the same port and folder."""
        flags = (*BROKER_FLAGS, "--http", self.http)
        self.broker.kill()
        self.broker, self.endpoint = self.household.start_broker(self.endpoint, *flags, again=True)

    async def offered(self, client: Client, service: str, workers: int = 1) -> None:
        """Until so many workers offer a service."""
        deadline = time.monotonic() + WORKER_PATIENCE
        while True:
            rows = await client.services()
            if any(row["name"] == service and row["workers"] >= workers for row in rows):
                return
            for child in [child for children in self.workers.values() for child in children]:
                if child.process.poll() not in (None, -signal.SIGKILL):
                    raise SceneFailed(f"a worker ended: {child.last_words()}")
            if time.monotonic() > deadline:
                raise SceneFailed(f"nobody offered {service} within {WORKER_PATIENCE:g} s")
            await asyncio.sleep(0.01)

    async def written(self, jobs: dict[str, int]) -> None:
        """Until the ledger has so many jobs of each service. What it has of durable ones may come later."""
        from pyarrow import parquet  # only here: nobody else needs it

        folder = self.household.data / "ledger" / "jobs"
        deadline = time.monotonic() + WORKER_PATIENCE
        while True:
            there: Counter[str] = Counter()
            for path in folder.glob("[!.]*.parquet"):
                there.update(parquet.read_table(path, columns=["service"])["service"].to_pylist())
            missing = [name for name, count in jobs.items() if there[name] < count]
            if not missing:
                return
            if time.monotonic() > deadline:
                raise SceneFailed(f"the ledger does not have all jobs of {', '.join(missing)}")
            await asyncio.sleep(0.1)

    def tell(self, text: str) -> None:
        """What is about to happen, or why it matters."""
        common.out.print(Text(f"     {text}", "dim"), soft_wrap=True)

    def happened(self, *parts: str | tuple[str, str]) -> None:
        """What happened, and well."""
        common.out.print(Text.assemble(("   ✓ ", "bold green"), *parts), soft_wrap=True)

    def begin(self, text: str) -> None:
        """The same for what comes piece by piece; `go_on` adds to the line."""
        common.out.print(Text.assemble(("   ✓ ", "bold green"), text), end="")

    def go_on(self, text: str, style: str) -> None:
        """The next piece."""
        common.out.print(Text(text, style), end="")

    def check(self, what: str, found: object, expected: object) -> None:
        """A step that must come out so."""
        if found != expected:
            raise SceneFailed(f"{what}: expected {expected!r}, got {found!r}")


def play(acts: list[Scene], *, fast: bool, port: int | None) -> None:
    """All acts in order; then the broker stays until Ctrl-C, unless `fast`."""
    start = time.monotonic()
    common.out.print(Text.assemble(("polydomo demo", "bold"), ("  one broker, several protocols\n", "dim")))
    place = processes.port_to_listen_on() if port is None else str(port)
    with ProcessGroup() as household:
        web = f"127.0.0.1:{processes.port_to_listen_on(8080) if port is None else 0}"
        broker, endpoint = household.start_broker(f"tcp://127.0.0.1:{place}", *BROKER_FLAGS, "--http", web)
        stage = SceneRunner(household, endpoint, broker, fast)
        took = common.duration(time.monotonic() - start)
        stage.happened("a broker listens on ", (endpoint, "bold"), (f"  process {broker.pid}, {took}", "dim"))
        try:
            asyncio.run(_play(stage, acts))
        except (SceneFailed, PolydomoError) as error:
            common.out.print(Text.assemble(("   ✗ ", "bold red"), str(error)), soft_wrap=True)
            common.print_error("the demo failed", broker.last_words())
            raise typer.Exit(common.FAILED) from None
        took = common.duration(time.monotonic() - start)
        common.out.print(Text(f"\nAll of it took {took}.", "dim"))
        if not fast:
            _stay(stage)


async def _play(stage: SceneRunner, acts: list[Scene]) -> None:
    for number, act in enumerate(acts, 1):
        common.out.print(Text.assemble((f"\n {number} ", "bold cyan"), (f" {act.title}", "bold")))
        await act.play(stage)
        if not stage.fast:
            await asyncio.sleep(PAUSE)


def _stay(stage: SceneRunner) -> None:
    """Lines to copy, and the broker and its workers until Ctrl-C."""
    option = "" if stage.url() == common.default_url() else f" --url {stage.url()}"
    command = common.command_name()
    text = Text("\nNow you, in another terminal:\n\n")
    for words in (
        "call upper hello",
        "call count 5 --stream",
        "services ls",
        "jobs ls",
        "workers ls --watch",
    ):
        text.append(f"  {command} {words}{option}\n", "cyan")
    text.append(f"  curl http://{stage.http}/v1/services/cube/jobs -H 'Prefer: wait' -d 9\n", "cyan")
    text.append(f"  {command} bench\n", "cyan")
    text.append("\nThe broker and its workers stay until Ctrl-C.", "dim")
    common.out.print(text, soft_wrap=True)
    try:
        stage.broker.process.wait()
    except KeyboardInterrupt:
        common.out.print(Text("stopping", "dim"))
