"""The secret from which the paths of HTTP attempts are derived.

It is kept in the data folder, so that a worker's path is still valid after a restart. Without a data folder there is
nothing to return to, and the secret ends with the process.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from polydomo import private_files
from polydomo.server.data_dir import warn_if_open
from polydomo.server.log import Log

log = Log()

FILE: Final = "attempts.key"

# Bytes of the secret.
SIZE: Final = 32


def load(folder: str) -> bytes:
    """Return the secret of a data folder, and create it if there is none. Without a folder it is a new one."""
    secret = os.urandom(SIZE)
    if not folder:
        return secret
    path = Path(folder) / FILE
    try:
        if not path.exists():
            _create(path, secret)
        found = path.read_bytes()
        warn_if_open(path)
    except OSError as error:
        log.warning(
            "workers over HTTP cannot deliver after a restart",
            file=str(path),
            reason=error.strerror or str(error),
        )
        return secret
    if len(found) != SIZE:
        log.warning("secret of attempts replaced: it was damaged", file=str(path))
        path.unlink()
        return load(folder)
    return found


def _create(path: Path, secret: bytes) -> None:
    """Write the file under another name first: it appears complete or not at all."""
    temporary = path.with_name(f".{path.name}")
    private_files.make_file(temporary)
    temporary.write_bytes(secret)
    private_files.sync(temporary)
    temporary.replace(path)
