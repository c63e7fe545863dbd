"""Foreign peers of every protocol with one interface: pyzmq, pynng, and Python's own HTTP client.

A client has `call(service, body) -> body`; a worker is created by `Serving` and has `take`, `reply` and `close`. Bodies
have one frame here, which all protocols support.
"""

from __future__ import annotations

import http.client
import json
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

import pynng
import zmq

from tests.support.broker import BrokerProcess
from tests.support.nfp import NfpClient, NfpWorker
from tests.support.peers import PATIENCE, DcpPeer, Disconnected, MdpClient, MdpWorker, Serving, Silence, Task
from tests.support.wmp_peer import WmpWorker

OCTETS = "application/octet-stream"


class ZmqClient:
    """A client of one of the ZeroMQ protocols."""

    def __init__(self, form: Any, broker: BrokerProcess) -> None:
        self.peer = form(broker.endpoint)

    def call(self, service: str, body: bytes) -> bytes:
        (answer,) = self.peer.call(service.encode(), [body]).final
        return bytes(answer)

    def close(self) -> None:
        self.peer.close()


class MemoClient:
    """A MemoDB client over NNG."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.socket = pynng.Req0(dial=broker.nng, recv_timeout=int(PATIENCE * 1000))

    def call(self, service: str, body: bytes) -> bytes:
        self.socket.send(memo_head(2, b"", text(service), uint(int(PATIENCE * 1000))) + body)
        answer = self.socket.recv()
        head = memo_head(3, b"")
        assert answer.startswith(head), answer[:32]
        return answer[len(head) :]

    def close(self) -> None:
        self.socket.close()


class MemoWorker:
    """A MemoDB worker over NNG. A receive that times out would cancel its request, so it never does: when the context
    is terminated, the socket is closed under it."""

    def __init__(self, url: str, service: bytes, context: zmq.Context) -> None:
        self.socket = pynng.Req0(dial=url)
        self.id = b""
        self.said = memo_head(1, b"", array(text(service.decode())))
        self.context = context
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self.context.closed:
            time.sleep(0.05)
        self.socket.close()

    def take(self, timeout: float = PATIENCE) -> Task:
        try:
            self.socket.send(self.said)
            while True:
                message = self.socket.recv()
                kind, self.id, rest = memo_split(message)
                if kind == 2:
                    return Task(b"", [rest])
                if kind == 5:
                    raise Disconnected
                assert kind == 4, message[:32]
                self.socket.send(memo_head(4, self.id))
        except pynng.Closed:
            raise zmq.ContextTerminated from None

    def reply(self, task: Task, body: Sequence[bytes]) -> None:
        """Store the reply, which is sent with the request for the next job: it is the same message."""
        self.said = memo_head(3, self.id) + body[0]

    def close(self) -> None:
        self.socket.close()


class Http:
    """A persistent HTTP connection."""

    def __init__(self, place: str) -> None:
        self.connection = http.client.HTTPConnection(place, timeout=PATIENCE)

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request(method, path, body, named)
        response = self.connection.getresponse()
        return response.status, response.headers, response.read()

    def close(self) -> None:
        self.connection.close()


class HttpClient(Http):
    """A client of our REST API."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(broker.http)

    def call(self, service: str, body: bytes) -> bytes:
        path = f"/v1/services/{quote(service, safe='')}/jobs"
        status, _, answer = self.ask("POST", path, body, Prefer="wait=10", Content_Type=OCTETS, Accept=OCTETS)
        assert status == 200, answer
        return answer


class HttpWorker(Http):
    """A worker of our REST API."""

    def __init__(self, place: str, service: bytes, context: zmq.Context) -> None:
        super().__init__(place)
        self.poll = {"services": [service.decode()], "wait": 0.2}
        self.context = context

    def take(self, timeout: float = PATIENCE) -> Task:
        while True:
            status, headers, body = self.ask(
                "POST", "/v1/workers/poll", json.dumps(self.poll).encode(), Content_Type="application/json"
            )
            if headers["Polydomo-Worker"]:
                self.poll["worker"] = headers["Polydomo-Worker"]
            if status == 200:
                return Task(headers["Location"].encode(), [body])
            assert status == 204, body
            if self.context.closed:
                raise zmq.ContextTerminated

    def reply(self, task: Task, body: Sequence[bytes]) -> None:
        status, _, said = self.ask("PUT", task.address.decode() + "/result", body[0], Content_Type=OCTETS)
        assert status in (200, 204), said


class MemoRestClient(Http):
    """A client of MemoDB's REST API."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(broker.http)

    def call(self, service: str, body: bytes) -> bytes:
        status, _, said = self.ask("POST", "/memodb/v1/cid", body, Content_Type=OCTETS)
        assert status in (200, 201), said
        path = f"/memodb/v1/call/{quote(service, safe='')}/{link(said)}/evaluate"
        deadline = time.monotonic() + PATIENCE
        while True:
            status, _, said = self.ask("POST", path, Accept="application/json")
            if status == 200:
                break
            assert status == 202, said
            if time.monotonic() > deadline:
                raise Silence("no result")
        status, _, answer = self.ask("GET", f"/memodb/v1/cid/{link(said)}", Accept=OCTETS)
        assert status == 200, answer
        return answer


def link(said: bytes) -> str:
    """Return the CID in a reply: MemoDB-JSON for a link, or the text itself."""
    found = json.loads(said)
    return str(found["cid"] if isinstance(found, dict) else found)


CLIENTS: dict[str, Callable[[BrokerProcess], Any]] = {
    "mdp": lambda broker: ZmqClient(MdpClient, broker),
    "dcp": lambda broker: ZmqClient(DcpPeer, broker),
    "nfp": lambda broker: ZmqClient(NfpClient, broker),
    "memo": MemoClient,
    "http": HttpClient,
    "memodb-rest": MemoRestClient,
}

WORKERS: dict[str, Callable[[BrokerProcess, bytes], Serving]] = {
    "mdp": lambda broker, name: Serving(lambda context: MdpWorker(broker.endpoint, name, context=context)),
    "dcp": lambda broker, name: Serving(lambda context: DcpPeer(broker.endpoint, name, context=context)),
    "nfp": lambda broker, name: Serving(lambda context: NfpWorker(broker.endpoint, name, context=context)),
    "memo": lambda broker, name: Serving(lambda context: MemoWorker(broker.nng, name, context)),
    "http": lambda broker, name: Serving(lambda context: HttpWorker(broker.http, name, context)),
    "wmp": lambda broker, name: Serving(lambda context: WmpWorker(broker.endpoint, name, context=context)),
}


# memo01, by hand


def memo_head(kind: int, ident: bytes, *more: bytes) -> bytes:
    return array(text("memo01"), uint(kind), size(0x40, len(ident)) + ident, *more)


def memo_split(message: bytes) -> tuple[int, bytes, bytes]:
    """Return kind, worker's ID, and the bytes after the header."""
    assert message[1:8] == text("memo01")
    kind, length = message[8], message[9] & 0x1F
    ident, pos = message[10 : 10 + length], 10 + length
    if kind == 2:
        long = message[pos] == 0x78
        pos += 2 + message[pos + 1] if long else 1 + (message[pos] & 0x1F)
        pos += 1 + {24: 1, 25: 2, 26: 4, 27: 8}.get(message[pos] & 0x1F, 0)
    return kind, ident, message[pos:]


def size(major: int, number: int) -> bytes:
    if number < 24:
        return bytes((major | number,))
    for code, form in ((24, ">B"), (25, ">H"), (26, ">I"), (27, ">Q")):
        try:
            return bytes((major | code,)) + struct.pack(form, number)
        except struct.error:
            continue
    raise ValueError(number)


def uint(number: int) -> bytes:
    return size(0, number)


def text(words: str) -> bytes:
    return size(0x60, len(words.encode())) + words.encode()


def array(*items: bytes) -> bytes:
    return size(0x80, len(items)) + b"".join(items)
