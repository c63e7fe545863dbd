"""The shared folder (`fss.service.broker`), with range requests, so that transfers can be resumed."""

from __future__ import annotations

import mimetypes
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, suppress
from email.utils import formatdate
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Header, Path, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from polydomo.services.files import Files
from polydomo.services.folder import SCHEME, NotShared, OpenFile
from polydomo.web.api.json_responses import await_deferred, json_cached, matches_etag
from polydomo.web.api.openapi import ETAG, ResponseDocs, cached, failing
from polydomo.web.api.problems import problem

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

# Bytes that a thread reads at once.
CHUNK: Final = 256 * 1024

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")

# Files are untrusted: a browser must not run them with the API's origin.
_UNTRUSTED = {"x-content-type-options": "nosniff", "content-security-policy": "sandbox; default-src 'none'"}

_FILE_DOCS: ResponseDocs = {
    200: {
        "description": "A file, or the entries of a folder.",
        "headers": ETAG,
        "content": {"*/*": {}, **cached("Folder")[200]["content"]},
    },
    206: {"description": "A part of a file.", "headers": ETAG, "content": {"*/*": {}}},
    **cached(),
}


def make_router(server: BrokerServer) -> APIRouter:
    """Return the routes under `/v1/files`."""
    router = APIRouter(prefix="/v1/files", tags=["files"], default_response_class=Response)

    @router.get("", summary="List the shared folder", responses=cached("Folder") | failing("not-supported"))
    async def list_files(request: Request) -> Response:
        """List files and folders by name."""
        files = _files()
        entries = await _in_thread(files, lambda: _entries(files, ""))
        return json_cached(request, {"path": "", "entries": entries})

    @router.get(
        "/{path:path}",
        summary="Read a file",
        responses=_FILE_DOCS | failing("range", "too-many-requests", "not-supported"),
    )
    async def read_file(
        request: Request,
        path: Annotated[str, Path(description="a path in the folder", examples=["templates/base.j2"])],
        details: Annotated[
            bool, Query(description="return size and hashes as JSON instead of the content")
        ] = False,
        range: Annotated[str | None, Header(description="a part of the file: `bytes=0-499`")] = None,
        if_range: Annotated[
            str | None, Header(description="apply `Range` only if the file is still this version")
        ] = None,
    ) -> Response:
        """Return a file, the part of it that `Range` names, or the entries of a folder. HEAD returns the size."""
        files = _files()
        if details:
            found = await _in_thread(files, lambda: files.folder.details(SCHEME + path))
            return json_cached(request, {"path": path, **found._asdict()})
        opened = await _in_thread(files, lambda: _open(files, path))
        if isinstance(opened, list):
            return json_cached(request, {"path": path, "entries": opened})
        with ExitStack() as closing:
            closing.callback(opened.close)
            response = _file_response(request, files, opened, range, if_range)
            if isinstance(response, SharedFileResponse):
                closing.pop_all()  # the response closes the file
            return response

    def _files() -> Files:
        files = server.builtin_services.files
        if files is None:
            raise problem("not-supported", "this broker shares no files: start it with --files DIR")
        return files

    return router


class SharedFileResponse(StreamingResponse):
    """A response that calls `end` however it ends."""

    def __init__(
        self, content: AsyncIterator[bytes], status: int, headers: dict[str, str], end: Callable[[], None]
    ):
        super().__init__(content, status, headers)
        self.end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.end()


def _file_response(
    request: Request, files: Files, file: OpenFile, wanted: str | None, only_if: str | None
) -> Response:
    """Return a file or a part of it."""
    tag = f'"{file.etag}"'
    date = formatdate(os.fstat(file.fd).st_mtime, usegmt=True)
    headers = {
        "etag": tag,
        "last-modified": date,
        "accept-ranges": "bytes",
        "cache-control": "no-cache",
        "content-type": mimetypes.guess_type(file.url)[0] or "application/octet-stream",
        **_UNTRUSTED,
    }
    if matches_etag(request, tag):
        return Response(status_code=304, headers=headers)
    head = request.scope.get("polydomo.head", False)
    start, end, status = 0, file.size, 200
    if wanted is not None and not head and only_if in (None, tag, date):
        part = parse_range(wanted, file.size)
        if part is not None:
            start, end = part
            status = 206
            headers["content-range"] = f"bytes {start}-{end - 1}/{file.size}"
    headers["content-length"] = str(end - start)
    if head or start == end:
        return Response(b"", status, headers)
    try:
        files.begin_transfer()
    except ValueError as error:
        raise problem("too-many-requests", str(error)) from error
    return SharedFileResponse(
        _chunks(files, file, start, end), status, headers, lambda: files.end_transfer(file)
    )


def parse_range(text: str, size: int) -> tuple[int, int] | None:
    """Return the start and end (exclusive) of the part that `Range` names; raise HttpProblem if it is out of range.

    None means the whole file: several parts and unknown units are ignored (RFC 9110 §14.2).
    """
    found = _RANGE.fullmatch(text.strip().lower())
    if found is None or found[0] == "bytes=-":
        return None
    first, last = found[1], found[2]
    if not first:
        start, end = max(0, size - int(last)), size
        start = size if last and int(last) == 0 else start
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= size:
        raise problem("range", f"the file has {size} bytes", {"content-range": f"bytes */{size}"})
    return start, end


async def _chunks(files: Files, file: OpenFile, start: int, end: int) -> AsyncIterator[bytes]:
    while start < end:
        data = await await_deferred(files.run(lambda: file.read(start, min(CHUNK, end - start))))  # noqa: B023
        if not data:
            raise OSError("the file was truncated while it was sent")
        start += len(data)
        yield data


async def _in_thread(files: Files, work: Callable[[], Any]) -> Any:
    """Run `work` in a thread; raise HttpProblem if the file does not exist or there are too many requests."""
    try:
        return await await_deferred(files.run(work))
    except NotShared as error:
        raise problem("not-found", str(error).removeprefix(SCHEME)) from error
    except ValueError as error:  # the queue of the thread is full
        raise problem("too-many-requests", str(error)) from error


def _open(files: Files, path: str) -> OpenFile | list[dict[str, Any]]:
    """Return an open file, or the entries of a folder."""
    try:
        return files.folder.open(SCHEME + path)
    except NotShared:
        with suppress(NotShared):  # the first error is more precise
            return _entries(files, path)
        raise


def _entries(files: Files, path: str) -> list[dict[str, Any]]:
    return [entry._asdict() for entry in files.folder.entries(SCHEME + path)]
