"""SQL as a service: a worker whose function is a query, for any client of any protocol.

The worker speaks NFP, whatever its clients speak: of the dialects of workers it is the one with a word for everything
that is needed. Progress goes out as partial answers, which the broker passes on as each client's protocol has them
(MDP's PARTIAL, NFP's STREAM, HTTP's `partial` events; MemoDB has none, there only the result arrives). A job that is
cancelled (DELETE over HTTP or NFP, a deadline) is cancelled here, and its Spark jobs with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import msgspec

from polydomo.errors import ConfigError, PolydomoError
from polydomo.pipeline import sql
from polydomo.pipeline.sql import Bounds, Engine, Progress, Request, Tables, TooLong
from polydomo.sdk.url import parse
from polydomo.sdk.worker import Worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from polydomo.sdk.context import Context

SERVICE: Final = "sql"

# Seconds that queries get to finish when the service is told to stop. Others are given to another worker, if there is.
GRACE: Final = 10.0

# Seconds between two looks at how far a query is.
LOOK: Final = 0.25


def conf(bounds: Bounds) -> list[str]:
    """What Spark must be started with for this."""
    return [
        "spark.scheduler.mode=FAIR",
        "spark.sql.variable.substitute=false",
        # A result that is far too big ends its query before it fills the driver. Broadcasts count, too.
        f"spark.driver.maxResultSize={max(4 * bounds.bytes, 256 * sql.MIB)}",
    ]


def nfp_url(url: str) -> str:
    """The same broker in NFP: it is on the same port as all that is ZeroMQ."""
    dialect, separator, rest = url.partition("://")
    name, plus, transport = dialect.partition("+")
    if not separator or name not in ("mdp", "dcp", "nfp"):
        raise ConfigError(
            f"{url}: the SQL service speaks NFP, to one of the broker's ZeroMQ endpoints",
            hint="write nfp://HOST:PORT, whatever its clients speak",
        )
    found = f"nfp{plus}{transport}://{rest}"
    parse(found)
    return found


def make_worker(
    url: str,
    spark: SparkSession,
    tables: Tables,
    *,
    service: str = SERVICE,
    bounds: Bounds = sql.USUAL,
    name: str = "",
) -> tuple[Worker, Service]:
    """A worker that is ready to `run`, and its service, to be closed behind it."""
    # Tracebacks tell more of this machine than of the query.
    worker = Worker(
        nfp_url(url), concurrency=bounds.queries, codec="raw", tracebacks=False, name=name, grace=GRACE
    )
    made = Service(Engine(spark, tables, bounds))
    worker.add(service, made.perform)
    return worker, made


class Service:
    """One query per call, `bounds.queries` of them at once."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        bounds = engine.bounds
        # A thread for each, and others that look after them: those must not wait for the first.
        self._queries = ThreadPoolExecutor(bounds.queries, thread_name_prefix="query")
        self._looks = ThreadPoolExecutor(2, thread_name_prefix="look")
        self.lost = False  # Java is gone
        self.on_lost: Callable[[], None] | None = None

    async def perform(self, body: Any, ctx: Context) -> bytes:
        """From a request to its answer; see `pipeline.sql` for both."""
        request = sql.read_request(body if isinstance(body, bytes) else b"".join(body))
        group = f"sql-{uuid4().hex}"
        bounds = self.engine.bounds
        tell = ctx.progress if request.progress else None
        try:
            async with asyncio.timeout(bounds.seconds):
                result = await self._run(request, group, tell)
        except TimeoutError:
            raise TooLong(f"the query took more than {bounds.seconds:g} s") from None
        pieces = await asyncio.get_running_loop().run_in_executor(
            self._looks, lambda: list(sql.pieces(result, request, bounds))
        )
        for piece in pieces[:-1]:
            ctx.progress(piece)
        return pieces[-1]

    def close(self) -> None:
        """Behind the worker."""
        self._queries.shutdown(wait=False, cancel_futures=True)
        self._looks.shutdown(wait=False, cancel_futures=True)

    async def _run(self, request: Request, group: str, tell: Any) -> sql.Result:
        loop = asyncio.get_running_loop()
        running = self._queries.submit(self.engine.run, request, group)
        answer = asyncio.wrap_future(running)
        # Nobody may be waiting any more.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        told: Progress | None = None
        try:
            while True:
                done, _ = await asyncio.wait({answer}, timeout=0 if told is None else LOOK)
                if done:
                    return answer.result()
                if tell is not None:
                    seen = await loop.run_in_executor(self._looks, self.engine.progress, group)
                    if told is None or msgspec.structs.replace(seen, seconds=told.seconds) != told:
                        tell(msgspec.json.encode({"progress": seen}))
                    told = seen
                else:
                    told = told or Progress()
        except PolydomoError as error:
            if isinstance(error, sql.SparkLost):
                self.lost = True
                if self.on_lost is not None:
                    self.on_lost()
            # What is wrong is in the words; the way to it would only fill the log.
            raise error.with_traceback(None) from None
        finally:
            if not running.done():
                running.cancel()
                # Not awaited: we may be here because we are cancelled ourselves.
                self._looks.submit(self.engine.cancel, group)
