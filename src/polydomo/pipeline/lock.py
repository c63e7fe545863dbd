"""A lock for writers of the tables: `run`, `backfill`, `compact`. Readers need no lock."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from polydomo.errors import PolydomoError
from polydomo.pipeline.places import Places


class Busy(PolydomoError):
    """The tables are being changed by another process."""

    code = "busy"
    hint = "wait until it is done, or stop it"


# flock does not exclude another thread of the same process.
_held: set[Path] = set()
_guard = threading.Lock()


@contextmanager
def holding(places: Places, what: str) -> Iterator[None]:
    """Hold the lock of these tables on this machine. The system releases it when the process ends.

    Tables in an object store have no lock: there the catalog refuses the second writer.
    """
    path = places.lock
    if path is None:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        with _guard:
            try:
                if path in _held:
                    raise BlockingIOError
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(f"the tables at {places.tables} are in use: {_holder(handle)}") from None
            _held.add(path)
        note = {
            "what": what,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(note).encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(handle, 0)
            _held.discard(path)
    finally:
        os.close(handle)


def _holder(handle: int) -> str:
    try:
        note: dict[str, Any] = json.loads(os.pread(handle, 4096, 0))
    except ValueError:
        return "just locked by another process"
    return f"{note.get('what')} by process {note.get('pid')} on {note.get('host')} since {note.get('since')}"
