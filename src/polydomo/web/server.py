"""HTTP/1.1 on the broker's own loop: uvicorn's parser and request cycle, with bounds around them.

uvicorn believes its peers more than a broker on a network may. So its protocol is bounded here in time (a request's
head, silence within a body, idle connections, answers that nobody reads), in size (the head, and all bodies on their
way together; a single one is its handler's matter) and in number (connections, pipelined requests). Whoever crosses a
bound is answered with a problem document, if an answer can still be given, and closed; nobody else notices. One look at
all connections every now and then is enough for all times, so a request costs no timer.

There is no uvicorn server: its listening, signals and main loop would be in the house's way.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Final

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from polydomo.core.job import NO_MEMORY
from polydomo.errors import ConfigError
from polydomo.runtime import endpoints
from polydomo.web.api.problems import problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from polydomo.runtime.house import House

# The request line and all headers of one request.
HEAD: Final = 64 * 1024

# Requests of one connection that wait behind the one that is being answered, before it is no longer read from.
PIPELINED: Final = 16

# How often connections are looked at, at the most and at the least.
LOOK_MIN: Final = 0.05
LOOK_MAX: Final = 1.0

# How long requests that are under way may take when the broker stops, in seconds.
GOODBYE: Final = 1.0

# A peer that says nothing is asked by the kernel if it is there: seconds before the first time and between two, and how
# often without an answer. A worker that waits for a job, or a client that follows one, may be silent for long, and one
# whose machine was switched off would be so for ever.
PROBES: Final = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}

# A body that is announced with more than this, or without a size, may still be on its way when it has been answered.
LARGE: Final = 65536

# Where a handler finds its connection.
SCOPE: Final = "polydomo.connection"


class State(ServerState):
    """What connections share."""

    def __init__(self, house: House) -> None:
        super().__init__()
        self.house = house
        self.refused = 0  # connections that were one too many
        self.cut = 0  # connections that crossed another bound
        self.receiving = 0  # bytes of bodies that are not complete
        self.closing = False


class Connection(HttpToolsProtocol):
    """One client. Handlers set `on_gone` to be told that nobody waits for their answer any more, and `patient` if they
    read a body piece by piece: then silence in it is nothing bad, and `keeps` says what is in memory of it."""

    def __init__(
        self,
        config: Config,
        server_state: State,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.state = server_state
        self.on_gone: Callable[[], object] | None = None
        self.patient = False
        self._heard = 0.0  # when something came last
        self._stuck = 0.0  # since when it does not read; 0: it does
        self._head_began = 0.0  # when the head began that is not complete; 0: none
        self._head_size = 0
        self._body = False  # within a body
        self._received = 0  # bytes of it, as long as they are kept
        self._large = False  # the head is too large
        self._answered = 0.0  # when the last response ended, or the connection began
        self._over = False  # nothing more is taken from it
        self._lingers = False  # all has been said to it; what it still sends is dropped until it hangs up

    # What happens

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._heard = self._answered = self.loop.time()
        _probe(transport)
        if len(self.connections) > self.state.house.settings.http.connections:
            self.state.refused += 1
            self.refuse("too-many-connections", "there are as many connections as may be")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._over = True
        self._forget_body()
        for cycle, _ in self.pipeline:
            cycle.disconnected = True
        self.pipeline.clear()
        gone = self.on_gone
        self.on_gone = None
        if gone is not None:
            gone()

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        self._heard = now = self.loop.time()
        if not self._body and not self._head_began:
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
            self.refuse("head-too-large", f"a request's head has at most {HEAD} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._head_began:  # it came together with the end of the one before
            self._head_began = self._heard
            self._head_size = 0
        self.scope[SCOPE] = self  # type: ignore[typeddict-unknown-key]

    def on_headers_complete(self) -> None:
        self._head_began = 0.0
        self._body = True
        if self._head_size > HEAD and self._head() > HEAD:
            self._large = True
        if not self._over and not self._large:
            super().on_headers_complete()
            for name, value in self.headers:
                if name == b"transfer-encoding" or (name == b"content-length" and int(value) > LARGE):
                    self.cycle.transport = Lingering(self)  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        if self._over or self._large:
            return
        super().on_body(body)
        if not self.patient and not self.cycle.response_complete:
            self.keeps(self._received + len(body))

    def on_message_complete(self) -> None:
        self._body = False
        self._forget_body()
        if not self._over and not self._large:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Unlike uvicorn: more is read only when those requests that came already have been started."""
        self.state.total_requests += 1
        self.on_gone = None
        self.patient = False
        self._forget_body()
        self._answered = self.loop.time()
        if self.transport.is_closing() or self._lingers:
            return
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        elif self._over or self.state.closing:
            self.transport.close()
        if len(self.pipeline) < PIPELINED:
            self.flow.resume_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stuck = 0.0

    # What is done about it

    def look(self, now: float) -> None:
        """Is it overdue?"""
        settings = self.state.house.settings
        if self._lingers:
            return
        if self._stuck and now - self._stuck > settings.limits.stalled:
            self._cut()
        elif self.cycle is None or self.cycle.response_complete:
            if self._head_began:
                if now - self._head_began > settings.http.slow:
                    self.refuse("too-slow", f"a request's head must be there within {settings.http.slow:g} s")
            elif self._body:
                if now - self._heard > settings.http.slow:  # the rest of a body that nobody wanted
                    self._cut()
            elif now - max(self._answered, self._heard) > settings.http.idle:
                self._part()
        elif self._body and not self.flow.read_paused:
            limit = settings.http.patience if self.patient else settings.http.slow
            if now - self._heard > limit:
                self.refuse("too-slow", f"nothing came of the request's body for {limit:g} s")

    def refuse(self, reason: str, detail: str) -> None:
        """The end of this connection, with a word if there is still a place for one."""
        if not self.transport.is_closing():
            self.state.cut += 1
            self._over = True
            cycle = self.cycle
            if cycle is None or cycle.response_complete or not cycle.response_started:
                self.transport.write(_answer(reason, detail))
            self._nobody()
            self.linger()

    def linger(self) -> None:
        """Close it, but only when the peer has had time to read: closed while it sends, it would not see the answer."""
        if not self._lingers and not self.transport.is_closing():
            self._over = self._lingers = True
            self.flow.resume_reading()
            self.transport.write_eof()
            self.loop.call_later(GOODBYE, self.transport.abort)

    def keeps(self, size: int) -> None:
        """So much of its body is in memory until there is more. A handler that reads a body piece by piece says so
        itself."""
        self.state.receiving += size - self._received
        self._received = size
        if self.state.receiving > self.state.house.settings.limits.memory:
            self.refuse(NO_MEMORY, "all bodies that are on their way here are too large together")

    def goodbye(self) -> None:
        """The broker stops."""
        if self.cycle is None or self.cycle.response_complete:
            self._part()
        else:
            self.cycle.keep_alive = False
            for cycle, _ in self.pipeline:
                cycle.keep_alive = False

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

    def _forget_body(self) -> None:
        """It is complete, and somebody else's, or not wanted."""
        self.state.receiving -= self._received
        self._received = 0

    def _nobody(self) -> None:
        """Nobody waits for the answer to what is under way."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _cut(self) -> None:
        self.state.cut += 1
        self._over = True
        self.transport.abort()

    def _part(self) -> None:
        """Close it; what it has not read within a moment is not waited for."""
        self._over = True
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self.loop.call_later(GOODBYE, self.transport.abort)


class Lingering:
    """Stands before the transport where a body may still be on its way when the answer has been given."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.write = connection.transport.write
        self.is_closing = connection.transport.is_closing

    def close(self) -> None:
        if self._connection._body:
            self._connection.linger()
        else:
            self._connection.transport.close()


class Server:
    """Listens, looks at its connections, and closes them in the end."""

    def __init__(self, house: House, app: ASGIApp) -> None:
        self.house = house
        self.loop = house.loop
        self.state = State(house)
        self.bound: list[str] = []
        self._servers: list[asyncio.AbstractServer] = []
        self._timer: asyncio.TimerHandle | None = None
        self._config = Config(
            app,
            http=Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            proxy_headers=False,  # whoever says so is not believed: a client's name is its own matter
            log_config=None,
            access_log=False,
        )
        self._config.load()

    async def listen(self, text: str) -> None:
        """At HOST:PORT; the port may be 0 or `*` for any that is free."""
        try:
            endpoint = endpoints.parse(f"tcp://{text}", binding=True)
        except ConfigError:
            raise ConfigError(
                f"{text!r} is no place for HTTP", hint="write 127.0.0.1:8080, [::1]:8080 or *:8080"
            ) from None
        try:
            server = await self.loop.create_server(
                self._connect, endpoint.host or None, endpoint.port, backlog=1024
            )
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {text}: {error.strerror or error}", hint="is another broker running there?"
            ) from error
        self._servers.append(server)
        port = server.sockets[0].getsockname()[1]
        shown = str(endpoint._replace(host=endpoint.host or "*", port=port))
        self.bound.append(shown.removeprefix("tcp://"))
        if self._timer is None:
            self._look()

    async def close(self) -> None:
        """No new connections; those that are here have a moment for what they are at."""
        self.state.closing = True
        for server in self._servers:
            server.close()
        end = self.loop.time() + GOODBYE
        for connection in self._connections():
            connection.goodbye()
        while (self.state.connections or self.state.tasks) and self.loop.time() < end:
            await asyncio.sleep(0.01)
        for connection in self._connections():
            connection.transport.abort()
        end = self.loop.time() + GOODBYE
        while self.state.tasks and self.loop.time() < end:
            await asyncio.sleep(0.01)
        if self._timer is not None:
            self._timer.cancel()

    def show(self) -> dict[str, Any]:
        """For people."""
        state = self.state
        return {
            "bound": list(self.bound),
            "connections": len(state.connections),
            "requests": state.total_requests,
            "refused": state.refused,
            "cut": state.cut,
        }

    def _connect(self) -> Connection:
        return Connection(self._config, self.state, {}, self.loop)

    def _connections(self) -> list[Connection]:
        return [one for one in self.state.connections if isinstance(one, Connection)]

    def _look(self) -> None:
        """At every connection, and at the time of day, which every response carries (RFC 9110 §6.6.1)."""
        self.state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        now = self.loop.time()
        for connection in self._connections():
            connection.look(now)
        http = self.house.settings.http
        pause = min(http.slow, http.idle, self.house.settings.limits.stalled) / 4
        self._timer = self.loop.call_later(min(LOOK_MAX, max(LOOK_MIN, pause)), self._look)


def connection_of(scope: Any) -> Connection | None:
    """Whose request it is; None where no connection is (a test's own client)."""
    found = scope.get(SCOPE)
    return found if isinstance(found, Connection) else None


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
