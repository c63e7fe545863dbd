"""The broker's own folder: one broker at a time uses it, and it says where that broker can be reached."""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

import msgspec

from polydomo.errors import ConfigError
from polydomo.runtime import endpoints
from polydomo.runtime.log import Log

log = Log()


def folder_for(zmq: list[str]) -> str:
    """The folder of a broker that was not told of one: in the user's state folder (XDG), by its first endpoint, so
    that two brokers never share one and a restarted one finds its own. Empty where that cannot be: its port is
    the system's choice, or the user has no home to write to."""
    if not zmq:
        return ""
    endpoint = endpoints.parse(zmq[0], binding=True)
    if not endpoint.is_ipc and endpoint.port == 0:
        return ""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    path = state / "polydomo" / re.sub(r"[^A-Za-z0-9._-]+", "_", str(endpoint).split("://", 1)[1]).strip("_")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        log.warning("nothing is kept on disk", folder=str(path), reason=error.strerror or str(error))
        return ""
    return str(path)


class DataFolder:
    """Locked while open. `broker.json` in it tells other programs the pid and the endpoints."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._lock: int | None = None

    def open(self) -> None:
        """Create and lock it; the lock goes with the process, however it ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another broker uses {self.path}", hint="stop it, or give this one a --data of its own"
            ) from None
        except OSError as error:
            raise ConfigError(
                f"cannot use {self.path}: {error.strerror}", hint="choose another --data"
            ) from error

    def announce(self, places: dict[str, list[str]]) -> None:
        """Appears whole: written aside, then renamed."""
        aside = self.path / ".broker.json"
        aside.write_bytes(msgspec.json.encode({"pid": os.getpid()} | places))
        aside.replace(self.path / "broker.json")

    def close(self) -> None:
        """Say that nobody is here any more, and unlock."""
        (self.path / "broker.json").unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
