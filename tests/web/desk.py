"""A broker with HTTP, and what tests do with it: submit, poll, follow. Python's own HTTP client and curl are peers."""

from __future__ import annotations

import http.client
import itertools
import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from tests.support.broker import BrokerProcess, wait_for
from tests.support.curl import need_curl
from tests.support.peers import MdpWorker, Serving
from tests.web.api.site import Answer, Site

_numbers = itertools.count(1)


def fresh(name: str = "svc") -> str:
    """A service that no other test knows."""
    return f"{name}-{next(_numbers)}"


class Desk:
    """See the module's text."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.site = Site(broker.http)
        host, _, port = broker.http.rpartition(":")
        self.place = (host, int(port))

    # Clients

    def submit(self, service: str, body: bytes = b"x", query: str = "", **headers: str) -> Answer:
        path = f"/v1/services/{quote(service)}/jobs" + (f"?{query}" if query else "")
        return self.site.post(path, body, **headers)

    def wait(
        self, service: str, body: bytes = b"x", query: str = "", seconds: float = 15, **headers: str
    ) -> Answer:
        return self.submit(service, body, query, prefer=f"wait={seconds:g}", **headers)

    def job(self, service: str, body: bytes = b"x", query: str = "", **headers: str) -> str:
        """The path of a job that was accepted."""
        answer = self.submit(service, body, query, **headers)
        assert answer.status == 202, answer
        assert answer.json()["id"] == answer.headers["location"].rpartition("/")[2]
        return answer.headers["location"]

    def result(self, path: str, seconds: float = 15, **headers: str) -> Answer:
        return self.site.get(f"{path}/result", prefer=f"wait={seconds:g}", **headers)

    def see(self, path: str) -> dict[str, Any]:
        answer = self.site.get(path)
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json()
        return found

    def state(self, path: str) -> str:
        return str(self.see(path)["state"])

    # Workers

    def poll(self, *services: str, worker: str | None = None, wait: float = 15) -> Attempt:
        """Of the next job."""
        answer = self.ask_for(*services, worker=worker, wait=wait)
        assert answer.status == 200, answer
        return Attempt(self, answer)

    def ask_for(self, *services: str, worker: str | None = None, wait: float = 0) -> Answer:
        said: dict[str, Any] = {"services": list(services), "wait": wait}
        if worker is not None:
            said["worker"] = worker
        return self.site.post("/v1/workers/poll", json.dumps(said).encode())

    def offered(self, service: str) -> dict[str, Any]:
        answer = self.site.get(f"/v1/services/{quote(service)}")
        found: dict[str, Any] = (
            answer.json() if answer.status == 200 else {"workers": 0, "idle": 0, "waiting": 0}
        )
        return found

    def serving(self, service: str, handle: Callable[[bytes], bytes] = bytes) -> HttpWorker:
        """A worker over HTTP that answers until it is closed."""
        return HttpWorker(self, service, handle)

    def echo(self, service: str) -> Serving:
        """A worker over MDP that gives back what it gets."""
        return Serving(
            lambda context: MdpWorker(self.broker.endpoint, service.encode(), context=context), None
        )

    # Sockets

    def raw(self, data: bytes = b"") -> socket.socket:
        made = socket.create_connection(self.place, timeout=20)
        if data:
            made.sendall(data)
        return made

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def curl(self, *words: str, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        need_curl()
        command = ["curl", "-sS", "--max-time", "20", *words]
        return subprocess.run(command, input=data, capture_output=True, check=True, timeout=30)

    def url(self, path: str) -> str:
        return f"http://{self.broker.http}{path}"


class Attempt:
    """A job in a worker's hands."""

    def __init__(self, desk: Desk, answer: Answer) -> None:
        self.desk = desk
        self.body = answer.body
        self.headers = answer.headers
        self.path = answer.headers["location"]

    def say(self, what: str, body: bytes = b"", query: str = "") -> Answer:
        method = "PUT" if what in ("result", "failure") else "POST"
        return self.desk.site.ask(method, f"{self.path}/{what}{query}", body)

    def answer(self, body: bytes = b"done") -> None:
        said = self.say("result", body)
        assert said.status == 204, said


class HttpWorker:
    """In a thread."""

    def __init__(self, desk: Desk, service: str, handle: Callable[[bytes], bytes]) -> None:
        self.desk = desk
        self.service = service
        self.handle = handle
        self.name = f"w-{next(_numbers)}"
        self.done = 0
        self._stop = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        wait_for(lambda: self.name in desk.offered(service).get("worker_names", ()))

    def _run(self) -> None:
        while not self._stop:
            found = self.desk.ask_for(self.service, worker=self.name, wait=0.5)
            if found.status == 200:
                attempt = Attempt(self.desk, found)
                self.done += 1
                attempt.say("result", self.handle(attempt.body))

    def __enter__(self) -> HttpWorker:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop = True
        self._thread.join(10)
        self.desk.site.delete(f"/v1/workers/{self.name}")


class Stream:
    """Server-Sent Events, one by one: (name, data, id)."""

    def __init__(self, desk: Desk, method: str, path: str, body: bytes | None = None, **headers: str) -> None:
        self.connection = http.client.HTTPConnection(*desk.place, timeout=20)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request(method, path, body, given)
        self.response = self.connection.getresponse()
        self.status = self.response.status

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        name, data, number = "", [], ""
        for line in self.response:
            text = line.decode().rstrip("\n")
            if not text:
                if name:
                    yield name, "\n".join(data), number
                name, data, number = "", [], ""
            elif text.startswith("event: "):
                name = text[7:]
            elif text.startswith("data: "):
                data.append(text[6:])
            elif text.startswith("id: "):
                number = text[4:]

    def next(self) -> tuple[str, str, str]:
        return next(iter(self))

    def all(self) -> list[tuple[str, str, str]]:
        return list(self)

    def close(self) -> None:
        self.response.close()
        self.connection.close()


def read_all(sock: socket.socket) -> bytes:
    """Until the other side closes."""
    found = b""
    while True:
        try:
            data = sock.recv(65536)
        except ConnectionResetError:
            return found
        if not data:
            return found
        found += data


def read_answer(sock: socket.socket) -> tuple[int, bytes]:
    """One response with a length."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = sock.recv(65536)
        assert more, data
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ),
        0,
    )
    while len(body) < length:
        body += sock.recv(65536)
    assert len(body) == length, body
    return int(head.split()[1]), body


def until(condition: Callable[[], Any], seconds: float = 10) -> Any:
    """What it gives, once that is true."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, condition
        time.sleep(0.01)
