"""The run of a broker and the example services on one event loop."""

from __future__ import annotations

import asyncio
import signal

from rich.text import Text

from polydomo import __version__
from polydomo.cli import broker_runner, common, example_services, processes
from polydomo.errors import ConfigError
from polydomo.server import serve
from polydomo.server.config import Flag
from polydomo.server.server import BrokerServer
from polydomo.server.settings import Settings


def run(flags: list[Flag], file: str | None) -> None:
    """Run until Ctrl-C or SIGTERM. Raises ConfigError if the broker would require keys."""
    settings = broker_runner.prepare(flags, file)
    if settings.security.curve == "on":
        raise ConfigError(
            "the example services have no keys, and security.curve is on",
            hint="start 'polydomo broker' and 'polydomo worker'",
        )
    serve.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    """Run the broker and a worker on one loop. The worker stops first."""
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []

    def started(server: BrokerServer) -> None:
        url = processes.url_of(server.zmq.bound[0])
        worker = example_services.make_worker(url)
        serving = loop.create_task(worker.run())

        async def stop_both() -> None:
            worker.stop()
            await serving
            server.stop()

        def end() -> None:
            if len(tasks) > 1:
                server.stop(drain=False)
            tasks.append(loop.create_task(stop_both()))

        tasks.append(serving)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, end)
        common.out.print(introduction(url), soft_wrap=True)

    await serve.serve(settings, started=started)
    await asyncio.gather(*tasks)
    common.out.print(Text("stopped", "dim"))


def introduction(url: str) -> Text:
    """Return a text about the services, with commands to copy."""
    text = Text.assemble(("polydomo ", "bold"), __version__, "  a broker at ", (url, "bold green"), "\n\n")
    for name, (function, _) in example_services.EXAMPLES.items():
        text.append(f"  {name:<7}", "bold").append(f"{function.__doc__}\n")
    commands = (
        "call echo hello",
        "call upper hello",
        "call count 5 --stream",
        "services ls",
        "jobs ls --watch",
    )
    return text.append(common.commands_to_try(url, commands)).append("\nCtrl-C to stop.", "dim")
