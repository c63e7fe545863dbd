"""The broker's data folder: locked by one broker at a time, with a file that names its endpoints."""

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

# Seconds between two attempts to write `broker.json`.
RETRY: Final = 2.0


def folder_for(zmq: list[str]) -> str:
    """Return the default data folder: in the user's state folder (XDG), named after the first endpoint.

    So two brokers never share a folder, and a restarted broker finds its own. The result is empty if the system chooses
    the port, or if the folder cannot be created.
    """
    if not zmq:
        return ""
    endpoint = endpoints.parse_listener(zmq[0]).endpoint
    if not endpoint.is_ipc and endpoint.port == 0:
        return ""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    path = state / "polydomo" / re.sub(r"[^A-Za-z0-9._-]+", "_", str(endpoint).split("://", 1)[1]).strip("_")
    try:
        private_files.make_folder(path)
    except OSError as error:
        log.warning(
            "no data folder: nothing is stored", folder=str(path), reason=error.strerror or str(error)
        )
        return ""
    return str(path)


def warn_if_open(path: Path) -> None:
    """Warn if other users can read a folder, or a file with a secret: names of clients and services are private."""
    to = private_files.open_to(path)
    if not to:
        return
    if path.is_dir():
        log.warning("folder readable by others", folder=str(path), to=to, hint=f"chmod 700 {path}")
    else:
        log.warning("file readable by others", file=str(path), to=to, hint=f"chmod 600 {path}")


class DataDir:
    """Data folder that is locked while open. `broker.json` in it has the process id and the endpoints."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._lock: int | None = None

    def open(self) -> None:
        """Create and lock the folder; the lock ends with the process.

        An existing folder that other users can read is left as it is, with a warning. It may be on a disk that cannot
        be written to at the moment.
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

    async def announce(self, bound: dict[str, list[str]]) -> None:
        """Write `broker.json`; retry while the disk cannot be written to, and log that once."""
        logged = False
        while True:
            try:
                return self._write(msgspec.json.encode({"pid": os.getpid()} | bound))
            except OSError as error:
                if not logged:
                    logged = True
                    log.warning(
                        "cannot write broker.json; retrying",
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
                "cannot remove broker.json", folder=str(self.path), reason=error.strerror or str(error)
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
                log.warning("cannot lock the data folder", folder=str(self.path), reason=error.strerror)
                return
            self._lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _write(self, content: bytes) -> None:
        """Write the file atomically: under another name, then renamed."""
        temporary = self.path / ".broker.json"
        private_files.make_file(temporary)
        temporary.write_bytes(content)
        temporary.replace(self.path / "broker.json")
