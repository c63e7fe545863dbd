"""The folder that the broker shares (`fss.service.broker`), with ranges, so that a transfer goes on where it was."""

from __future__ import annotations

import mimetypes
import os
import re
from collections.abc import AsyncIterator, Callable
from email.utils import formatdate
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Header, Path, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from polydomo.services.files import Files
from polydomo.services.folder import SCHEME, NotShared, OpenFile
from polydomo.web.api.json_responses import settled, show, unchanged
from polydomo.web.api.openapi import ETAG, Answers, cached, failing
from polydomo.web.api.problems import Problem, problem

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

# Read at once, in a thread.
CHUNK: Final = 256 * 1024

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")

# A file is somebody's: a browser must not run it as if it were ours.
_HARMLESS = {"x-content-type-options": "nosniff", "content-security-policy": "sandbox; default-src 'none'"}

_BYTES: dict[str, Any] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
ANSWERS: Answers = {
    200: {
        "description": "A file, or the names in a folder.",
        "headers": ETAG,
        "content": {"*/*": {}, **cached("Folder")[200]["content"]},
    },
    206: {"description": "A part of a file.", "headers": ETAG, "content": {"*/*": {}}},
    304: {"description": "It is the one that `If-None-Match` names.", "headers": ETAG},
}


class Opened(NamedTuple):
    """What a path names: a file, or the entries of a folder."""

    file: OpenFile | None
    modified: float
    entries: list[dict[str, Any]]


def make_router(server: BrokerServer) -> APIRouter:
    """See the module's text."""
    router = APIRouter(prefix="/v1/files", tags=["files"], default_response_class=Response)

    @router.get("", summary="List the shared folder", responses=cached("Folder") | failing("not-supported"))
    async def list_files(request: Request) -> Response:
        """The files and folders in it, by name."""
        entries = await _later(_files(), lambda: _listed(_files(), ""))
        return show(request, {"path": "", "entries": entries})

    @router.get(
        "/{path:path}",
        summary="Read a file",
        responses=ANSWERS | failing("malformed", "not-found", "range", "too-many-requests", "not-supported"),
    )
    async def read_file(
        request: Request,
        path: Annotated[str, Path(description="a path in the folder", examples=["templates/base.j2"])],
        details: Annotated[
            bool, Query(description="size and hashes as JSON, instead of its content")
        ] = False,
        range: Annotated[str | None, Header(description="a part of it: `bytes=0-499`")] = None,
        if_range: Annotated[
            str | None, Header(description="the part only if it is still this one, otherwise all of it")
        ] = None,
    ) -> Response:
        """Its bytes, or the part that `Range` names; of a folder, what is in it. HEAD says how large it is."""
        files = _files()
        if details:
            found = await _later(files, lambda: files.folder.details(SCHEME + path))
            return show(request, {"path": path, **found._asdict()})
        opened = await _later(files, lambda: _open(files, path))
        if opened.file is None:
            return show(request, {"path": path, "entries": opened.entries})
        return _answer(request, files, opened.file, opened.modified, range, if_range)

    def _files() -> Files:
        files = server.builtin_services.files
        if files is None:
            raise problem("not-supported", "this broker shares no files: start it with --files DIR")
        return files

    return router


class Transfer(StreamingResponse):
    """Ends its file's transfer however the response ends."""

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


def _answer(
    request: Request, files: Files, file: OpenFile, modified: float, wanted: str | None, only_if: str | None
) -> Response:
    """A file or a part of it; closes it."""
    tag = f'"{file.etag}"'
    date = formatdate(modified, usegmt=True)
    headers = {
        "etag": tag,
        "last-modified": date,
        "accept-ranges": "bytes",
        "cache-control": "no-cache",
        "content-type": mimetypes.guess_type(file.url)[0] or "application/octet-stream",
        **_HARMLESS,
    }
    if unchanged(request, tag):
        file.close()
        return Response(status_code=304, headers=headers)
    head = request.scope.get("polydomo.head", False)
    start, end, status = 0, file.size, 200
    if wanted is not None and not head and only_if in (None, tag, date):
        try:
            part = span(wanted, file.size)
        except Problem:
            file.close()
            raise
        if part is not None:
            start, end = part
            status = 206
            headers["content-range"] = f"bytes {start}-{end - 1}/{file.size}"
    headers["content-length"] = str(end - start)
    if head or start == end:
        file.close()
        return Response(b"", status, headers)
    try:
        files.begin_transfer()
    except ValueError as error:
        file.close()
        raise problem("too-many-requests", str(error)) from error
    return Transfer(_chunks(files, file, start, end), status, headers, lambda: files.end_transfer(file))


def span(text: str, size: int) -> tuple[int, int] | None:
    """The part of a file that `Range` names, its end excluded. None: all of it, as several parts or units that nobody
    knows are not honoured (RFC 9110 §14.2); a Problem: there is no such part."""
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
        raise problem("range", f"it has {size} bytes", {"content-range": f"bytes */{size}"})
    return start, end


async def _chunks(files: Files, file: OpenFile, start: int, end: int) -> AsyncIterator[bytes]:
    while start < end:
        data = await settled(files.run(lambda: file.read(start, min(CHUNK, end - start))))  # noqa: B023
        if not data:
            raise OSError("the file became shorter while it was sent")
        start += len(data)
        yield data


async def _later(files: Files, work: Callable[[], Any]) -> Any:
    """What a thread finds; a Problem if there is nothing of the kind."""
    try:
        return await settled(files.run(work))
    except NotShared as error:
        raise problem("not-found", str(error).removeprefix(SCHEME)) from error
    except ValueError as error:  # the disk cannot keep up
        raise problem("too-many-requests", str(error)) from error


def _open(files: Files, path: str) -> Opened:
    """In a thread."""
    url = SCHEME + path
    try:
        file = files.folder.open(url)
    except NotShared:
        try:
            return Opened(None, 0.0, _listed(files, path))
        except NotShared:
            pass  # the first one says more
        raise
    return Opened(file, os.fstat(file.fd).st_mtime, [])


def _listed(files: Files, path: str) -> list[dict[str, Any]]:
    return [entry._asdict() for entry in files.folder.entries(SCHEME + path)]
