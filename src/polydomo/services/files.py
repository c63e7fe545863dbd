"""`fss.service.broker`: the files of one folder, by URLs such as `nf://folder/file`.

`fetch_file` gives one chunk: two frames, JSON about it and its bytes. Whoever wants more asks again with the next
offset, as often at once as it likes to have chunks under way; a transfer that was broken off goes on where it was. With
`etag` from an earlier chunk it fails if the file has become another one. `credit` chunks can be had for one request:
they come as pieces, and the answer behind them says where to go on.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import msgspec

from polydomo.core.broker import Broker
from polydomo.services.builtin import BuiltIn, Later, Raw, perform, read_task
from polydomo.services.folder import SCHEME, Details, Folder, NotShared, OpenFile
from polydomo.services.thread_pool import ThreadPool

NAME = b"fss.service.broker"

CHUNK = 256_000  # norfab's
LARGEST_CHUNK = 4 * 1024 * 1024
# Bytes that one request may bring under way.
LARGEST_CREDIT = 64 * 1024 * 1024


class Files:
    """What is asked about the folder; each answer comes later, from a thread."""

    def __init__(self, folder: Folder, background: ThreadPool, transfers: int = 64) -> None:
        self.folder = folder
        self.background = background
        self.most_transfers = transfers
        self.transfers = 0
        self.tasks: dict[str, Callable[..., Any]] = {
            "list_files": self.list_files,
            "walk": self.walk,
            "file_details": self.file_details,
        }

    def list_files(self, url: str = SCHEME, details: bool = False) -> Later:
        """The names in a folder, or with `details` also what they are."""

        def look() -> list[Any]:
            entries = self.folder.entries(url)
            return [entry._asdict() for entry in entries] if details else [entry.name for entry in entries]

        return self.later(look)

    def walk(self, url: str = SCHEME) -> Later:
        """The URLs of all files in a folder and the folders in it."""
        return self.later(lambda: self.folder.walk(url))

    def file_details(self, url: str | list[str]) -> Later:
        """Size and hashes of a file; of several: what each said by its URL, as norfab has it."""
        if isinstance(url, list):
            urls = [str(item) for item in url]
            return self.later(lambda: {item: self._outcome(item) for item in urls})
        return self.later(lambda: shown(self.folder.details(url)))

    def later(self, work: Callable[[], Any]) -> Later:
        """Its answer when a thread has it."""
        later = Later()
        self.background.run(work, later.settle, later.fail)
        return later

    def begin(self) -> None:
        """One more transfer is under way; ValueError if there are too many."""
        if self.transfers >= self.most_transfers:
            raise ValueError(f"{self.transfers} files are being sent already; try again later")
        self.transfers += 1

    def end(self, file: OpenFile | None) -> None:
        """A transfer is over."""
        self.transfers -= 1
        if file is not None:
            file.close()

    def _outcome(self, url: str) -> dict[str, Any]:
        try:
            details = shown(self.folder.details(url))
        except (NotShared, OSError) as error:
            nothing = {"md5hash": None, "sha256": None, "size_bytes": None, "exists": False}
            return {"result": nothing, "failed": True, "errors": [str(error)], "messages": []}
        return {"result": details, "failed": False, "errors": [], "messages": []}


class Fss:
    """Registers the service; without files it says so."""

    def __init__(self, broker: Broker, files: Files | None) -> None:
        self.files = files
        self.tasks: dict[str, Callable[..., Any]] = {}
        if files is not None:
            self.tasks = {**files.tasks, "fetch_file": self.fetch_file}
        self.port = BuiltIn(broker, self._answer)
        self.port.offer(NAME)

    def fetch_file(
        self,
        url: str,
        offset: int = 0,
        chunk_size: int = CHUNK,
        etag: str = "",
        credit: int = 0,
        encoding: str = "raw",
    ) -> Later:
        """A chunk of a file, or `credit` of them in pieces. `encoding` "base64": as `data` in the JSON."""
        assert self.files is not None
        check_range(offset, chunk_size)
        if encoding not in ("raw", "base64"):
            raise ValueError(f"no encoding {encoding!r}; there are raw, base64")
        if not 0 <= whole("credit", credit) * chunk_size <= LARGEST_CREDIT:
            raise ValueError(f"credit is from 0 on, and not for more than {LARGEST_CREDIT} bytes")
        if credit:
            return self._pieces(url, offset, chunk_size, etag, credit)

        def read() -> Any:
            assert self.files is not None
            file = open_file(self.files.folder, url, etag)
            try:
                data = file.read(offset, chunk_size)
                head = _head(file, offset, len(data))
            finally:
                file.close()
            if encoding == "base64":
                return head | {"data": b64encode(data).decode()}
            return Raw(msgspec.json.encode(head), data)

        return self.files.later(read)

    def _pieces(self, url: str, offset: int, chunk_size: int, etag: str, credit: int) -> Later:
        """One chunk after the other is read when the one before is on its way."""
        assert self.files is not None
        files = self.files
        files.begin()
        later = Later()
        opened: list[OpenFile] = []
        sent = 0

        def read() -> bytes:
            if not opened:
                opened.append(open_file(files.folder, url, etag))
            return opened[0].read(offset + sent, chunk_size)

        def done(data: bytes) -> None:
            nonlocal sent, credit
            if data:
                later.piece(data)
            sent += len(data)
            credit -= 1
            if credit and data and offset + sent < opened[0].size:
                files.background.run(read, done, failed)
            else:
                head = _head(opened[0], offset, sent)
                files.end(opened[0])
                later.settle(head)

        def failed(error: Exception) -> None:
            files.end(opened[0] if opened else None)
            later.fail(error)

        files.background.run(read, done, failed)
        return later

    def _answer(self, frames: list[bytes]) -> Any:
        if self.files is None:
            raise ValueError("this broker shares no files: start it with --files DIR")
        return perform(self.tasks, read_task(frames))


def open_file(folder: Folder, url: str, etag: str = "") -> OpenFile:
    """A file, if it is still the one with this `etag`."""
    file = folder.open(url)
    if etag and etag != file.etag:
        file.close()
        raise NotShared(f"{url}: it has changed since")
    return file


def shown(details: Details) -> dict[str, Any]:
    """For an answer."""
    return {"exists": True, **details._asdict()}


def whole(name: str, number: object) -> int:
    """A whole number; ValueError if it is none."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError(f"{name} is a whole number, not {number!r}")
    return number


def check_range(offset: object, chunk_size: object) -> None:
    """Where to begin, and how much at once."""
    if not 0 <= whole("offset", offset) < 1 << 62:
        raise ValueError(f"offset is 0 or more, not {offset}")
    if not 1 <= whole("chunk_size", chunk_size) <= LARGEST_CHUNK:
        raise ValueError(f"chunk_size is from 1 to {LARGEST_CHUNK} bytes, not {chunk_size}")


def _head(file: OpenFile, offset: int, size: int) -> dict[str, Any]:
    """About a chunk: where the next one begins, and whether there is one."""
    following = offset + size
    return {
        "url": file.url,
        "offset": offset,
        "size": size,
        "next": following,
        "size_bytes": file.size,
        "done": following >= file.size,
        "etag": file.etag,
    }
