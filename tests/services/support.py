"""For tests of the broker's own services: a background that works when told to, and a client that asks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from polydomo.core.broker import Broker
from polydomo.core.failure import Failure
from polydomo.core.model import Client, ClientPort, Job
from polydomo.core.ports import Publisher
from polydomo.services.thread_pool import ThreadPool
from polydomo.wire.frames import join, split


class ByHand(ThreadPool):
    """`settle` does what was asked for, in order, with what that asks for."""

    def __init__(self) -> None:
        super().__init__(lambda what: what())
        self.waiting: list[Callable[[], None]] = []

    def run(
        self, work: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None:
        def attempt() -> None:
            try:
                value = work()
            except Exception as error:
                failed(error)
            else:
                done(value)

        self.waiting.append(attempt)

    def settle(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


class Asker(ClientPort):
    """Keeps all it is told: `answers`, `failures`, and `pieces` of data."""

    def __init__(self, broker: Broker, name: bytes = b"asker") -> None:
        self.broker = broker
        self.answers: list[list[bytes]] = []
        self.failures: list[str] = []
        self.pieces: list[bytes] = []
        self.core: Client = broker.join_client(name, "fake", self)

    def partial(self, job: Job, body: bytes) -> None:
        raise AssertionError("pieces come as a stream")

    def stream(self, job: Job, name: bytes, body: bytes) -> None:
        self.pieces += split(body)

    def final(self, job: Job, body: bytes) -> None:
        self.answers.append(split(body))

    def failed(self, job: Job, failure: Failure) -> None:
        self.failures.append(failure.message)

    def send(self, service: bytes, task: str, /, **kwargs: Any) -> Job:
        body = join([json.dumps({"task": task, "kwargs": kwargs}).encode()])
        job = self.broker.submit(self.core, service, body, b"")
        assert job is not None
        return job

    def ask(self, background: ByHand, service: bytes, task: str, /, **kwargs: Any) -> Any:
        """Return the answer, decoded from JSON."""
        return json.loads(self.frames(background, service, task, **kwargs)[0])

    def frames(self, background: ByHand, service: bytes, task: str, /, **kwargs: Any) -> list[bytes]:
        before = len(self.answers)
        self.send(service, task, **kwargs)
        background.settle()
        assert len(self.answers) == before + 1, self.failures
        return self.answers[-1]

    def refused(self, background: ByHand, service: bytes, task: str, /, **kwargs: Any) -> str:
        """Return the message of the failure."""
        before = len(self.failures)
        self.send(service, task, **kwargs)
        background.settle()
        assert len(self.failures) == before + 1, self.answers
        return self.failures[-1]


class Heard(Publisher):
    """All that was published."""

    def __init__(self) -> None:
        self.events: list[tuple[bytes, bytes, str, Any]] = []

    def published(self, service: bytes, worker: bytes, kind: str, body: bytes) -> None:
        self.events.append((service, worker, kind, json.loads(body)))
