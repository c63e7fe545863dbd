"""SQL as a service: a worker whose function is a query, for any client of any protocol.

The worker speaks NFP, whatever its clients speak: of the dialects of workers it is the one with a word for everything
that is needed. Progress goes out as partial answers, which the broker passes on as each client's protocol has them
(MDP's PARTIAL, NFP's STREAM, HTTP's `partial` events; MemoDB has none, there only the result arrives). A job that is
cancelled (DELETE over HTTP or NFP, a deadline) is cancelled here, and its query with it. Queries run in processes of
their own (`engine_pool`): there is no Spark here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from polydomo.errors import ConfigError, PolydomoError
from polydomo.pipeline import sql
from polydomo.pipeline.engine_pool import Engines
from polydomo.pipeline.sql import Bounds, Progress
from polydomo.sdk.url import parse
from polydomo.sdk.worker import Worker

if TYPE_CHECKING:
    from polydomo.sdk.context import Context

SERVICE: Final = "sql"

# Seconds that queries get to finish when the service is told to stop. Others are given to another worker, if there is.
GRACE: Final = 10.0


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
    url: str, engines: Engines, *, service: str = SERVICE, bounds: Bounds = sql.USUAL, name: str = ""
) -> Worker:
    """Return a worker that is ready to `run`."""
    # Tracebacks tell more of this machine than of the query.
    worker = Worker(
        nfp_url(url), concurrency=bounds.queries, codec="raw", tracebacks=False, name=name, grace=GRACE
    )
    worker.add(service, Service(engines).perform)
    return worker


class Service:
    """One query per call."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    async def perform(self, body: Any, ctx: Context) -> bytes:
        """From a request to its answer; see `pipeline.sql` for both."""
        request = sql.read_request(body if isinstance(body, bytes) else b"".join(body))

        def tell(progress: Progress) -> None:
            ctx.progress(msgspec.json.encode({"progress": progress}))

        try:
            return await self._engines.run(request, tell, ctx.progress)
        except PolydomoError as error:
            # What is wrong is in the words; the way to it would only fill the log.
            raise error.with_traceback(None) from None
