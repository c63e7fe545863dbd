"""Disks that fail, for tests that may mount some (root, outside of most containers)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _run(*command: str | Path, good: tuple[int, ...] = (0,)) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode not in good:
        pytest.skip(f"{command[0]}: {done.stderr.strip()}")


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A disk in memory that is full soon."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    folder.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


class FragileDisk:
    """A small ext4 disk that can turn read-only under its users, as a real one does after an error."""

    def __init__(self, folder: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root can mount a disk that fails")
        self.image = folder / "image"
        self.folder = folder / "disk"
        self.folder.mkdir()
        with self.image.open("wb") as file:
            file.truncate(8 * 1024 * 1024)
        _run("mkfs.ext4", "-q", self.image)
        self.mount()

    def mount(self) -> None:
        _run("mount", "-o", "loop", self.image, self.folder)

    def fail(self) -> None:
        """From now on every write to it is refused."""
        _run("mount", "-o", "remount,abort", self.folder)

    def repair(self) -> None:
        """It is replaced by another with the same content. Open files stay what they are: of the disk that failed,
        and so is the image while they are open."""
        self.unmount()
        self.image = self.image.rename(self.image.with_name("failed"))
        copy = self.image.with_name("image")
        shutil.copyfile(self.image, copy)
        self.image = copy
        _run("e2fsck", "-fp", self.image, good=(0, 1))
        self.mount()

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", self.folder], check=True)
