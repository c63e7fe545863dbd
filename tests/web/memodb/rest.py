"""MemoDB's REST as a program of its users would use it: Python's own HTTP client, cbor2, nothing of ours."""

from __future__ import annotations

import json
from typing import Any

import cbor2

from tests.support.broker import BrokerProcess
from tests.support.peers import MdpWorker, Serving, Task
from tests.web.api.site import Answer, Site

JSON = "application/json"
CBOR = "application/cbor"
OCTETS = "application/octet-stream"


class Rest:
    """One broker's."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.site = Site(broker.http)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        return self.site.ask(method, f"/memodb/v1{path}", body, **headers)

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def send(self, method: str, path: str, value: Any, **headers: str) -> Answer:
        """`value` is MemoDB-JSON."""
        return self.ask(method, path, json.dumps(value).encode(), content_type=JSON, **headers)

    def store(self, data: bytes, kind: str) -> str:
        """A value's CID."""
        answer = self.ask("POST", "/cid", data, content_type=kind)
        assert answer.status == 201, answer
        cid: str = answer.json()["cid"]
        assert answer.headers["location"] == f"/memodb/v1/cid/{cid}"
        return cid

    def bytes_of(self, cid: str) -> bytes:
        """What a byte string's CID names."""
        answer = self.get(f"/cid/{cid}", accept=OCTETS)
        assert answer.status == 200, answer
        return answer.body

    def evaluate(self, call: str, prefer: str = "wait=20", **headers: str) -> Answer:
        return self.ask("POST", f"/call/{call}/evaluate", **headers, prefer=prefer)

    def result(self, call: str) -> str:
        """Of a call that some worker does."""
        answer = self.evaluate(call)
        assert answer.status == 200, answer
        cid: str = answer.json()["cid"]
        return cid

    def work(self, *funcs: str, prefer: str = "wait=20") -> Any:
        """A call to do: function and CIDs, or None."""
        info = self.store(json.dumps({"map": {"funcs": list(funcs)}}).encode(), JSON)
        answer = self.send("POST", "/worker", {"cid": info}, prefer=prefer)
        assert answer.status == 200, answer
        found = answer.json()
        return None if found is None else (found["map"]["func"], [arg["cid"] for arg in found["map"]["args"]])

    def record(self, func: str, args: list[str], cid: str) -> None:
        """A call's result."""
        answer = self.send("PUT", f"/call/{func}/{','.join(args)}", {"cid": cid})
        assert (answer.status, answer.body) == (201, b"")


class Adding(Serving):
    """MemoDB's `test.add`, done by a bare MDP worker; counts what it does."""

    def __init__(self, broker: BrokerProcess, service: bytes = b"test.add") -> None:
        self.sums: list[list[int]] = []

        def add(worker: Any, task: Task) -> None:
            numbers = [cbor2.loads(frame) for frame in task.body]
            self.sums.append(numbers)
            worker.reply(task, [cbor2.dumps(sum(numbers))])

        super().__init__(lambda context: MdpWorker(broker.endpoint, service, context=context), add)

    def __enter__(self) -> Adding:
        return self
