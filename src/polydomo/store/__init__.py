"""Durable jobs: one interface, three stores.

`open_store(url, call_soon)` opens a store; `store.py` is the interface, `records.py` has the records, `operations.py`
the rules of a job's life, which are the same for all stores.
"""

from __future__ import annotations

from polydomo.store.errors import StoreInvalid, StoreUnusable
from polydomo.store.store import BACKLOG, BATCH, Store
from polydomo.store.writer import CallSoon

__all__ = ["CallSoon", "Store", "open_store"]


def open_store(url: str, call_soon: CallSoon, backlog_limit: int = BACKLOG, batch: int = BATCH) -> Store:
    """Open a store. Blocks while it connects and brings the schema up to date.

    `url` is `sqlite:///path/to/file` (three slashes and a relative path, or four and an absolute one),
    `postgresql://…` as libpq understands it, or `memory:`. `call_soon` schedules a function on the owner's thread:
    `loop.call_soon_threadsafe`. At most `batch` writes that are waited for share a transaction.
    """
    if url == "memory:":
        from polydomo.store.memory import MemoryStore

        return MemoryStore(call_soon, backlog_limit, batch)
    if url.startswith("sqlite:///") and len(url) > len("sqlite:///"):
        from polydomo.store.sqlite import SqliteStore

        return SqliteStore(url.removeprefix("sqlite:///"), call_soon, backlog_limit, batch)
    if url.startswith(("postgresql://", "postgres://")):
        try:
            from polydomo.store.postgres import PostgresStore
        except ImportError as error:
            raise StoreUnusable(
                f"the PostgreSQL driver is missing: {error}", hint="pip install 'polydomo[postgres]'"
            ) from error
        return PostgresStore(url, call_soon, backlog_limit, batch)
    raise StoreInvalid(
        f"{url!r} is not the URL of a store", hint="use sqlite:///FILE, postgresql://HOST/DATABASE or memory:"
    )
