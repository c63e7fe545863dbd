"""Foreign peers: bare pyzmq sockets that speak MDP and DCP as specified, and majortomo's own classes. Nothing here
imports polydomo.

Every client has `call(service, body)`, every worker `take()`, `partial(task, body)` and `reply(task, body)`, so that
any can be paired with any. Invalid messages are sent with `send` and received with `recv`.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import majortomo.client
import majortomo.error
import majortomo.protocol
import majortomo.worker
import zmq

# Longer than any successful step takes; a test that waits this long has failed.
PATIENCE = 20.0

Body = Sequence[bytes]
_numbers = itertools.count(1)


class Answer(NamedTuple):
    partials: list[list[bytes]]
    final: list[bytes]


class Task(NamedTuple):
    """A request as seen by its worker."""

    address: bytes
    body: list[bytes]
    service: bytes = b""
    metadata: tuple[bytes, ...] = ()


class Disconnected(Exception):
    """The broker told this worker to register again."""


class Silence(AssertionError):
    """No message arrived in time."""


class Peer:
    """A pyzmq socket with a deadline on every receive."""

    def __init__(
        self,
        endpoint: str,
        kind: int = zmq.DEALER,
        identity: bytes = b"",
        context: zmq.Context | None = None,
        ipv6: bool = False,
    ) -> None:
        self.socket: zmq.Socket = (context or zmq.Context.instance()).socket(kind)
        self.socket.linger = 0
        self.socket.ipv6 = ipv6
        if identity:
            self.socket.setsockopt(zmq.ROUTING_ID, identity)
        self.socket.connect(endpoint)
        self.endpoint = endpoint

    def send(self, *frames: bytes) -> None:
        self.socket.send_multipart(frames)

    def recv(self, timeout: float = PATIENCE) -> list[bytes]:
        if not self.socket.poll(max(timeout, 0) * 1000):
            raise Silence(f"no message within {timeout:.1f} s")
        return self.socket.recv_multipart()

    def fence(self) -> list[list[bytes]]:
        """Return everything the broker sent before its reply to a query sent now on the same connection. So the broker
        has processed all earlier messages of this connection, and what is not in the list was not sent."""
        self.send(b"MDPC02", b"\x01", b"mmi.service", b"fence")
        found = []
        while (message := self.recv()) != [b"MDPC02", b"\x03", b"mmi.service", b"404"]:
            found.append(message)
        return found

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class MdpClient(Peer):
    """RFC 18: DEALER, "MDPC02", no empty frame before it."""

    head: tuple[bytes, ...] = (b"MDPC02",)

    def request(self, service: bytes, *body: bytes) -> None:
        self.send(*self.head, b"\x01", service, *body)

    def call(self, service: bytes, body: Body, timeout: float = PATIENCE) -> Answer:
        self.request(service, *body)
        return self.answer(service, timeout)

    def answer(self, service: bytes, timeout: float = PATIENCE) -> Answer:
        partials = []
        while True:
            *head, command, name = (message := self.recv(timeout))[: len(self.head) + 2]
            assert (tuple(head), name) == (self.head, service), message
            if command == b"\x03":
                return Answer(partials, message[len(self.head) + 2 :])
            assert command == b"\x02", message
            partials.append(message[len(self.head) + 2 :])


class MdpReqClient(MdpClient):
    """A client with 0.2's commands after the empty frame that a DEALER adds like REQ."""

    head = (b"", b"MDPC02")


class Mdp01Client(Peer):
    """RFC 7 as in the ZeroMQ guide's `mdcliapi`: a REQ socket, no command frame."""

    lead: tuple[bytes, ...] = ()

    def __init__(self, endpoint: str, **more: Any) -> None:
        super().__init__(endpoint, zmq.REQ, **more)

    def request(self, service: bytes, *body: bytes) -> None:
        self.send(*self.lead, b"MDPC01", service, *body)

    def call(self, service: bytes, body: Body, timeout: float = PATIENCE) -> Answer:
        self.request(service, *body)
        return self.answer(service, timeout)

    def answer(self, service: bytes, timeout: float = PATIENCE) -> Answer:
        message = self.recv(timeout)
        head = (*self.lead, b"MDPC01", service)
        assert tuple(message[: len(head)]) == head, message
        return Answer([], message[len(head) :])


class Mdp01DealerClient(Mdp01Client):
    """The guide's asynchronous `mdcliapi2`: a DEALER that adds REQ's empty frame itself."""

    lead = (b"",)

    def __init__(self, endpoint: str, **more: Any) -> None:
        Peer.__init__(self, endpoint, **more)


class TomoClient:
    """majortomo's client."""

    def __init__(self, endpoint: str) -> None:
        self.client = majortomo.client.Client(endpoint, zmq_linger=0)
        self.client.connect()

    def call(self, service: bytes, body: Body, timeout: float = PATIENCE) -> Answer:
        self.client.send(service, *body)
        *partials, final = self.client.recv_all(timeout)
        return Answer(partials, final)

    def close(self) -> None:
        self.client.close()

    def __enter__(self) -> TomoClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class MdpWorker(Peer):
    """RFC 18's worker. `take` sends heartbeats while it waits, by default."""

    head: tuple[bytes, ...] = (b"MDPW02",)
    READY, REQUEST, PARTIAL, FINAL, HEARTBEAT, DISCONNECT = (bytes((n,)) for n in range(1, 7))

    def __init__(
        self, endpoint: str, service: bytes | None = None, *, beat: float = 1.0, **more: Any
    ) -> None:
        super().__init__(endpoint, **more)
        self.beat = beat
        if service is not None:
            self.ready(service)

    def ready(self, service: bytes) -> None:
        self.command(self.READY, service)

    def command(self, command: bytes, *frames: bytes) -> None:
        self.send(*self.head, command, *frames)

    def heard(self, timeout: float = PATIENCE) -> tuple[bytes, list[bytes]]:
        """Return the next command, whatever it is, and its frames."""
        message = self.recv(timeout)
        size = len(self.head)
        assert tuple(message[:size]) == self.head, message
        return message[size], message[size + 1 :]

    def take(self, timeout: float = PATIENCE) -> Task:
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            try:
                command, frames = self.heard(min(self.beat, left) if self.beat else left)
            except Silence:
                if left <= self.beat:
                    raise
                self.command(self.HEARTBEAT)
                continue
            if command == self.DISCONNECT:
                raise Disconnected
            if command != self.HEARTBEAT:
                assert command == self.REQUEST, (command, frames)
                assert frames[1] == b"", frames
                return Task(frames[0], frames[2:])

    def partial(self, task: Task, body: Body) -> None:
        self.command(self.PARTIAL, task.address, b"", *body)

    def reply(self, task: Task, body: Body) -> None:
        self.command(self.FINAL, task.address, b"", *body)

    def expect(self, wanted: bytes, timeout: float = PATIENCE) -> list[bytes]:
        """Return the frames of the next `wanted` command; heartbeats before it are skipped."""
        while True:
            command, frames = self.heard(timeout)
            if command == wanted:
                return frames
            assert command == self.HEARTBEAT, (command, frames)

    def fence(self) -> list[list[bytes]]:
        """Return the messages of `Peer.fence` without heartbeats, which may arrive at any time."""
        beat = [*self.head, self.HEARTBEAT]
        return [message for message in super().fence() if message != beat]


class TomoFormWorker(MdpWorker):
    """A worker in majortomo's form, for messages that its own class never sends."""

    head = (b"", b"MDPW02")


class Mdp01Worker(MdpWorker):
    """RFC 7's worker: "MDPW01" after an empty frame; one REPLY, no PARTIAL."""

    head = (b"", b"MDPW01")
    READY, REQUEST, FINAL, HEARTBEAT, DISCONNECT = (bytes((n,)) for n in range(1, 6))
    PARTIAL = b"\xff"


class TomoWorker:
    """majortomo's worker."""

    def __init__(
        self, endpoint: str, service: bytes, *, context: zmq.Context | None = None, beat: float = 1.0
    ) -> None:
        self.worker = majortomo.worker.Worker(
            endpoint, service, heartbeat_interval=beat, zmq_context=context, zmq_linger=0
        )
        self.worker.connect()

    def take(self, timeout: float = PATIENCE) -> Task:
        try:
            return Task(*self.worker.wait_for_request())
        except majortomo.error.Disconnected:
            raise Disconnected from None

    def partial(self, task: Task, body: Body) -> None:
        self.worker.send_reply_partial(task.address, list(body))

    def reply(self, task: Task, body: Body) -> None:
        self.worker.send_reply_final(task.address, list(body))

    def close(self) -> None:
        if self.worker.is_connected():
            self.worker._socket.close()


class DcpPeer(Peer):
    """DagBox DCP v1: every peer is a client, and a worker once registered. `width` is that of the type frame: one byte
    in the specification, four in DagBox itself."""

    REGISTER, PING, PONG, REQUEST, REPLY, RECONNECT = range(1, 7)

    def __init__(
        self, endpoint: str, service: bytes | None = None, *, width: int = 1, beat: float = 1.0, **more: Any
    ) -> None:
        super().__init__(endpoint, **more)
        self.width = width
        self.beat = beat
        if service is not None:
            try:
                self.register(service)
                assert self.heard() == (self.REGISTER, [service])
            except BaseException:
                self.close()
                raise

    def say(self, kind: int, *frames: bytes) -> None:
        self.send(b"", b"DGBX\x01", kind.to_bytes(self.width, "little"), *frames)

    def heard(self, timeout: float = PATIENCE) -> tuple[int, list[bytes]]:
        """Return the next message's type and the frames after the header."""
        delimiter, protocol, kind, *frames = self.recv(timeout)
        assert (delimiter, protocol, len(kind)) == (b"", b"DGBX\x01", self.width), (protocol, kind, frames)
        return int.from_bytes(kind, "little"), frames

    def expect(self, wanted: int, timeout: float = PATIENCE) -> list[bytes]:
        """Return the frames after the header of the next message, which must be of this type."""
        kind, frames = self.heard(timeout)
        assert kind == wanted, (kind, frames)
        return frames

    def register(self, service: bytes) -> None:
        self.say(self.REGISTER, service)

    def ping(self) -> None:
        self.say(self.PING)

    def request(self, service: bytes, *body: bytes, metadata: Body = (), address: Body = ()) -> None:
        self.say(self.REQUEST, service, *address, b"", *metadata, b"", *body)

    def call(self, service: bytes, body: Body, timeout: float = PATIENCE) -> Answer:
        number = b"%d" % next(_numbers)
        self.request(service, *body, metadata=[number])
        task = self.answer(timeout)
        assert task.metadata == (number,), task.metadata
        return Answer([], task.body)

    def answer(self, timeout: float = PATIENCE) -> Task:
        """Return the next REPLY, parsed."""
        return self._apart(b"", self.expect(self.REPLY, timeout))

    def take(self, timeout: float = PATIENCE) -> Task:
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            try:
                kind, frames = self.heard(min(self.beat, left))
            except Silence:
                if left <= self.beat:
                    raise
                self.ping()
                continue
            if kind == self.RECONNECT:
                raise Disconnected
            if kind != self.PONG:
                assert kind == self.REQUEST, (kind, frames)
                return self._apart(frames[0], frames[1:])

    def partial(self, task: Task, body: Body) -> None:
        raise NotImplementedError("DCP has one reply per request")

    def reply(self, task: Task, body: Body) -> None:
        """Send a reply with the request's metadata, as required of workers."""
        self.say(self.REPLY, task.address, b"", *task.metadata, b"", *body)

    def pass_on(self, task: Task, service: bytes, body: Body) -> None:
        self.request(service, *body, metadata=task.metadata, address=[task.address])

    @staticmethod
    def _apart(service: bytes, frames: list[bytes]) -> Task:
        address, delimiter, *rest = frames
        assert address, frames
        assert delimiter == b"", frames
        end = rest.index(b"")
        return Task(address, rest[end + 1 :], service, tuple(rest[:end]))


class DcpPeer4(DcpPeer):
    """A DCP peer with DagBox's own width of the type frame."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, width=4, **more)


class Serving(threading.Thread):
    """A worker in its own thread with its own context, which replies until `stop`.

    `make` opens it and is called again when the broker tells it to register again. By default it echoes requests.
    """

    def __init__(
        self, make: Callable[[zmq.Context], Any], handle: Callable[[Any, Task], None] | None = None
    ) -> None:
        super().__init__(daemon=True)
        self.context = zmq.Context()
        self.make = make
        self.handle = handle or (lambda worker, task: worker.reply(task, task.body))
        self.done = 0
        self.registrations = 0
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        while True:
            worker = None
            try:
                worker = self.make(self.context)
                self.registrations += 1
                while True:
                    task = worker.take(1e6)
                    self.handle(worker, task)
                    self.done += 1
            except Disconnected:
                continue
            except zmq.ContextTerminated:
                return
            except BaseException as error:
                self.error = error
                return
            finally:
                if worker is not None:
                    worker.close()

    def stop(self) -> None:
        """Stop the worker: terminating the context ends any wait in its socket; then the worker closes the socket, and
        `term` returns."""
        if self.error is None:
            ending = threading.Thread(target=self.context.term, daemon=True)
            ending.start()
            ending.join(PATIENCE)
            if ending.is_alive() and self.ident is not None:
                stack = sys._current_frames().get(self.ident)
                where = "".join(traceback.format_stack(stack)) if stack else "it has ended"
                raise AssertionError(f"a worker's thread does not end:\n{where}")
        self.join(PATIENCE)
        self.context.destroy(0)
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def echo(endpoint: str, service: bytes, form: Any = MdpWorker, **more: Any) -> Serving:
    """Start a worker of any form that echoes requests."""
    return Serving(lambda context: form(endpoint, service, context=context, **more))


class Manager(MdpClient):
    """A client of the broker's management services."""

    def show(self, task: str, **kwargs: Any) -> Any:
        question = json.dumps({"task": task, "kwargs": kwargs}).encode()
        return json.loads(self.call(b"mmi.service.broker", [question]).final[0])

    def offered(self, service: bytes) -> bool:
        """Return whether a service has a worker (RFC 8/MMI)."""
        return self.call(b"mmi.service", [service]).final == [b"200"]


class Peers:
    """Peers of one broker, which are all closed at the end."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.open: list[Any] = []

    def __call__(self, form: Any, *args: Any, **more: Any) -> Any:
        peer = form(self.endpoint, *args, **more)
        self.open.append(peer)
        return peer

    def echo(self, service: bytes, form: Any = MdpWorker, **more: Any) -> Serving:
        serving = echo(self.endpoint, service, form, **more)
        self.open.append(serving)
        return serving

    def close(self) -> None:
        with ExitStack() as stack:  # closes all of them, even if one raises
            for peer in self.open:
                stack.callback(peer.stop if isinstance(peer, Serving) else peer.close)


@contextmanager
def peers_of(endpoint: str) -> Iterator[Peers]:
    peers = Peers(endpoint)
    try:
        yield peers
    finally:
        peers.close()
