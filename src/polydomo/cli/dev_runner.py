"""A broker and its toy services on one event loop."""

from __future__ import annotations

import asyncio
import signal

from rich.text import Text

from polydomo import __version__
from polydomo.cli import broker_runner, common, example_services, processes
from polydomo.server import serve
from polydomo.server.config import Flag
from polydomo.server.server import BrokerServer
from polydomo.server.settings import Settings


def run(flags: list[Flag], file: str | None) -> None:
    """Until Ctrl-C."""
    serve.run(_serve(broker_runner.prepare(flags, file)))


async def _serve(settings: Settings) -> None:
    """The broker, and the worker beside it on the same loop. The worker leaves first."""
    loop = asyncio.get_running_loop()
    helpers: list[asyncio.Task[None]] = []

    def started(server: BrokerServer) -> None:
        url = processes.url_of(server.bound[0])
        worker = example_services.make_worker(url)
        working = loop.create_task(worker.run())

        async def leave() -> None:
            worker.stop()
            await working
            server.stop()

        def end() -> None:
            if len(helpers) > 1:
                server.stop(drain=False)
            helpers.append(loop.create_task(leave()))

        helpers.append(working)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, end)
        common.out.print(introduction(url), soft_wrap=True)

    await serve.serve(settings, started=started)
    await asyncio.gather(*helpers)
    common.out.print(Text("stopped", "dim"))


def introduction(url: str) -> Text:
    """What runs, and lines to copy."""
    command = common.command_name()
    option = "" if url == common.default_url() else f" --url {url}"
    text = Text.assemble(("polydomo ", "bold"), __version__, "  a broker at ", (url, "bold green"), "\n\n")
    for name, (function, _) in example_services.EXAMPLES.items():
        text.append(f"  {name:<7}", "bold").append(f"{function.__doc__}\n")
    text.append("\nTry, in another terminal:\n\n")
    for words in (
        "call echo hello",
        "call upper hello",
        "call count 5 --stream",
        "services ls",
        "jobs ls --watch",
    ):
        text.append(f"  {command} {words}{option}\n", "cyan")
    return text.append("\nCtrl-C ends it.", "dim")
