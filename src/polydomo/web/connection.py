"""One HTTP/1.1 connection: uvicorn's parser and request cycle, with bounds around them.

uvicorn trusts its peers more than a broker on a network may. Its protocol is bounded here in time (a request's head,
the pace of a body, idle connections, unread responses), in size (the head, trailers and chunk extensions; handlers
bound bodies), in memory (all connections report to the server's budget) and in number (connections, pipelined
requests). A peer that exceeds a limit gets a problem document, if a response can still be sent, and its connection is
closed; other peers are not affected. All timeouts are checked in one periodic pass over the connections, so a request
costs no timer.

The overridden parts of uvicorn are not its public interface: `tests/web/test_uvicorn.py` checks the assumptions made
here, and pyproject.toml pins the versions for which they hold.
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

from polydomo.core.failure import NO_MEMORY
from polydomo.core.principals import ANONYMOUS, Principal
from polydomo.server.admission import site_of
from polydomo.server.identification import BY_KEY, Identification
from polydomo.server.pace import Pace
from polydomo.server.peer_log import address_of
from polydomo.web.api.origin_guard import AUTHORITY
from polydomo.web.api.problems import problem
from polydomo.web.callers import PRINCIPAL
from polydomo.web.connection_admission import ConnectionAdmission
from polydomo.web.memory import ConnectionMemory
from polydomo.web.proxies import Proxies

if TYPE_CHECKING:
    from uvicorn.config import Config

    from polydomo.server.server import BrokerServer

# Bytes of the request line and all headers. Trailers and other framing of the body may take as much again.
HEAD_MAX: Final = 64 * 1024

# Framing bytes per chunk: its size, line breaks, a short extension (as in Go's net/http).
CHUNK_FRAMING_MAX: Final = 18

# Requests of one connection that may wait for the active one; beyond that, reading is paused.
PIPELINE_MAX: Final = 16

# Seconds for active requests when the broker stops, and for a peer to read the last response before the connection is
# aborted.
CLOSE_TIMEOUT: Final = 1.0

# Connections that may stay open for that long; beyond that, they are closed right after the response.
LINGERING_MAX: Final = 256

# TCP keep-alive: seconds before the first probe and between two, and the number of unanswered probes. A polling worker
# or a client that follows a job may be silent for long; without probes a dead machine would never be noticed.
KEEPALIVE: Final = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}

# Key of the ASGI scope under which a handler finds its connection.
SCOPE: Final = "polydomo.connection"


class HttpServerState(ServerState):
    """State that all connections share."""

    def __init__(self, server: BrokerServer) -> None:
        super().__init__()
        self.server = server
        self.admission: ConnectionAdmission[HttpConnection] = ConnectionAdmission(
            server.settings.http.connections
        )
        self.proxies = Proxies([])
        self.refused = 0  # connections beyond the limit
        self.cut = 0  # connections that exceeded another limit
        self.lingering = 0  # half-closed connections
        self.closing = False

    def configure(self) -> None:
        """Apply the settings in effect; they change when the broker reloads them."""
        http = self.server.settings.http
        self.admission.limit = http.connections
        if self.proxies.networks != http.trusted_proxies:
            self.proxies = Proxies(http.trusted_proxies)


class HttpConnection(HttpToolsProtocol):
    """One client's connection.

    A handler may set `on_disconnect`, which is called when its response can no longer be delivered, and `interactive`,
    if the client may wait for output before it sends more of the body; such a handler calls `reset_pace` after each
    step.
    """

    def __init__(
        self,
        config: Config,
        server_state: HttpServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        listener: str = "",
        identification: Identification = BY_KEY,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.state = server_state
        self.listener = listener
        self.identification = identification
        self.principal = ANONYMOUS  # of requests that name no other
        self.address = ""
        self.on_disconnect: Callable[[], object] | None = None
        self.interactive = False
        self._counted: Principal | None = None  # the principal whose connections this one is among
        self.memory = ConnectionMemory(server_state.server.budget, self._out_of_memory)
        self._output: ConnectionOutput | None = None
        self._proxied = False  # the peer is a trusted proxy
        self._received_at = 0.0
        self._head_started = 0.0  # when the first byte of an incomplete head arrived; 0: none
        self._head_size = 0
        self._in_body = False
        self._framing_excess = 0  # framing bytes of the body beyond the usual for its chunks and bytes
        self._trailers = 0  # bytes
        self._body_received = 0  # bytes since the last check
        self._send_pace: Pace | None = None  # of the body, from the first check on
        self._unread = 0  # bytes of responses that were unread at the last check
        self._read_pace: Pace | None = None  # of responses that were unread at a check
        self._head_too_large = False  # or the trailers
        self._active: RequestResponseCycle | None = None  # the request that is being answered
        self._responded_at = 0.0  # when the last response ended, or the connection began
        self._input_closed = False  # no more input is processed
        self._lingering = False  # half-closed: input is dropped until the peer closes

    # Events of the transport and the parser

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._received_at = self._responded_at = self.loop.time()
        self.address = address_of(transport)
        self.principal = self.identification.principal_of(transport)
        self._output = ConnectionOutput(self)
        _enable_keepalive(transport)
        self._proxied = self.state.proxies.trusts(self.client)
        if not self.state.admission.admit(self, self._site()):
            self.state.refused += 1
            self.refuse("too-many-connections", "the limit http.connections is reached")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._input_closed = True
        if self._lingering:
            self.state.lingering -= 1
        self.state.admission.leave(self)
        if self._counted is not None:
            self._counted.connections -= 1
            self._counted = None
        self.memory.close()
        disconnected = self._abandon_requests()
        if disconnected is not None:
            disconnected()
        for cycle, _ in self.pipeline:
            cycle.disconnected = True
        self.pipeline.clear()
        # Break reference cycles: the garbage collector would free the connection and its last request late. A running
        # handler has its own references.
        self.cycle = self.scope = self.headers = self._active = self._output = None  # type: ignore[assignment]

    def count_for(self, principal: Principal) -> bool:
        """Count the connection for the principal of its latest request. False: that may have no more."""
        if self._counted is principal:
            return True
        quota = principal.quota
        if quota is not None and principal.connections >= quota.connections:
            return False
        if self._counted is not None:
            self._counted.connections -= 1
        principal.connections += 1
        self._counted = principal
        return True

    def data_received(self, data: bytes) -> None:
        if self._input_closed:
            return
        self._received_at = now = self.loop.time()
        if self._in_body:
            self._framing_excess += len(data)  # on_body subtracts the body
            self._body_received += len(data)
        elif not self._head_started:
            self._head_started = now
            self._head_size = 0
        self._head_size += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # the upgrade is ignored; data in the new protocol is not read
        except httptools.HttpParserError as error:
            self._fail_parsing(error)
            return
        if self._head_too_large or (self._head_started and self._head_size > HEAD_MAX):
            self.refuse(
                "head-too-large", f"a request's head has at most {HEAD_MAX} bytes, and so have its trailers"
            )
        elif self._in_body and self._framing_excess > HEAD_MAX:
            self.refuse("head-too-large", f"trailers and chunk extensions have at most {HEAD_MAX} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._head_started:  # it arrived together with the end of the previous request
            self._head_started = self._received_at
            self._head_size = 0
        self.scope[SCOPE] = self  # type: ignore[typeddict-unknown-key]
        self.scope[PRINCIPAL] = self.principal  # type: ignore[typeddict-unknown-key]

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:
            super().on_header(name, value)
            return
        # Trailers are dropped: they must not be merged into headers (RFC 9110 §6.5.1).
        self._trailers += len(name) + len(value) + 4
        if self._trailers > HEAD_MAX:
            self._head_too_large = True

    def on_headers_complete(self) -> None:
        self._head_started = 0.0
        self._in_body = True
        self._framing_excess = self._trailers = 0
        self._send_pace = None
        if self._head_size > HEAD_MAX and self._head() > HEAD_MAX:
            self._head_too_large = True
        if self._input_closed or self._head_too_large:
            return
        if not self.url.startswith(b"/"):
            self.scope[AUTHORITY] = _authority(self.url)  # type: ignore[typeddict-unknown-key]
        if self._proxied:
            self._use_forwarded_client(self.state.proxies.client(self.headers, self.client))
        super().on_headers_complete()
        self.cycle.transport = self._output  # type: ignore[assignment]

    def on_chunk_header(self) -> None:
        """Count a chunk (called by the parser)."""
        self._framing_excess = max(0, self._framing_excess - CHUNK_FRAMING_MAX)

    def on_body(self, body: bytes) -> None:
        self._framing_excess = max(0, self._framing_excess - 3 * len(body))
        if self._input_closed or self._head_too_large:
            return
        super().on_body(body)
        if not self.cycle.response_complete:
            self.memory.body += len(body)
            self.memory.report()

    def on_message_complete(self) -> None:
        self._in_body = False
        if not self._input_closed and not self._head_too_large:
            super().on_message_complete()
            if self._active is not None:
                self.state.admission.set_busy(self)

    def on_response_complete(self) -> None:
        """Start the next request. Unlike uvicorn, read more only after all received requests were started."""
        self.state.total_requests += 1
        self.on_disconnect = None
        self.interactive = False
        self._active = None
        self._responded_at = self.loop.time()
        self.release_body()
        self.hold(0)
        if self.transport.is_closing() or self._lingering:
            return
        self.state.admission.set_idle(self)
        if self._proxied:
            self.state.admission.move(self, self._site())
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._input_closed or self.state.closing:
            self.transport.close()
        if len(self.pipeline) < PIPELINE_MAX and not self.flow.write_paused:
            self.flow.resume_reading()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start a request. Unlike uvicorn, wait until the peer has read the last response: only one is unread."""
        if self.flow.write_paused:
            self.flow.pause_reading()
            self.pipeline.append((cycle, app))
            return
        self._active = cycle
        if not cycle.more_body:
            self.state.admission.set_busy(self)
        super()._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.transport.get_write_buffer_size()
        # A chunk is in memory until all of it is sent.
        self.memory.unread = max(self._unread, self._output.written if self._output is not None else 0)
        self.memory.report()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._read_pace is not None:
            self._reads_fast_enough(self._read_pace, self.loop.time())
        self.memory.unread = 0
        self.memory.report()
        if self._active is None and not self.is_closed:
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
            if not self._input_closed:
                self.flow.resume_reading()

    # For handlers

    @property
    def is_closed(self) -> bool:
        """Return whether no more can be sent."""
        return self._lingering or self.transport.is_closing()

    def hold(self, size: int) -> None:
        """Record the bytes that the handler holds for the peer, beside the request's body."""
        if size != self.memory.kept:
            self.memory.kept = size
            self.memory.report()

    def release_body(self) -> None:
        """Record that the request's body was freed, or is counted elsewhere from now on."""
        if self.memory.body:
            self.memory.body = 0
            self.memory.report()

    def reset_pace(self) -> None:
        """Restart the measurement of the body's pace; called by interactive handlers."""
        self._send_pace = None

    # Limits and closing

    def check_limits(self, now: float) -> None:
        """Refuse or close the connection if a timeout has expired."""
        settings = self.state.server.settings
        if self._lingering:
            return
        if not self.flow.write_paused:
            self._read_pace = None
        elif self._read_pace is None:
            self._read_pace = Pace(settings.limits.stalled, now)
        elif not self._reads_fast_enough(self._read_pace, now):
            self._abort(f"the peer read almost nothing of its response for {settings.limits.stalled:g} s")
            return
        idle = self._active is None and not self.pipeline
        if self._in_body:
            limit = settings.http.patience if self.interactive else settings.http.slow
            if self.flow.read_paused:
                self._send_pace = None
            elif self._send_pace is None:
                self._send_pace = Pace(limit, now)
            elif not self._send_pace.keeps_up(limit, now, self._body_received):
                if idle:  # the rest of a body that no handler reads
                    self._abort("the rest of the request's body is too slow")
                else:
                    self.refuse("too-slow", f"almost nothing of the request's body arrived for {limit:g} s")
            self._body_received = 0
        elif idle and self._head_started:
            if now - self._head_started > settings.http.slow:
                self.refuse("too-slow", f"a request's head must arrive within {settings.http.slow:g} s")
        elif idle and now - max(self._responded_at, self._received_at) > settings.http.idle:
            self._close()

    def refuse(self, reason: str, detail: str) -> None:
        """Close the connection, with a problem document unless a response has been started."""
        if not self.transport.is_closing() and not self._lingering:
            self.state.cut += 1
            self._input_closed = True
            self.state.server.log_peer("HTTP connection refused", self, f"{reason}: {detail}")
            if self._active is None or not self._active.response_started:
                self.transport.write(_raw_response(reason, detail))
            disconnected = self._abandon_requests()
            if disconnected is not None:  # later: the memory budget may call this from within the core
                self.loop.call_soon(disconnected)
            self.linger()

    def cut(self, reason: str) -> None:
        """Close the connection to make room; called by the admission."""
        self.refuse("too-many-connections", reason)

    def linger(self) -> None:
        """Half-close the connection: if it were closed while the peer sends, the peer would not see the response."""
        if self._lingering or self.transport.is_closing():
            return
        self._input_closed = True
        self.state.admission.leave(self)
        if self.state.lingering >= LINGERING_MAX:
            self._close()
            return
        self._lingering = True
        self.state.lingering += 1
        self.flow.resume_reading()
        self.transport.write_eof()
        self.loop.call_later(CLOSE_TIMEOUT, self.transport.abort)

    def finish(self) -> None:
        """Close the connection after the active request: the broker stops."""
        if self.cycle is None or self.cycle.response_complete:
            self._close()
        else:
            self.cycle.keep_alive = False
            for cycle, _ in self.pipeline:
                cycle.keep_alive = False

    def _out_of_memory(self, reason: str) -> None:
        """Close the connection to free memory; no problem document is added to an unread response."""
        if self.flow.write_paused:
            self._abort(reason)
        else:
            self.refuse(NO_MEMORY, reason)

    def _site(self) -> str:
        """Return the address for admission. Connections of a trusted proxy do not share one."""
        return f"proxied {id(self)}" if self._proxied else site_of(self.client, self.listener)

    def _use_forwarded_client(self, client: str) -> None:
        """Attribute a trusted proxy's request to the proxy's client."""
        self.scope["client"] = (client, 0)
        proxy = address_of(self.transport)
        self.address = f"{client} via {proxy}"
        self.state.admission.move(self, site_of((client, 0), self.listener))

    def _reads_fast_enough(self, pace: Pace, now: float) -> bool:
        """Return whether the peer reads its response fast enough."""
        left = self.transport.get_write_buffer_size()
        read = max(0, self._unread - left)
        self._unread = left
        return pace.keeps_up(self.state.server.settings.limits.stalled, now, read)

    def _fail_parsing(self, error: Exception) -> None:
        """Refuse input that is not HTTP, after complete requests before it are answered."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            self._input_closed = True
            self.flow.pause_reading()
            cycle.keep_alive = False
        else:
            self.refuse("malformed", f"not an HTTP/1.1 request: {error}")

    def _head(self) -> int:
        """Return the approximate bytes of the head."""
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _abandon_requests(self) -> Callable[[], object] | None:
        """Free the bodies of active requests and return the callback for their disconnection."""
        for cycle in (self.cycle, self._active):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.body = bytearray()
                cycle.message_event.set()
        disconnected = self.on_disconnect
        self.on_disconnect = None
        return disconnected

    def _abort(self, reason: str) -> None:
        """End the connection at once; unsent data is lost."""
        if not self._input_closed:
            self.state.cut += 1
            self.state.server.log_peer("HTTP connection cut", self, reason)
        self._input_closed = True
        self.transport.abort()

    def _close(self) -> None:
        """Close the connection; what the peer has not read within CLOSE_TIMEOUT is lost."""
        self._input_closed = True
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(CLOSE_TIMEOUT, self.transport.abort)


class ConnectionOutput:
    """Transport of a request's response: records the last write, and closes the connection so that a peer that still
    sends its body sees the response."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection
        self._write = connection.transport.write
        self.is_closing = connection.transport.is_closing
        self.written = 0  # bytes of the last chunk

    def write(self, data: bytes) -> None:
        self.written = len(data)
        self._write(data)

    def close(self) -> None:
        if self._connection._in_body:
            self._connection.linger()
        else:
            self._connection.transport.close()


def connection_of(scope: Any) -> HttpConnection:
    """Return the connection of a request."""
    found: HttpConnection = scope[SCOPE]
    return found


def _authority(url: bytes) -> bytes:
    """Return the authority of an absolute request target (RFC 9112 §3.2.2); empty for any other form."""
    _, separator, rest = url.partition(b"://")
    return rest.partition(b"/")[0].partition(b"?")[0] if separator else b""


def _enable_keepalive(transport: asyncio.Transport) -> None:
    made = transport.get_extra_info("socket")
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        option = getattr(socket, name, None)  # not every system has all of them
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)


def _raw_response(reason: str, detail: str) -> bytes:
    """Return a complete response, for requests that reach no handler."""
    response = problem(reason, detail, {"connection": "close"}).response()
    lines = [STATUS_LINE[response.status_code], b"date: ", formatdate(usegmt=True).encode(), b"\r\n"]
    for name, value in response.raw_headers:
        lines += (name, b": ", value, b"\r\n")
    return b"".join([*lines, b"\r\n", bytes(response.body)])
