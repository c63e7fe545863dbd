"""Many jobs in one request: a line of JSON for each, and a line for each answer as it comes.

A line in: `{"body": any JSON}`, or instead of `body` a `text`, `base64` or `frames` (`answers`); with it, as one likes,
an `id` that stands in the answer, a `key`, and the options of a single job. A line out: `{"line": 1, "id": …, "ok":
true, "body": …}`, or `"ok": false` and the `problem`. They come in the order in which jobs end.

No more than `window` jobs are under way, and one counts until its answer has been taken by the connection. So a client
that does not read, or workers that are slow, stop the reading of the request, and a million lines need the memory of a
few hundred. A line that cannot be read is answered with a problem, and the next one is read.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from polydomo.core.extras import Options
from polydomo.core.job import Failure
from polydomo.core.names import parse_name
from polydomo.dialects import options as spoken
from polydomo.web.api import request_options
from polydomo.web.api.body_json import NAMES as MEMBERS
from polydomo.web.api.body_json import shown, unshown
from polydomo.web.api.openapi import Answers, failing
from polydomo.web.api.problems import Problem, problem, problem_of
from polydomo.web.api.responses import piece_shown
from polydomo.web.clients import Outcome, PendingJob, WebClient, WebClients
from polydomo.web.connection import Connection, connection_of

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

NDJSON: Final = "application/x-ndjson"

# Jobs under way, unless the client says another number, and at most.
WINDOW: Final = 256
WINDOW_MAX: Final = 10_000

_JOB_OPTIONS: Final = frozenset(spoken.KNOWN)
_ID_MAX: Final = 1000

_DESCRIBED: Final[dict[str, Any]] = {
    "parameters": [
        request_options.SERVICE,
        {
            "name": "window",
            "in": "query",
            "required": False,
            "description": "jobs that may be under way at once",
            "schema": {"type": "integer", "minimum": 1, "maximum": WINDOW_MAX, "default": WINDOW},
        },
        *request_options.OPTIONS,
    ],
    "requestBody": {
        "description": "a JSON object on each line",
        "required": False,
        "content": {
            NDJSON: {"schema": {"type": "string"}, "example": '{"id": 1, "body": {"name": "Ada"}}\n'}
        },
    },
}

_ANSWERED: Final[Answers] = {
    200: {
        "description": "A line for each job, in the order in which they end.",
        "content": {
            NDJSON: {
                "schema": {"type": "string"},
                "example": '{"line": 1, "id": 1, "ok": true, "body": {"name": "Ada"}}\n',
            }
        },
    }
}


def make_router(server: BrokerServer, clients: WebClients) -> APIRouter:
    """See the module's text."""
    router = APIRouter(prefix="/v1", tags=["jobs"])

    @router.post(
        "/services/{service:path}/bulk",
        summary="Submit many jobs",
        responses=failing("malformed", "draining") | _ANSWERED,
        openapi_extra=_DESCRIBED,
    )
    async def bulk(request: Request) -> Response:
        """The options in the query are those of every line that does not have its own."""
        scope = request.scope
        headers = request_options.headers_of(scope)
        durable = server.settings.http.durable and server.store is not None
        options = request_options.options_of(scope["query_string"], {}, durable, ("window",))
        window = _window(scope["query_string"])
        client = clients.of(request_options.client_of(scope, headers))
        if server.broker.draining:
            raise problem("draining", "the broker takes no new jobs")
        return Bulk(server, client, parse_name(scope["path_params"]["service"]), options, window)

    return router


class Bulk(Response):
    """One request: a task reads lines and submits them, the request's own writes what comes."""

    def __init__(
        self, server: BrokerServer, client: WebClient, service: bytes, options: Options, window: int
    ) -> None:
        super().__init__(None, 200, {"cache-control": "no-store", "x-accel-buffering": "no"}, NDJSON)
        del self.headers["content-length"]
        self.server = server
        self.client = client
        self.service = service
        self.options = options
        self.window = window
        self.outstanding = 0  # submitted, and the answer is not yet with the connection
        self.tickets: dict[PendingJob, tuple[int, Any]] = {}  # under way, with their lines' numbers and ids
        self._connection: Connection | None = None
        self._out: list[bytes] = []
        self._in_bytes = 0  # of lines that are not submitted
        self._out_bytes = 0  # of answers that the connection has not taken
        self._read_all = False
        self._gone = False
        self._wake_writer: asyncio.Future[None] | None = None
        self._wake_reader: asyncio.Future[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = self._connection = connection_of(scope)
        if connection is not None:
            connection.patient = True  # a client may wait for answers before it sends the next line
            connection.on_gone = self._left
        reader = self.server.loop.create_task(self._read(receive))
        await asyncio.sleep(0)  # a client that waits for `100 Continue` gets that first
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while not self._gone:
                lines = self._out
                if lines:
                    self._out = []
                    data = b"".join(lines)
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                    self.outstanding -= len(lines)
                    self._count(self._in_bytes, self._out_bytes - len(data))
                    _wake(self._wake_reader)
                elif self._read_all and not self.tickets:
                    break
                else:
                    self._wake_writer = self.server.loop.create_future()
                    await self._wake_writer
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._left()
            reader.cancel()

    async def _read(self, receive: Receive) -> None:
        """Lines, as they come; where they are cut into pieces is the network's choice."""
        lines = Lines(self.server.settings.limits.message_bytes)
        number = 0
        try:
            more = True
            while more and not self._gone:
                message = await receive()
                if message["type"] == "http.disconnect":
                    self._left()
                    return
                more = message.get("more_body", False)
                data = message.get("body", b"")
                if self._connection is not None:
                    self._connection.release_body()
                self._count(lines.held + len(data), self._out_bytes)
                for line in lines.feed(data, not more):
                    number += 1
                    if line is None or line.strip():
                        await self._room()
                        if not self._open():
                            return
                        await self._submit(number, line)
                self._count(lines.held, self._out_bytes)
        finally:
            self._read_all = True
            _wake(self._wake_writer)

    async def _room(self) -> None:
        while self._open() and self.outstanding >= self.window:
            self._wake_reader = self.server.loop.create_future()
            await self._wake_reader
        self.outstanding += 1

    async def _submit(self, number: int, line: bytes | None) -> None:
        said: Any = None
        if self._connection is not None:
            self._connection.advance()
        try:
            if line is None:
                raise problem(
                    "too-large", f"a line has at most {self.server.settings.limits.message_bytes} bytes"
                )
            said, body, options = _line(line, self.options)
        except Problem as error:
            self._say(number, error.members.pop("line_id", None), None, error)
            return
        while (
            self.client.full or self.client.stalled
        ) and self._open():  # others use the same name: wait for them, too
            await self.client.room(self.server.settings.http.patience)
        ticket = self.client.submit(self.service, body, options)
        if ticket.ended is not None:
            self._answer(ticket, number, said)
        else:
            self.tickets[ticket] = (number, said)
            ticket.on_end = self._ended

    def _ended(self, ticket: PendingJob) -> None:
        found = self.tickets.pop(ticket, None)
        if found is not None and not self._gone:
            self._answer(ticket, *found)

    def _answer(self, ticket: PendingJob, number: int, said: Any) -> None:
        outcome = ticket.ended
        assert outcome is not None
        failure: Failure | None = outcome.failure
        self.server.broker.lifecycle.results.drop(ticket.uid)
        self._say(number, said, outcome, None if failure is None else problem_of(failure))

    def _say(self, number: int, said: Any, outcome: Outcome | None, failed: Problem | None) -> None:
        told: dict[str, Any] = {"line": number}
        if said is not None:
            told["id"] = said
        told["ok"] = failed is None
        if failed is not None:
            told["problem"] = failed.document()
        elif outcome is not None:
            pieces = outcome.pieces
            if pieces is None:
                told |= shown(outcome.body or b"")
            else:
                told["answers"] = [piece_shown(piece) for piece in pieces]
        line = msgspec.json.encode(told) + b"\n"
        self._out.append(line)
        self._count(self._in_bytes, self._out_bytes + len(line))
        if self._connection is not None:
            self._connection.advance()
        _wake(self._wake_writer)

    def _count(self, in_bytes: int, out_bytes: int) -> None:
        """Tell the memory budget."""
        self._in_bytes = in_bytes
        self._out_bytes = out_bytes
        if self._connection is not None and not self._gone:
            self._connection.keep(in_bytes + out_bytes)

    def _open(self) -> bool:
        """Does somebody read the answers?"""
        return not self._gone

    def _left(self) -> None:
        """Nobody waits for the rest: what lives in memory is not done."""
        if self._gone:
            return
        self._gone = True
        for ticket in list(self.tickets):
            ticket.abandon()
        self.tickets.clear()
        self._out.clear()
        _wake(self._wake_writer)
        _wake(self._wake_reader)


class Lines:
    """Lines out of pieces. One that is longer than `most` comes out as None, and its end is not kept."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._rest = bytearray()
        self._skipping = False

    @property
    def held(self) -> int:
        """Bytes of a line that is not complete."""
        return len(self._rest)

    def feed(self, data: bytes, last: bool) -> list[bytes | None]:
        """The lines that are complete with this; at the `last` piece also what has no line break behind it."""
        found: list[bytes | None] = []
        start = 0
        while True:
            end = data.find(b"\n", start)
            if end < 0:
                break
            if self._skipping:
                self._skipping = False
            elif len(self._rest) + end - start > self.most:
                found.append(None)
            else:
                found.append(bytes(self._rest) + data[start:end])
            self._rest.clear()
            start = end + 1
        if not self._skipping:
            self._rest += data[start:]
            if len(self._rest) > self.most:
                found.append(None)
                self._skipping = True
                self._rest.clear()
        if last and self._rest:
            found.append(bytes(self._rest))
            self._rest.clear()
        return found


class _Line(msgspec.Struct):
    """One of them; `body` stays as it is."""

    id: Any = None
    body: msgspec.Raw = msgspec.Raw(b"null")


_as_line = msgspec.json.Decoder(_Line)


def _line(line: bytes, defaults: Options) -> tuple[Any, bytes, Options]:
    """Its id, the job's body, and its options."""
    try:
        said = msgspec.json.decode(line)
        raw = _as_line.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise problem("malformed", f"the line is no JSON object: {error}") from None
    name = said.get("id")
    if isinstance(name, (list, dict)) or len(str(name)) > _ID_MAX:
        raise problem("malformed", "an id is a number or a short text")
    try:
        members = {one: said[one] for one in MEMBERS if one in said}
        if "body" in members:
            members["body"] = raw.body
        body = unshown(members)
        given = {one: value for one, value in said.items() if one != "id" and one not in MEMBERS}
        for one in given:
            if one not in _JOB_OPTIONS:
                raise ValueError(
                    f"no member {one[:40]!r}; there are id, {', '.join(MEMBERS)}, {', '.join(spoken.KNOWN)}"
                )
        options = spoken.read(given, defaults.durable)
    except ValueError as error:
        raise problem("malformed", str(error), line_id=name) from None
    for one in ("delay", "deadline", "wait", "timeout", "priority"):
        if one not in given:
            setattr(options, one, getattr(defaults, one))
    options.target = defaults.target
    return name, body, options


def _window(query: bytes) -> int:
    found = parse_qs(query.decode("latin-1")).get("window")
    if found is None:
        return WINDOW
    try:
        window = request_options.whole("window", found[-1])
    except ValueError as error:
        raise problem("malformed", str(error)) from None
    if not 1 <= window <= WINDOW_MAX:
        raise problem("malformed", f"window is 1 to {WINDOW_MAX}, not {window}")
    return window


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
