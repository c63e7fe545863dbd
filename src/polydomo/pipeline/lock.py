"""One at a time changes the tables: `run`, `backfill`, `compact`. Readers need no lock."""

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


# A lock of this process is no obstacle to this process, as far as the system is concerned.
_held: set[Path] = set()
_guard = threading.Lock()


@contextmanager
def holding(places: Places, what: str) -> Iterator[None]:
    """While within, nobody else on this machine changes these tables. The lock goes with the process, however it ends.

    Tables in an object store have no lock: there the catalog refuses whoever comes second.
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
        return "somebody just took them"
    return f"{note.get('what')} by process {note.get('pid')} on {note.get('host')} since {note.get('since')}"
