"""Files of the key folder, one for each entry, in JSON that only the owner can read.

A file appears complete or not at all: it is written under another name and renamed.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from polydomo import private_files


def make_folder(path: Path) -> None:
    """Create a folder unless it exists."""
    if not path.is_dir():
        private_files.make_folder(path)
        give_to_owner(path)


def write(path: Path, fields: dict[str, object], *, durable: bool) -> None:
    """Write an entry's file; with `durable`, wait until it is on disk."""
    folder = path.parent
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    make_folder(folder)
    private_files.make_file(temporary)
    try:
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(fields)) + b"\n")
        give_to_owner(temporary)
        if durable:
            private_files.sync(temporary)
        temporary.replace(path)
        if durable:
            private_files.sync(folder)
    finally:
        temporary.unlink(missing_ok=True)


def names(folder: Path) -> list[str]:
    """Return the names of the entries' files in a folder; none if it does not exist."""
    try:
        return [name for name in os.listdir(folder) if name.endswith(".json")]
    except FileNotFoundError:
        return []


def give_to_owner(path: Path) -> None:
    """Give what root has made to the owner of the folder above, or the broker could not read it."""
    if os.geteuid() == 0:
        above = path.parent.stat()
        os.chown(path, above.st_uid, above.st_gid)
