"""`fss.service.broker`: the files of one folder, by URLs such as `nf://folder/file`.

`fetch_file` answers with one chunk in two frames: JSON metadata and the bytes. A client asks again with the next
offset, with as many requests at once as it wants chunks in flight, and can resume an interrupted transfer. With the
`etag` of an earlier chunk the request fails if the file has been replaced or changed. One request can ask for `credit`
chunks: they are sent as pieces, and the answer after them has the next offset.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from typing import Any

import msgspec

from polydomo.core.principals import Principal
from polydomo.deferred import Deferred
from polydomo.services import access
from polydomo.services.authorizer import Authorizer
from polydomo.services.builtin import BuiltIn, Raw, Streamed, Tasks, read_task
from polydomo.services.folder import SCHEME, Details, Folder, NotShared, OpenFile
from polydomo.services.thread_pool import ThreadPool

NAME = access.FILES

CHUNK = 256_000  # norfab's
LARGEST_CHUNK = 4 * 1024 * 1024
# Bytes that one request may put in flight.
LARGEST_CREDIT = 64 * 1024 * 1024


class Files:
    """Tasks on the shared folder. Each runs in a thread and has a deferred answer."""

    def __init__(self, folder: Folder, threads: ThreadPool, transfers: int = 64) -> None:
        self.folder = folder
        self.threads = threads
        self.most_transfers = transfers
        self.transfers = 0
        self.tasks: dict[str, Callable[..., Any]] = {
            "list_files": self.list_files,
            "walk": self.walk,
            "file_details": self.file_details,
        }

    def list_files(self, url: str = SCHEME, details: bool = False) -> Deferred[Any]:
        """List the names in a folder, with `details` also their kind, size and time."""

        def read() -> list[Any]:
            entries = self.folder.entries(url)
            return [entry._asdict() for entry in entries] if details else [entry.name for entry in entries]

        return self.run(read)

    def walk(self, url: str = SCHEME) -> Deferred[Any]:
        """List the URLs of all files in a folder and its subfolders."""
        return self.run(lambda: self.folder.walk(url))

    def file_details(self, url: str | list[str]) -> Deferred[Any]:
        """Return size and hashes of a file; for a list of URLs the outcome of each, in norfab's form."""
        if isinstance(url, list):
            urls = [str(item) for item in url]
            return self.run(lambda: {item: self._outcome(item) for item in urls})
        return self.run(lambda: shown(self.folder.details(url)))

    def run(self, work: Callable[[], Any]) -> Deferred[Any]:
        """Run `work` in a thread and return its deferred result."""
        result: Deferred[Any] = Deferred()
        self.threads.run(work, result.settle, result.fail)
        return result

    def begin_transfer(self) -> None:
        """Count a transfer; raise ValueError if there are too many."""
        if self.transfers >= self.most_transfers:
            raise ValueError(f"{self.transfers} files are being sent already; try again later")
        self.transfers += 1

    def end_transfer(self, file: OpenFile | None) -> None:
        """Close the file of a transfer that ended."""
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
    """The service `fss.service.broker`. Without `files` each task fails with the reason."""

    def __init__(self, authorizer: Authorizer, files: Files | None) -> None:
        self.files = files
        self.tasks = Tasks(authorizer, NAME.decode())
        if files is not None:
            self.tasks.add({**files.tasks, "fetch_file": self.fetch_file})
        self.port = BuiltIn(authorizer.broker, self._perform)
        self.port.offer(NAME)

    def fetch_file(
        self,
        url: str,
        offset: int = 0,
        chunk_size: int = CHUNK,
        etag: str = "",
        credit: int = 0,
        encoding: str = "raw",
    ) -> Deferred[Any]:
        """Return a chunk of a file, or send `credit` chunks as pieces.

        With the encoding "base64" the chunk is the member `data` of the JSON metadata.
        """
        files = self.files
        assert files is not None
        check_range(offset, chunk_size)
        if encoding not in ("raw", "base64"):
            raise ValueError(f"no encoding {encoding!r}; there are raw, base64")
        if not 0 <= whole("credit", credit) * chunk_size <= LARGEST_CREDIT:
            raise ValueError(f"credit is from 0 on, and not for more than {LARGEST_CREDIT} bytes")
        if credit:
            return self._stream(files, url, offset, chunk_size, etag, credit)

        def read() -> Any:
            with closing(open_file(files.folder, url, etag)) as file:
                data = file.read(offset, chunk_size)
                head = _head(file, offset, len(data))
            if encoding == "base64":
                return head | {"data": b64encode(data).decode()}
            return Raw(msgspec.json.encode(head), data)

        return files.run(read)

    def _stream(
        self, files: Files, url: str, offset: int, chunk_size: int, etag: str, credit: int
    ) -> Deferred[Any]:
        """Send chunks as pieces; each is read after the one before was passed on."""
        files.begin_transfer()
        answer = Streamed()
        opened: list[OpenFile] = []
        sent = 0

        def read() -> bytes:
            if not opened:
                opened.append(open_file(files.folder, url, etag))
            return opened[0].read(offset + sent, chunk_size)

        def done(data: bytes) -> None:
            nonlocal sent, credit
            if data:
                answer.send_piece(data)
            sent += len(data)
            credit -= 1
            if credit and data and offset + sent < opened[0].size:
                files.threads.run(read, done, failed)
            else:
                head = _head(opened[0], offset, sent)
                files.end_transfer(opened[0])
                answer.settle(head)

        def failed(error: Exception) -> None:
            files.end_transfer(opened[0] if opened else None)
            answer.fail(error)

        files.threads.run(read, done, failed)
        return answer

    def _perform(self, frames: list[bytes], caller: Principal) -> Any:
        if self.files is None:
            raise ValueError("this broker shares no files: start it with --files DIR")
        return self.tasks.perform(read_task(frames), caller)


def open_file(folder: Folder, url: str, etag: str = "") -> OpenFile:
    """Open a file; raise NotShared if its current `etag` is another."""
    file = folder.open(url)
    if etag and etag != file.etag:
        file.close()
        raise NotShared(f"{url}: the file has changed since")
    return file


def shown(details: Details) -> dict[str, Any]:
    """Return the details as an answer's JSON object."""
    return {"exists": True, **details._asdict()}


def whole(name: str, number: object) -> int:
    """Return `number`; raise ValueError if it is no whole number."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError(f"{name} is a whole number, not {number!r}")
    return number


def check_range(offset: object, chunk_size: object) -> None:
    """Raise ValueError if a chunk cannot begin at this offset or have this size."""
    if not 0 <= whole("offset", offset) < 1 << 62:
        raise ValueError(f"offset is 0 or more, not {offset}")
    if not 1 <= whole("chunk_size", chunk_size) <= LARGEST_CHUNK:
        raise ValueError(f"chunk_size is from 1 to {LARGEST_CHUNK} bytes, not {chunk_size}")


def _head(file: OpenFile, offset: int, size: int) -> dict[str, Any]:
    """Return a chunk's metadata with the offset of the next chunk."""
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
