"""`polydomo spark serve`: SQL over the tables as a service, for clients of all protocols."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Annotated

import structlog
import typer

from polydomo.cli import common, worker_loader
from polydomo.cli.option_groups import takes_groups
from polydomo.cli.spark import options
from polydomo.server import log
from polydomo.server.units import parse_duration, parse_size

logger = structlog.get_logger("polydomo")


@takes_groups
def serve(
    url: common.Url = common.DEFAULT_URL,
    service: Annotated[
        str, typer.Option("--service", "-s", metavar="NAME", help="The service's name.")
    ] = "sql",
    queries: Annotated[int, typer.Option(min=1, help="Number of concurrent queries.")] = 4,
    rows: Annotated[int, typer.Option(min=1, help="Maximum rows of a result.")] = 1_000_000,
    size: Annotated[str, typer.Option(metavar="SIZE", help="Maximum size of a result.")] = "32MiB",
    limit: Annotated[str, typer.Option("--time", metavar="TIME", help="Time limit of a query.")] = "5m",
    *,
    chosen: options.TablesRun,
) -> None:
    """Serve read-only SQL over the tables until SIGTERM or Ctrl-C, with limits, progress and cancellation."""
    try:
        most_bytes, seconds = parse_size(size), parse_duration(limit)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--size, --time") from None
    places, settings = chosen.places(), chosen.settings
    from polydomo.pipeline import serve as serving
    from polydomo.pipeline.engine_pool import Engines, Process
    from polydomo.pipeline.sql import USUAL

    bounds = USUAL._replace(queries=queries, most_rows=rows, bytes=most_bytes, seconds=seconds)
    broker_url = serving.nfp_url(url)
    log.setup(settings.log)
    launch = Process.launcher(
        settings.spark.master, settings.spark.conf, places, bounds, verbose=chosen.verbose
    )
    logger.info("starting Spark", master=settings.spark.master)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        starting = asyncio.current_task()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lambda: starting and starting.cancel())
        async with Engines(launch, bounds) as engines:
            await worker_loader.serve(
                serving.make_worker(broker_url, engines, service=service, bounds=bounds)
            )

    with contextlib.suppress(asyncio.CancelledError):  # stopped while Spark was starting
        asyncio.run(run())
    logger.info("stopped")
