"""Foreign WMP peers: bare pyzmq sockets, written from docs/reference/wmp-framing.md alone. Nothing here imports
polydomo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import cbor2
import zmq

from tests.support.peers import PATIENCE, Peer, Silence, Task

READY, WAKE, GIVE, TAKE, NO, DONE, STATUS, CANCEL = range(1, 9)


class Said(NamedTuple):
    """A message. `to`: the frames before the first empty one, including the identity that a ROUTER adds."""

    to: list[bytes]
    command: int
    source: list[bytes]
    headers: dict[str, Any]
    payload: list[bytes]


def frames(
    command: int,
    headers: dict[str, Any],
    payload: Sequence[bytes] = (),
    to: Sequence[bytes] = (),
    source: Sequence[bytes] = (),
) -> list[bytes]:
    return [*to, b"", b"WMP1", bytes((command,)), *source, b"", cbor2.dumps(headers), *payload]


def read(message: list[bytes]) -> Said:
    first = message.index(b"")
    assert message[first + 1] == b"WMP1"
    second = message.index(b"", first + 3)
    return Said(
        message[:first],
        message[first + 2][0],
        message[first + 3 : second],
        cbor2.loads(message[second + 1]),
        message[second + 2 :],
    )


class WmpWorker(Peer):
    """A DEALER connected to one manager or device, with one job slot."""

    def __init__(
        self,
        endpoint: str,
        *roles: bytes,
        identity: bytes = b"",
        context: zmq.Context[Any] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(endpoint, zmq.DEALER, identity=identity, context=context)
        self.about = {"roles": [role.decode() for role in roles], **more}
        self.path: list[bytes] = []
        self.job: Any = None
        self.ready()

    def ready(self) -> None:
        self.say(READY, self.about, path=())

    def say(
        self,
        command: int,
        headers: dict[str, Any],
        payload: Sequence[bytes] = (),
        path: Sequence[bytes] | None = None,
    ) -> None:
        self.send(*frames(command, headers, payload, to=self.path if path is None else path))

    def hear(self, timeout: float = PATIENCE) -> Said:
        return read(self.recv(timeout))

    def take(self, timeout: float = PATIENCE) -> Task:
        """Receive a job, from WAKE to TAKE; NOs on the way are skipped."""
        while True:
            said = self.hear(timeout)
            self.path = said.source
            if said.command == WAKE:
                self.say(GIVE, {"wake": said.headers["wake"]})
            elif said.command == TAKE:
                self.job = said.headers["job"]
                return Task(str(self.job).encode(), said.payload, said.headers["role"].encode())
            elif said.command == NO:
                self.ready()

    def partial(self, task: Task, body: Sequence[bytes]) -> None:
        self.say(STATUS, {"job": task.address.decode()}, body)

    def reply(self, task: Task, body: Sequence[bytes]) -> None:
        self.say(DONE, {"job": task.address.decode(), "status": 200}, body)
        self.ready()

    def fail(self, task: Task, message: str) -> None:
        self.say(DONE, {"job": task.address.decode(), "status": 500, "error": message}, [message.encode()])
        self.ready()


class WmpManager:
    """A ROUTER that dispatches jobs, one worker or device at a time."""

    def __init__(self, endpoint: str = "tcp://127.0.0.1:*") -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.bind(endpoint)
        self.endpoint = self.socket.last_endpoint.decode()
        self.wakes = 0

    def hear(self, command: int, timeout: float = PATIENCE) -> Said:
        """Return the next message of this kind; others are dropped. `to` and `source` together are its full path."""
        while self.socket.poll(timeout * 1000):
            said = read(self.socket.recv_multipart())
            if said.command == command:
                return said
        raise Silence(f"no {command} within {timeout} s")

    def say(self, to: Said, command: int, headers: dict[str, Any], payload: Sequence[bytes] = ()) -> None:
        self.socket.send_multipart(frames(command, headers, payload, to=[*to.to, *to.source]))

    def give(self, role: str, body: Sequence[bytes], job: str, **more: Any) -> Said:
        """Dispatch a job to the next ready peer and return the message with which it was taken."""
        ready = self.hear(READY)
        self.wakes += 1
        self.say(ready, WAKE, {"wake": self.wakes, "roles": [role]})
        give = self.hear(GIVE)
        assert give.headers == {"wake": self.wakes}
        headers = {"wake": self.wakes, "manager": "raw", "job": job, "role": role, **more}
        self.say(give, TAKE, headers, body)
        return give

    def close(self) -> None:
        self.context.destroy(0)
