"""Jobs that must survive: one interface, three stores.

`open_store(url, call)` opens one; `Store` in `base.py` is what it can do; `records.py` is what goes in and
out. The rules of what may happen to a job are in `rules.py`, the same for all of them.
"""

from __future__ import annotations

from polydomo.store.errors import StoreInvalid, StoreUnusable
from polydomo.store.store import BACKLOG, BATCH, CallSoon, Store

__all__ = ["CallSoon", "Store", "open_store"]


def open_store(url: str, call: CallSoon, backlog_limit: int = BACKLOG, batch: int = BATCH) -> Store:
    """`sqlite:///path/to/file` (three slashes and a relative path, or four and an absolute one),
    `postgresql://…` as libpq understands it, or `memory:`. Blocks while it connects and brings the schema up
    to date.

    `call` runs a function on the owner's thread soon: `loop.call_soon_threadsafe`. `batch` is how many
    who wait for a commit may wait for the same one.
    """
    if url == "memory:":
        from polydomo.store.memory import MemoryStore

        return MemoryStore(call, backlog_limit, batch)
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        from polydomo.store.sqlite import SqliteStore

        return SqliteStore(url.removeprefix("sqlite:///"), call, backlog_limit, batch)
    if url.startswith(("postgresql://", "postgres://")):
        try:
            from polydomo.store.postgres import PostgresStore
        except ImportError as error:
            raise StoreUnusable(
                f"the PostgreSQL driver is missing: {error}", hint="pip install 'polydomo[postgres]'"
            ) from error
        return PostgresStore(url, call, backlog_limit, batch)
    raise StoreInvalid(
        f"{url!r} is no address of a store", hint="use sqlite:///FILE, postgresql://HOST/DATABASE or memory:"
    )
