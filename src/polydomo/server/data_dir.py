"""The broker's own folder: one broker at a time uses it, and it says where that broker can be reached."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import re
from pathlib import Path
from typing import Final

import msgspec

from polydomo import private_files
from polydomo.errors import ConfigError
from polydomo.server import endpoints
from polydomo.server.log import Log

log = Log()

# Seconds between two tries to write `broker.json`.
RETRY: Final = 2.0


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
        private_files.make_folder(path)
    except OSError as error:
        log.warning("nothing is kept on disk", folder=str(path), reason=error.strerror or str(error))
        return ""
    return str(path)


def warn_if_open(path: Path) -> None:
    """Say so if others may look into a folder of ours: names of clients and services are their business, too."""
    to = private_files.open_to(path)
    if to:
        log.warning("the folder is open to others", folder=str(path), to=to, hint=f"chmod 700 {path}")


class DataDir:
    """Locked while open. `broker.json` in it tells other programs the pid and the endpoints."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._lock: int | None = None

    def open(self) -> None:
        """Create and lock it; the lock goes with the process, however it ends.

        A folder that others may look into was made by somebody else, or by an earlier version: it is left as it is,
        with a warning. A folder that exists may be on a disk that cannot be written to at the moment.
        """
        try:
            private_files.make_folder(self.path)
            warn_if_open(self.path)
            self._take_lock()
        except BlockingIOError:
            raise ConfigError(
                f"another broker uses {self.path}", hint="stop it, or give this one a --data of its own"
            ) from None
        except OSError as error:
            raise ConfigError(
                f"cannot use {self.path}: {error.strerror}", hint="choose another --data"
            ) from error

    async def announce(self, places: dict[str, list[str]]) -> None:
        """Write `broker.json`, as soon as the disk can be written to. One line in the log if it cannot."""
        told = False
        while True:
            try:
                return self._write(msgspec.json.encode({"pid": os.getpid()} | places))
            except OSError as error:
                if not told:
                    told = True
                    log.warning(
                        "broker.json cannot be written; it is tried again",
                        folder=str(self.path),
                        reason=error.strerror or str(error),
                    )
            await asyncio.sleep(RETRY)

    def close(self) -> None:
        """Remove `broker.json` and unlock the folder."""
        try:
            (self.path / "broker.json").unlink(missing_ok=True)
        except OSError as error:
            log.warning(
                "broker.json cannot be removed", folder=str(self.path), reason=error.strerror or str(error)
            )
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take_lock(self) -> None:
        path = self.path / "lock"
        try:
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.ENOSPC, errno.EDQUOT):
                raise
            if not path.exists():
                log.warning("the data folder cannot be locked", folder=str(self.path), reason=error.strerror)
                return
            self._lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _write(self, content: bytes) -> None:
        """The file appears whole: written aside, then renamed."""
        aside = self.path / ".broker.json"
        private_files.make_file(aside)
        aside.write_bytes(content)
        aside.replace(self.path / "broker.json")
