"""Folders and files that only their owner can read: jobs, results and names of clients are private.

An existing folder keeps its permissions.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

FOLDER = 0o700
FILE = 0o600

# In a folder that is shared with a group.
GROUP_FOLDER = 0o750
GROUP_FILE = 0o640

_GROUP = stat.S_ISGID | stat.S_IRGRP | stat.S_IXGRP


def make_folder(path: Path, mode: int = FOLDER) -> None:
    """Create a folder and its missing parents, for the owner only."""
    missing = []
    above = path
    while not above.exists():
        missing.append(above)
        above = above.parent
    for folder in reversed(missing):
        folder.mkdir(mode if folder is path else FOLDER, exist_ok=True)
    if not missing and not path.is_dir():
        raise NotADirectoryError(20, os.strerror(20), str(path))


def make_file(path: Path, mode: int = FILE) -> None:
    """Create an empty file for the owner only; an existing file stays as it is."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode))


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_for_group(folder: Path) -> bool:
    """Return whether the folder is deliberately shared with a group: readable, with the set-group-ID bit."""
    try:
        return folder.stat().st_mode & _GROUP == _GROUP
    except OSError:
        return False


def open_to(folder: Path) -> str:
    """Return a description of who else can read a folder; empty if only its owner can."""
    mode = folder.stat().st_mode
    if mode & stat.S_IRWXO:
        return "all users"
    return "its group" if mode & stat.S_IRWXG and not is_for_group(folder) else ""
