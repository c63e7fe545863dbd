"""Bulk requests: one line of JSON per job, and one line per result as the jobs end.

An input line is `{"body": any JSON}`, or `text`, `base64` or `frames` instead of `body` (`body_json`); optional members
are an `id` that is repeated in the output, a `key`, and the options of a single job. An output line is `{"line": 1,
"id": …, "ok": true, "body": …}`, or `"ok": false` and the `problem`. Output lines are in the order in which jobs end.

At most `window` jobs are unfinished, where a job counts until its output line was written to the connection. A client
that does not read, or slow workers, therefore pause the reading of the request, and a million lines need the memory of
a few hundred. A malformed line yields a problem, and the next line is read.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from polydomo.core.names import parse_name
from polydomo.core.pieces import unpack
from polydomo.core.tracked_job import Options
from polydomo.dialects import options as job_options
from polydomo.web.api import request_options
from polydomo.web.api.body_json import NAMES as MEMBERS
from polydomo.web.api.body_json import body_from_json
from polydomo.web.api.openapi import failing, request_body, text_response
from polydomo.web.api.problems import HttpProblem, problem
from polydomo.web.api.responses import outcome_to_json, piece_to_json
from polydomo.web.api.schemas import TEXT
from polydomo.web.callers import caller_name
from polydomo.web.clients import WebClient, WebClients
from polydomo.web.connection import HttpConnection, connection_of
from polydomo.web.pending import PendingJob
from polydomo.web.waiting import Wakeup

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

NDJSON: Final = "application/x-ndjson"

# Unfinished jobs, by default and at most.
WINDOW: Final = 256
WINDOW_MAX: Final = 10_000

_ID_MAX: Final = 1000

_PARAMETERS: Final = [request_options.SERVICE, *request_options.OPTIONS]
_INPUT: Final = {NDJSON: {"schema": TEXT, "example": '{"id": 1, "body": {"name": "Ada"}}\n'}}
_RESULTS: Final = text_response(
    "A line for each job, in the order in which jobs end.",
    NDJSON,
    '{"line": 1, "id": 1, "ok": true, "body": {"name": "Ada"}}\n',
)


def make_router(server: BrokerServer, clients: WebClients) -> APIRouter:
    """Return the route for bulk requests."""
    router = APIRouter(prefix="/v1", tags=["jobs"], default_response_class=Response)

    @router.post(
        "/services/{service:path}/bulk",
        summary="Submit many jobs",
        responses=failing("malformed", "draining") | _RESULTS,
        openapi_extra={"parameters": _PARAMETERS, **request_body("a JSON object on each line", _INPUT)},
    )
    async def bulk(
        request: Request,
        window: Annotated[
            int, Query(description="limit of unfinished jobs", ge=1, le=WINDOW_MAX, examples=[WINDOW])
        ] = WINDOW,
    ) -> Response:
        """Submit a job for each line. Options in the query apply to every line that has none of its own."""
        scope = request.scope
        headers = request_options.headers_of(scope)
        durable = server.settings.http.durable and server.store is not None
        options = request_options.options_of(scope["query_string"], {}, durable, ("window",))
        client = clients.get(request_options.client_of(scope, headers), caller_name(scope))
        if server.broker.accounting.draining:
            raise problem("draining", "the broker accepts no new jobs")
        service = parse_name(scope["path_params"]["service"])
        return BulkResponse(server, connection_of(scope), client, service, options, window)

    return router


class BulkResponse(Response):
    """The response to one request: one task reads lines and submits jobs, the request's task writes results."""

    def __init__(
        self,
        server: BrokerServer,
        connection: HttpConnection,
        client: WebClient,
        service: bytes,
        options: Options,
        window: int,
    ) -> None:
        super().__init__(None, 200, {"cache-control": "no-store", "x-accel-buffering": "no"}, NDJSON)
        del self.headers["content-length"]
        self.server = server
        self.client = client
        self.service = service
        self.options = options
        self.window = window
        self.outstanding = 0  # submitted jobs whose output line is not written
        self.pending: dict[PendingJob, tuple[int, Any]] = {}  # with their lines' numbers and ids
        self._connection = connection
        self._out: list[bytes] = []
        self._in_bytes = 0  # of lines that are not submitted
        self._out_bytes = 0  # of output lines that are not written
        self._read_all = False
        self._closed = False  # the peer has disconnected, or all is written
        self._writer = Wakeup(server.loop)
        self._reader = Wakeup(server.loop)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._connection.interactive = True  # a client may wait for output before it sends the next line
        self._connection.on_disconnect = self._close
        reader = self.server.loop.create_task(self._read(receive))
        await asyncio.sleep(0)  # `100 Continue` must be sent first
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while not self._closed:
                lines = self._out
                if lines:
                    self._out = []
                    data = b"".join(lines)
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                    self.outstanding -= len(lines)
                    self._count(self._in_bytes, self._out_bytes - len(data))
                    self._reader.wake()
                elif self._read_all and not self.pending:
                    break
                else:
                    await self._writer.wait()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._close()
            reader.cancel()

    async def _read(self, receive: Receive) -> None:
        """Read lines and submit jobs."""
        lines = LineSplitter(self.server.settings.limits.message_bytes)
        number = 0
        try:
            more = True
            while more and not self._closed:
                message = await receive()
                if message["type"] == "http.disconnect":
                    self._close()
                    return
                more = message.get("more_body", False)
                data = message.get("body", b"")
                self._connection.release_body()
                self._count(lines.held + len(data), self._out_bytes)
                for line in lines.feed(data, not more):
                    number += 1
                    if line is None or line.strip():
                        await self._wait_for_window()
                        if self._is_closed():
                            return
                        await self._submit(number, line)
                self._count(lines.held, self._out_bytes)
        finally:
            self._read_all = True
            self._writer.wake()

    async def _wait_for_window(self) -> None:
        while not self._is_closed() and self.outstanding >= self.window:
            await self._reader.wait()
        self.outstanding += 1

    async def _submit(self, number: int, line: bytes | None) -> None:
        self._connection.reset_pace()
        try:
            if line is None:
                raise problem(
                    "too-large", f"a line has at most {self.server.settings.limits.message_bytes} bytes"
                )
            line_id, body, options = _parse_line(line, self.options)
        except HttpProblem as error:
            self._write(
                number, error.members.pop("line_id", None), {"ok": False, "problem": error.document()}
            )
            return
        # The limit is shared by all requests of the client.
        while not self.client.has_room and not self._is_closed():
            await self.client.wait_for_room(self.server.settings.http.patience)
        if self._is_closed():
            return
        pending = self.client.submit(self.service, body, options)
        self.pending[pending] = (number, line_id)
        if pending.ended is not None:
            self._ended(pending)
        else:
            pending.on_end = self._ended

    def _ended(self, pending: PendingJob) -> None:
        found = self.pending.pop(pending, None)
        if found is None or self._closed:
            return
        result = pending.ended
        assert result is not None
        self.server.broker.store_events.forget_result(pending.uid)
        if result.gathered and result.failure is None:
            answers = [piece_to_json(piece) for piece in unpack(result.body or b"")]
            self._write(*found, {"ok": True, "answers": answers})
        else:
            self._write(*found, outcome_to_json(result.body, result.failure))

    def _write(self, number: int, line_id: Any, members: dict[str, Any]) -> None:
        known = {"line": number} if line_id is None else {"line": number, "id": line_id}
        line = msgspec.json.encode(known | members) + b"\n"
        self._out.append(line)
        self._count(self._in_bytes, self._out_bytes + len(line))
        self._connection.reset_pace()
        self._writer.wake()

    def _count(self, in_bytes: int, out_bytes: int) -> None:
        """Report to the memory budget."""
        self._in_bytes = in_bytes
        self._out_bytes = out_bytes
        if not self._closed:
            self._connection.hold(in_bytes + out_bytes)

    def _is_closed(self) -> bool:
        return self._closed

    def _close(self) -> None:
        """Abandon the remaining jobs."""
        if self._closed:
            return
        self._closed = True
        for pending in list(self.pending):
            pending.abandon()
        self.pending.clear()
        self._out.clear()
        self._writer.wake()
        self._reader.wake()


class LineSplitter:
    """Splitter of chunks into lines. A line longer than `most` is returned as None, and its rest is skipped."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._rest = bytearray()
        self._skipping = False

    @property
    def held(self) -> int:
        """Return the number of bytes of the incomplete line."""
        return len(self._rest)

    def feed(self, data: bytes, last: bool) -> list[bytes | None]:
        """Return the lines that this chunk completes; after the `last` chunk, also the rest."""
        found: list[bytes | None] = []
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._append(part, found)
            if not self._skipping:
                found.append(bytes(self._rest))
            self._rest.clear()
            self._skipping = False
        self._append(rest, found)
        if last and self._rest:
            found.append(bytes(self._rest))
            self._rest.clear()
        return found

    def _append(self, part: bytes, found: list[bytes | None]) -> None:
        if self._skipping:
            return
        self._rest += part
        if len(self._rest) > self.most:
            found.append(None)
            self._skipping = True
            self._rest.clear()


class _BulkLine(msgspec.Struct):
    """The id and the raw body of a line."""

    id: Any = None
    body: msgspec.Raw = msgspec.Raw(b"null")


_decoder = msgspec.json.Decoder(_BulkLine)


def _parse_line(line: bytes, defaults: Options) -> tuple[Any, bytes, Options]:
    """Return the id of a line, the job's body and its options."""
    try:
        document = msgspec.json.decode(line)
        raw = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise problem("malformed", f"the line is not a JSON object: {error}") from None
    line_id = document.get("id")
    if isinstance(line_id, (list, dict)) or len(str(line_id)) > _ID_MAX:
        raise problem("malformed", "an id is a number or a short text")
    try:
        members = {one: document[one] for one in MEMBERS if one in document}
        if "body" in members:
            members["body"] = raw.body
        body = body_from_json(members)
        given = {one: value for one, value in document.items() if one != "id" and one not in MEMBERS}
        for one in given:
            if one not in job_options.KNOWN:
                known = ", ".join(("id", *MEMBERS, *job_options.KNOWN))
                raise ValueError(f"unknown member {one[:40]!r}; known are {known}")
        options = job_options.read(given, defaults.durable)
    except ValueError as error:
        raise problem("malformed", str(error), line_id=line_id) from None
    for one in ("delay", "deadline", "wait", "timeout", "priority"):
        if one not in given:
            setattr(options, one, getattr(defaults, one))
    options.target = defaults.target
    return line_id, body, options
