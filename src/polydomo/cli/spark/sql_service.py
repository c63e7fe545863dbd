"""`polydomo spark serve`: SQL over the tables as a service, for any client of any protocol."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

from polydomo.cli import common
from polydomo.cli.config import ConfigFile
from polydomo.cli.spark import options
from polydomo.server import log
from polydomo.server.units import parse_duration, parse_size

if TYPE_CHECKING:
    from polydomo.sdk import Worker

logger = structlog.get_logger("polydomo")


def serve(
    url: common.Url = common.DEFAULT_URL,
    service: Annotated[
        str, typer.Option("--service", "-s", metavar="NAME", help="Under which name.")
    ] = "sql",
    queries: Annotated[int, typer.Option(min=1, help="Queries at the same time.")] = 4,
    rows: Annotated[int, typer.Option(min=1, help="Rows of a result, at most.")] = 1_000_000,
    size: Annotated[str, typer.Option(metavar="SIZE", help="Bytes of a result, at most.")] = "32MiB",
    limit: Annotated[str, typer.Option("--time", metavar="TIME", help="For one query, at most.")] = "5m",
    master: options.Master = None,
    data: options.Data = None,
    tables: options.Tables = None,
    file: ConfigFile = None,
    sets: options.Sets = None,
    verbose: options.Verbose = False,
) -> None:
    """Answer SQL over the tables until SIGTERM or Ctrl-C: read-only, bounded, with progress and cancel."""
    settings = options.gather(file, sets, master=master, data=data, tables=tables)
    try:
        most_bytes, seconds = parse_size(size), parse_duration(limit)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--size, --time") from None
    places = options.places(settings)
    from polydomo.pipeline import serve as serving
    from polydomo.pipeline.engine_pool import Engines, Process
    from polydomo.pipeline.sql import USUAL

    bounds = USUAL._replace(queries=queries, most_rows=rows, bytes=most_bytes, seconds=seconds)
    place = serving.nfp_url(url)
    log.setup(settings.log)
    launch = Process.launcher(settings.spark.master, settings.spark.conf, places, bounds, verbose=verbose)
    logger.info("starting Spark", master=settings.spark.master)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        starting = asyncio.current_task()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lambda: starting and starting.cancel())
        async with Engines(launch, bounds) as engines:
            await _serve(serving.make_worker(place, engines, service=service, bounds=bounds))

    with contextlib.suppress(asyncio.CancelledError):  # told to end before there was anything to serve
        asyncio.run(run())
    logger.info("stopped")


async def _serve(worker: Worker) -> None:
    """Until SIGTERM or SIGINT; the second one does not wait for running queries."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    brokers = [str(place) for place in worker.url.places]
    logger.info("looking for a broker", brokers=brokers, dialect=worker.url.dialect)

    def tell(at: str) -> None:
        logger.info("offering", services=worker.services, concurrency=worker.concurrency, broker=at)

    worker.on_offering = tell
    await worker.run()
