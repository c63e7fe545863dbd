"""SQL as a service: a worker that runs queries for clients of any protocol.

The worker speaks NFP, whatever its clients speak, because NFP supports everything needed here. Progress is sent as
partial replies, which the broker forwards in each client's protocol (MDP's PARTIAL, NFP's STREAM, HTTP's `partial`
events; MemoDB has none and gets only the result). A cancelled job (DELETE over HTTP or NFP, a deadline) cancels its
query. Queries run in separate processes (`engine_pool`): this one has no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from polydomo.errors import ConfigError, PolydomoError
from polydomo.pipeline import sql
from polydomo.pipeline.engine_pool import Engines
from polydomo.pipeline.sql import Bounds, QueryProgress
from polydomo.sdk.url import parse
from polydomo.sdk.worker import Worker

if TYPE_CHECKING:
    from polydomo.sdk.context import Context

SERVICE: Final = "sql"

# Seconds for queries to finish when the service stops. Others are requeued to another worker.
GRACE: Final = 10.0


def nfp_url(url: str) -> str:
    """Return the broker's URL with the scheme nfp: all ZeroMQ dialects share a port."""
    dialect, separator, rest = url.partition("://")
    name, plus, transport = dialect.partition("+")
    if not separator or name not in ("mdp", "dcp", "nfp"):
        raise ConfigError(
            f"{url}: the SQL service speaks NFP, to one of the broker's ZeroMQ endpoints",
            hint="write nfp://HOST:PORT, whatever the clients speak",
        )
    found = f"nfp{plus}{transport}://{rest}"
    parse(found)
    return found


def make_worker(
    url: str, engines: Engines, *, service: str = SERVICE, bounds: Bounds = sql.USUAL, name: str = ""
) -> Worker:
    """Return a worker, ready for `run`."""
    # Tracebacks would reveal more of this machine than of the query.
    worker = Worker(
        nfp_url(url), concurrency=bounds.queries, codec="raw", tracebacks=False, name=name, grace=GRACE
    )
    worker.add(service, SqlService(engines).perform)
    return worker


class SqlService:
    """Handler of the service: one query per call."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    async def perform(self, body: Any, ctx: Context) -> bytes:
        """Run a request and return its reply; `pipeline.sql` defines both."""
        request = sql.read_request(body if isinstance(body, bytes) else b"".join(body))

        def tell(progress: QueryProgress) -> None:
            ctx.progress(msgspec.json.encode({"progress": progress}))

        try:
            return await self._engines.run(request, tell, ctx.progress)
        except PolydomoError as error:
            # The message says what is wrong; a traceback would only fill the log.
            raise error.with_traceback(None) from None
