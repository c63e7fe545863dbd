"""The broker's own folder: one broker at a time uses it, and it says where that broker can be reached."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec

from polydomo.errors import ConfigError


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

    def announce(self, endpoints: list[str]) -> None:
        """Appears whole: written aside, then renamed."""
        aside = self.path / ".broker.json"
        aside.write_bytes(msgspec.json.encode({"pid": os.getpid(), "zmq": endpoints}))
        aside.replace(self.path / "broker.json")

    def close(self) -> None:
        """Say that nobody is here any more, and unlock."""
        (self.path / "broker.json").unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
