"""A shared folder, and nothing outside of it.

A path is resolved part by part from the folder's own descriptor, without the system following links: a symbolic link is
read and resolved here, so it can lead anywhere inside the folder and nowhere else, even if files are renamed or
replaced at the same time. Only regular files are opened: no devices, pipes or sockets. Hidden files (`.env`,
`.git/config`) do not exist here, neither by name nor through a link.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections import OrderedDict
from contextlib import closing
from threading import Lock
from typing import NamedTuple

SCHEME = "nf://"

LONGEST_URL = 4096
MOST_LINKS = 40  # as Linux has it
MOST_LISTED = 100_000
HASH_BLOCK = 1024 * 1024

# Number of cached hashes, and the age in seconds from which a file's hashes are cached: another change within the same
# tick of the file system's clock would go unnoticed.
HASHES = 10_000
SETTLED = 2.0

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NotShared(ValueError):
    """The file does not exist or is not shared."""


class Entry(NamedTuple):
    """File or subfolder in a listing."""

    name: str
    kind: str  # file, folder
    size_bytes: int
    modified: float  # seconds since 1970


class Details(NamedTuple):
    """Size, hashes and time of a file."""

    size_bytes: int
    sha256: str
    md5hash: str
    modified: float
    etag: str


class OpenFile:
    """Open file. It stays the same file even if another one takes its name."""

    def __init__(self, url: str, fd: int, status: os.stat_result) -> None:
        self.url = url
        self.fd = fd
        self.size = status.st_size
        self.etag = etag(status)

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes."""
        return os.pread(self.fd, size, offset)

    def close(self) -> None:
        """Close the file; does nothing if it is closed."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Folder:
    """Read-only access to the folder. All methods may block on the disk and are thread-safe."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._hashes: OrderedDict[tuple[int, int, int, int], tuple[str, str]] = OrderedDict()
        self._lock = Lock()

    def open(self, url: str) -> OpenFile:
        """Open a regular file; raise NotShared if there is none."""
        fd = self._walk(url, False)
        return OpenFile(url, fd, os.fstat(fd))

    def entries(self, url: str) -> list[Entry]:
        """Return the files and folders in a folder, sorted by name."""
        fd = self._walk(url, True)
        try:
            return self._read(fd, parts(url))
        finally:
            os.close(fd)

    def walk(self, url: str) -> list[str]:
        """Return the URLs of all files below a folder. Links to folders are not followed."""
        found: list[str] = []
        waiting = [parts(url)]
        while waiting:
            here = waiting.pop()
            try:
                fd = self._walk(join(here), True)
            except NotShared:
                if not found and not here[len(parts(url)) :]:
                    raise
                continue  # removed since it was listed
            try:
                for entry in self._read(fd, here):
                    if entry.kind == "file":
                        found.append(join([*here, entry.name]))
                    elif not _is_link(entry.name, fd):
                        waiting.append([*here, entry.name])
            finally:
                os.close(fd)
            if len(found) + len(waiting) > MOST_LISTED:
                raise NotShared(f"{url}: there are more than {MOST_LISTED} files; ask for a folder in it")
        return sorted(found)

    def details(self, url: str) -> Details:
        """Return size and hashes of a file."""
        with closing(self.open(url)) as file:
            status = os.fstat(file.fd)
            for _ in range(3):
                sha256, md5 = self._hash(file.fd, status)
                after = os.fstat(file.fd)
                if _key(after) == _key(status):
                    return Details(status.st_size, sha256, md5, status.st_mtime, etag(status))
                status = after
        raise NotShared(f"{url}: it is being written; ask again later")

    def _walk(self, url: str, wants_folder: bool) -> int:
        """Return a descriptor of the file or folder.

        Links are resolved by the same rules; a `..` in a link leads back along the resolved path and never above the
        shared folder.
        """
        try:
            stack = [os.open(self.path, _FOLDER & ~os.O_NOFOLLOW)]
        except OSError as error:
            raise NotShared(f"{url}: the shared folder cannot be read: {error.strerror}") from error
        todo = list(reversed(parts(url)))
        links = 0
        try:
            while todo:
                name = todo.pop()
                if name == "..":
                    if len(stack) == 1:
                        raise NotShared(f"{url}: leads out of the shared folder")
                    os.close(stack.pop())
                    continue
                if _is_hidden(name):
                    raise NotShared(f"{url}: file not found")
                target = _link(name, stack[-1])
                if target is not None:
                    links += 1
                    if target.startswith("/") or links > MOST_LINKS:
                        raise NotShared(f"{url}: leads out of the shared folder")
                    todo += [part for part in reversed(target.split("/")) if part not in ("", ".")]
                elif todo or wants_folder:
                    stack.append(os.open(name, _FOLDER, dir_fd=stack[-1]))
                else:
                    return _open_file(url, name, stack[-1])
            if not wants_folder:
                raise NotShared(f"{url}: is a folder")
            return stack.pop()
        except OSError as error:
            raise NotShared(f"{url}: {_reason(error)}") from error
        finally:
            for fd in stack:
                os.close(fd)

    def _read(self, fd: int, here: list[str]) -> list[Entry]:
        found: list[Entry] = []
        with os.scandir(fd) as names:
            for number, item in enumerate(names):
                if number >= MOST_LISTED:
                    raise NotShared(f"{join(here)}: there are more than {MOST_LISTED} names in it")
                entry = self._entry(item, here)
                if entry is not None:
                    found.append(entry)
        return sorted(found)

    def _entry(self, item: os.DirEntry[str], here: list[str]) -> Entry | None:
        """Return an entry, or None for what is not shared: hidden files, devices, links that lead out, invalid
        names."""
        if _is_hidden(item.name):
            return None
        try:
            item.name.encode()
            status = item.stat(follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                status = self._target_status(join([*here, item.name]))
        except (OSError, ValueError):
            return None
        if stat.S_ISREG(status.st_mode):
            return Entry(item.name, "file", status.st_size, status.st_mtime)
        if stat.S_ISDIR(status.st_mode):
            return Entry(item.name, "folder", 0, status.st_mtime)
        return None

    def _target_status(self, url: str) -> os.stat_result:
        """Return the status of the file or folder that a link leads to."""
        try:
            fd = self._walk(url, False)
        except NotShared:
            fd = self._walk(url, True)
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)

    def _hash(self, fd: int, status: os.stat_result) -> tuple[str, str]:
        key = _key(status)
        with self._lock:
            known = self._hashes.get(key)
            if known is not None:
                self._hashes.move_to_end(key)
                return known
        sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
        offset = 0
        while block := os.pread(fd, HASH_BLOCK, offset):
            sha256.update(block)
            md5.update(block)
            offset += len(block)
        made = sha256.hexdigest(), md5.hexdigest()
        if time.time() - status.st_mtime > SETTLED:
            with self._lock:
                self._hashes[key] = made
                if len(self._hashes) > HASHES:
                    self._hashes.popitem(False)
        return made


def parts(url: object) -> list[str]:
    """Return the names in a URL; raise NotShared if it is malformed."""
    if not isinstance(url, str) or not url.startswith(SCHEME):
        raise NotShared(f"{url!r} is no URL such as {SCHEME}folder/file")
    if len(url) > LONGEST_URL or "\0" in url:
        raise NotShared(f"{url[:80]!r} is no path: it is too long, or has a zero byte in it")
    try:
        url.encode()
    except UnicodeEncodeError:
        raise NotShared(f"{url!r} is not text") from None
    names = [name for name in url.removeprefix(SCHEME).replace("\\", "/").split("/") if name not in ("", ".")]
    if ".." in names:
        raise NotShared(f"{url}: leads out of the shared folder")
    return names


def join(names: list[str]) -> str:
    """Return the URL of a path; the inverse of `parts`."""
    return SCHEME + "/".join(names)


def etag(status: os.stat_result) -> str:
    """Return a tag that differs for another file and for another content."""
    return f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"


def _key(status: os.stat_result) -> tuple[int, int, int, int]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _open_file(url: str, name: str, folder: int) -> int:
    # Checked before opening, because opening a device may have effects, and after, because it may have been replaced.
    if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        raise NotShared(f"{url}: is no file")
    fd = os.open(name, _FILE, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotShared(f"{url}: is no file")
    return fd


def _link(name: str, folder: int) -> str | None:
    """Return the target of a link; None if `name` is no link."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _is_link(name: str, folder: int) -> bool:
    try:
        return _link(name, folder) is not None
    except OSError:
        return True


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "file not found"
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return "is no folder"
    return error.strerror or str(error)
