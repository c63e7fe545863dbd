"""One HTTP/1.1 connection: uvicorn's parser and request cycle, with bounds around them.

uvicorn trusts its peers more than a broker on a network may. So its protocol is bounded here in time (a request's head,
the pace of a body, idle connections, responses that are not read), in size (the head, trailers and chunk extensions; a
single body is its handler's matter), in memory (all connections report to the server's budget) and in number (the crowd
of connections, pipelined requests). A peer that crosses a bound is answered with a problem document, if an answer can
still be given, and closed; other peers are not affected. One look at all connections every now and then is enough for
all times, so a request costs no timer.

These parts of uvicorn are not its public interface: `tests/web/test_uvicorn.py` checks that they are what this module
takes them for, and pyproject.toml names the versions for which that is known.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from polydomo.core.job import NO_MEMORY
from polydomo.server.admission import site_of
from polydomo.server.pace import Pace
from polydomo.server.peer_base import address_of
from polydomo.web.api.origin_guard import AUTHORITY
from polydomo.web.api.problems import problem
from polydomo.web.crowd import Crowd
from polydomo.web.memory import ConnectionMemory
from polydomo.web.proxies import Proxies

if TYPE_CHECKING:
    from uvicorn.config import Config

    from polydomo.server.server import BrokerServer

# The request line and all headers of one request. As much again may be trailers and other framing of its body.
HEAD: Final = 64 * 1024

# What a chunk may take beside its bytes: its size, line breaks, a short extension (as in Go's net/http).
CHUNK: Final = 18

# Requests of one connection that wait for the one that is being answered, before it is no longer read from.
PIPELINED: Final = 16

# How long requests that are under way may take when the broker stops, in seconds, and a peer may take to read why its
# connection ends.
GOODBYE: Final = 1.0

# Connections that may stay open for that reason; beyond that, the reason is sent and the connection closed.
LINGERING: Final = 256

# A peer that says nothing is asked by the kernel if it is there: seconds before the first time and between two, and how
# often without an answer. A worker that waits for a job, or a client that follows one, may be silent for long, and one
# whose machine was switched off would be so for ever.
PROBES: Final = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}

# Where a handler finds its connection.
SCOPE: Final = "polydomo.connection"


class State(ServerState):
    """What connections share."""

    def __init__(self, server: BrokerServer) -> None:
        super().__init__()
        self.server = server
        self.crowd: Crowd[Connection] = Crowd(server.settings.http.connections)
        self.proxies = Proxies([])
        self.refused = 0  # connections that found no place
        self.cut = 0  # connections that crossed another bound
        self.lingering = 0  # closed on our side only, for a moment
        self.closing = False

    def configure(self) -> None:
        """Take over the settings in effect; they change when the broker reloads them."""
        http = self.server.settings.http
        self.crowd.limit = http.connections
        if self.proxies.networks != http.trusted_proxies:
            self.proxies = Proxies(http.trusted_proxies)


class Connection(HttpToolsProtocol):
    """One client. A handler sets `on_gone` to be called when nobody waits for its response any more, and `patient` if
    it reads a body piece by piece as a conversation: then it calls `advance` whenever that goes on."""

    def __init__(
        self,
        config: Config,
        server_state: State,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        listener: str = "",
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.state = server_state
        self.listener = listener
        self.address = ""
        self.on_gone: Callable[[], object] | None = None
        self.patient = False
        self.memory = ConnectionMemory(server_state.server.budget, self._out_of_memory)
        self._outlet: ConnectionOutput | None = None
        self._proxied = False  # a trusted proxy speaks for others
        self._heard = 0.0  # when something came last
        self._head_began = 0.0  # when the head began that is not complete; 0: none
        self._head_size = 0
        self._body = False  # within a body
        self._excess = 0  # bytes of its framing, less what is usual for so many chunks and bytes
        self._trailers = 0  # bytes of them
        self._moved = 0  # bytes of the body since it was last looked at
        self._sends: Pace | None = None  # how fast the body comes, once it was looked at
        self._unread = 0  # bytes of responses that were unread when last looked at
        self._reads: Pace | None = None  # how fast they are read, if that took long enough to be looked at
        self._large = False  # the head or the trailers are too large
        self._active: RequestResponseCycle | None = None  # the request that is being answered
        self._answered = 0.0  # when the last response ended, or the connection began
        self._over = False  # nothing more is taken from it
        self._lingers = False  # all has been said to it; what it still sends is dropped until it hangs up

    # What happens

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._heard = self._answered = self.loop.time()
        self.address = address_of(transport)
        self._outlet = ConnectionOutput(self)
        _probe(transport)
        self._proxied = self.state.proxies.trusts(self.client)
        if not self.state.crowd.admit(self, self._site()):
            self.state.refused += 1
            self.refuse("too-many-connections", "there are as many connections as may be")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._over = True
        if self._lingers:
            self.state.lingering -= 1
        self.state.crowd.leave(self)
        self.memory.close()
        gone = self._nobody()
        if gone is not None:
            gone()
        for cycle, _ in self.pipeline:
            cycle.disconnected = True
        self.pipeline.clear()
        # Nothing may keep the connection and its last request alive in a circle: the garbage collector comes late. A
        # handler that is still running has what it needs, and is the only one to have it.
        self.cycle = self.scope = self.headers = self._active = self._outlet = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        self._heard = now = self.loop.time()
        if self._body:
            self._excess += len(data)  # what is body is taken off again
            self._moved += len(data)
        elif not self._head_began:
            self._head_began = now
            self._head_size = 0
        self._head_size += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # it is answered as if it had not asked; what it says in its new protocol is not heard
        except httptools.HttpParserError as error:
            self._garbage(error)
            return
        if self._large or (self._head_began and self._head_size > HEAD):
            self.refuse(
                "head-too-large", f"a request's head has at most {HEAD} bytes, and so have its trailers"
            )
        elif self._body and self._excess > HEAD:
            self.refuse("head-too-large", f"trailers and chunk extensions have at most {HEAD} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._head_began:  # it came together with the end of the one before
            self._head_began = self._heard
            self._head_size = 0
        self.scope[SCOPE] = self  # type: ignore[typeddict-unknown-key]

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._body:
            super().on_header(name, value)
            return
        # Trailers are dropped: they must not be taken for headers (RFC 9110 §6.5.1).
        self._trailers += len(name) + len(value) + 4
        if self._trailers > HEAD:
            self._large = True

    def on_headers_complete(self) -> None:
        self._head_began = 0.0
        self._body = True
        self._excess = self._trailers = 0
        self._sends = None
        if self._head_size > HEAD and self._head() > HEAD:
            self._large = True
        if self._over or self._large:
            return
        if not self.url.startswith(b"/"):
            self.scope[AUTHORITY] = _authority(self.url)  # type: ignore[typeddict-unknown-key]
        if self._proxied:
            self._speak_for(self.state.proxies.client(self.headers, self.client))
        super().on_headers_complete()
        self.cycle.transport = self._outlet  # type: ignore[assignment]

    def on_chunk_header(self) -> None:
        """From the parser, for each chunk."""
        self._excess = max(0, self._excess - CHUNK)

    def on_body(self, body: bytes) -> None:
        self._excess = max(0, self._excess - 3 * len(body))
        if self._over or self._large:
            return
        super().on_body(body)
        if not self.cycle.response_complete:
            self.memory.body += len(body)
            self.memory.report()

    def on_message_complete(self) -> None:
        self._body = False
        if not self._over and not self._large:
            super().on_message_complete()
            if self._active is not None:
                self.state.crowd.occupy(self)

    def on_response_complete(self) -> None:
        """Unlike uvicorn: more is read only when those requests that came already have been started."""
        self.state.total_requests += 1
        self.on_gone = None
        self.patient = False
        self._active = None
        self._answered = self.loop.time()
        self.release_body()
        self.keep(0)
        if self.transport.is_closing() or self._lingers:
            return
        self.state.crowd.vacate(self)
        if self._proxied:
            self.state.crowd.move(self, self._site())
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._over or self.state.closing:
            self.transport.close()
        if len(self.pipeline) < PIPELINED and not self.flow.write_paused:
            self.flow.resume_reading()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Unlike uvicorn: not before the peer has read the last response, so that only one is ever unread."""
        if self.flow.write_paused:
            self.flow.pause_reading()
            self.pipeline.append((cycle, app))
            return
        self._active = cycle
        if not cycle.more_body:
            self.state.crowd.occupy(self)
        super()._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.transport.get_write_buffer_size()
        # A piece is in memory until all of it is sent.
        self.memory.unread = max(self._unread, self._outlet.written if self._outlet is not None else 0)
        self.memory.report()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reads is not None:
            self._keeps_reading(self._reads, self.loop.time())
        self.memory.unread = 0
        self.memory.report()
        if self._active is None and not self.is_over:
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
            if not self._over:
                self.flow.resume_reading()

    # For handlers

    @property
    def is_over(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._lingers or self.transport.is_closing()

    def keep(self, size: int) -> None:
        """Record how many bytes a handler keeps for the peer in all, beside the request's body."""
        if size != self.memory.kept:
            self.memory.kept = size
            self.memory.report()

    def release_body(self) -> None:
        """Record that what came of the request's body is not kept any more, or counted elsewhere from now on."""
        if self.memory.body:
            self.memory.body = 0
            self.memory.report()

    def advance(self) -> None:
        """Record that a conversation with a patient handler goes on."""
        self._sends = None

    # What is done about it

    def look(self, now: float) -> None:
        """Refuse or close the connection if it is overdue."""
        settings = self.state.server.settings
        if self._lingers:
            return
        if not self.flow.write_paused:
            self._reads = None
        elif self._reads is None:
            self._reads = Pace(settings.limits.stalled, now)
        elif not self._keeps_reading(self._reads, now):
            self._abort(f"it has read next to nothing of its response for {settings.limits.stalled:g} s")
            return
        idle = self._active is None and not self.pipeline
        if self._body:
            limit = settings.http.patience if self.patient else settings.http.slow
            if self.flow.read_paused:
                self._sends = None
            elif self._sends is None:
                self._sends = Pace(limit, now)
            elif not self._sends.keeps_up(limit, now, self._moved):
                if idle:  # the rest of a body that nobody wanted
                    self._abort("the rest of its request's body is too slow")
                else:
                    self.refuse("too-slow", f"next to nothing came of the request's body for {limit:g} s")
            self._moved = 0
        elif idle and self._head_began:
            if now - self._head_began > settings.http.slow:
                self.refuse("too-slow", f"a request's head must be there within {settings.http.slow:g} s")
        elif idle and now - max(self._answered, self._heard) > settings.http.idle:
            self._part()

    def refuse(self, reason: str, detail: str) -> None:
        """End this connection, with a problem document if there is still a place for one."""
        if not self.transport.is_closing() and not self._lingers:
            self.state.cut += 1
            self._over = True
            self.state.server.log_peer("HTTP connection refused", self, f"{reason}: {detail}")
            if self._active is None or not self._active.response_started:
                self.transport.write(_answer(reason, detail))
            gone = self._nobody()
            if gone is not None:  # not from here: the core may be at work, if this is the budget's call
                self.loop.call_soon(gone)
            self.linger()

    def cut(self, reason: str) -> None:
        """From the crowd: make room."""
        self.refuse("too-many-connections", reason)

    def linger(self) -> None:
        """Close it, but only when the peer has had time to read: closed while it sends, it would not see the answer."""
        if self._lingers or self.transport.is_closing():
            return
        self._over = True
        self.state.crowd.leave(self)
        if self.state.lingering >= LINGERING:
            self._part()
            return
        self._lingers = True
        self.state.lingering += 1
        self.flow.resume_reading()
        self.transport.write_eof()
        self.loop.call_later(GOODBYE, self.transport.abort)

    def goodbye(self) -> None:
        """The broker stops."""
        if self.cycle is None or self.cycle.response_complete:
            self._part()
        else:
            self.cycle.keep_alive = False
            for cycle, _ in self.pipeline:
                cycle.keep_alive = False

    def _out_of_memory(self, reason: str) -> None:
        """From the budget: free what this connection keeps. What its peer does not read is not added to."""
        if self.flow.write_paused:
            self._abort(reason)
        else:
            self.refuse(NO_MEMORY, reason)

    def _site(self) -> str:
        """Return what counts as one address in the crowd. Connections of a trusted proxy do not share one."""
        return f"proxied {id(self)}" if self._proxied else site_of(self.client, self.listener)

    def _speak_for(self, client: str) -> None:
        """Take a request of a trusted proxy for one of its client."""
        self.scope["client"] = (client, 0)
        proxy = address_of(self.transport)
        self.address = f"{client} via {proxy}"
        self.state.crowd.move(self, site_of((client, 0), self.listener))

    def _keeps_reading(self, pace: Pace, now: float) -> bool:
        """Return whether the peer reads its response fast enough."""
        left = self.transport.get_write_buffer_size()
        read = max(0, self._unread - left)
        self._unread = left
        return pace.keeps_up(self.state.server.settings.limits.stalled, now, read)

    def _garbage(self, error: Exception) -> None:
        """What came is no HTTP. A request that was complete before is answered first."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            self._over = True
            self.flow.pause_reading()
            cycle.keep_alive = False
        else:
            self.refuse("malformed", f"this is no HTTP/1.1 request: {error}")

    def _head(self) -> int:
        """Bytes of the head, as far as it matters."""
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _nobody(self) -> Callable[[], object] | None:
        """Nobody waits for the response to what is under way: free its body, and return whom to tell."""
        for cycle in (self.cycle, self._active):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.body = bytearray()
                cycle.message_event.set()
        gone = self.on_gone
        self.on_gone = None
        return gone

    def _abort(self, reason: str) -> None:
        """End the connection at once; what was unsent is lost."""
        if not self._over:
            self.state.cut += 1
            self.state.server.log_peer("HTTP connection cut", self, reason)
        self._over = True
        self.transport.abort()

    def _part(self) -> None:
        """Close it; what it has not read within a moment is not waited for."""
        self._over = True
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(GOODBYE, self.transport.abort)


class ConnectionOutput:
    """Stands before the transport for a request's response: notes what is written, and closes the connection so that
    a peer which still sends its body sees the response."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._write = connection.transport.write
        self.is_closing = connection.transport.is_closing
        self.written = 0  # bytes of the last piece

    def write(self, data: bytes) -> None:
        self.written = len(data)
        self._write(data)

    def close(self) -> None:
        if self._connection._body:
            self._connection.linger()
        else:
            self._connection.transport.close()


def connection_of(scope: Any) -> Connection | None:
    """Return whose request it is; None where no connection is (a test's own client)."""
    found = scope.get(SCOPE)
    return found if isinstance(found, Connection) else None


def _authority(url: bytes) -> bytes:
    """Return what an absolute target names as its authority (RFC 9112 §3.2.2); empty for any other form."""
    _, separator, rest = url.partition(b"://")
    return rest.partition(b"/")[0].partition(b"?")[0] if separator else b""


def _probe(transport: asyncio.Transport) -> None:
    made = transport.get_extra_info("socket")
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in PROBES.items():
        option = getattr(socket, name, None)  # not every system has all of them
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)


def _answer(reason: str, detail: str) -> bytes:
    """A whole response, for when there is no handler to give one."""
    response = problem(reason, detail, {"connection": "close"}).response()
    lines = [STATUS_LINE[response.status_code], b"date: ", formatdate(usegmt=True).encode(), b"\r\n"]
    for name, value in response.raw_headers:
        lines += (name, b": ", value, b"\r\n")
    return b"".join([*lines, b"\r\n", bytes(response.body)])
