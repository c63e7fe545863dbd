"""What the broker's own services are made of: workers that live in the broker and answer a task, now or later.

A task is its bare name or NORFAB's `{"task": "show_services", "args": […], "kwargs": {…}}`; the answer is JSON. Both
names and tasks may stand in JSON's quotes: many clients send nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from polydomo.core.broker import Broker
from polydomo.core.job import WORKER_ERROR, Failure, Job
from polydomo.core.policy import Heartbeat
from polydomo.core.ports import WorkerPort
from polydomo.core.registry import RESERVED
from polydomo.core.worker import Worker
from polydomo.errors import encodable
from polydomo.redaction import redact
from polydomo.wire.frames import frame, join, split

# More than any number of requests that can be in hand at once.
BOTTOMLESS = 1 << 30


class Raw:
    """An answer that is not JSON: its frames."""

    def __init__(self, *frames: bytes) -> None:
        self.frames = list(frames)


class Later:
    """An answer that is not there yet. Pieces of data may come before it."""

    def __init__(self) -> None:
        self.pieces: Callable[[bytes], None] | None = None  # who gets them
        self._told: tuple[Callable[[Any], None], Callable[[Exception], None]] | None = None
        self._end: Callable[[], None] | None = None

    def then(self, settled: Callable[[Any], None], failed: Callable[[Exception], None]) -> None:
        """Call one of the two, now if it is there already."""
        self._told = (settled, failed)
        if self._end is not None:
            self._end()

    def piece(self, data: bytes) -> None:
        """A part of the answer, for those who can take it in parts."""
        if self.pieces is not None:
            self.pieces(data)

    def settle(self, value: Any) -> None:
        """Here it is."""
        self._finish(lambda: self._told and self._told[0](value))

    def fail(self, error: Exception) -> None:
        """There is none."""
        self._finish(lambda: self._told and self._told[1](error))

    def _finish(self, end: Callable[[], Any]) -> None:
        self._end = end
        if self._told is not None:
            end()


class Task(msgspec.Struct):
    """What is asked for."""

    task: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


def read_task(frames: list[bytes]) -> Task:
    """The task in a request; ValueError if there is none."""
    request = frames[0] if frames else b""
    if request.lstrip()[:1] == b"{":
        try:
            return msgspec.json.decode(request, type=Task)
        except msgspec.DecodeError as error:
            raise ValueError(f"not a task: {error}") from error
    return Task(task=unquoted(request.strip()).decode("utf-8", "replace"))


def perform(tasks: Mapping[str, Callable[..., Any]], asked: Task) -> Any:
    """What the task says; ValueError if there is no such task, or if it takes other arguments."""
    task = tasks.get(asked.task)
    if task is None:
        raise ValueError(f"no task {asked.task!r}; there are {', '.join(tasks)}")
    try:
        return task(*asked.args, **asked.kwargs)
    except TypeError as error:
        raise ValueError(f"wrong arguments for {asked.task}: {error}") from error


class BuiltIn(WorkerPort):
    """A worker in the broker. `answer` gets the request's frames; what it raises fails the job."""

    def __init__(self, broker: Broker, answer: Callable[[list[bytes]], Any], name: bytes = b"broker") -> None:
        self.broker = broker
        self.answer = answer
        self.worker = Worker(broker, name, "internal", self, Heartbeat())
        self.worker.internal = True
        self.worker.base_credit = self.worker.credit = BOTTOMLESS

    def offer(self, name: bytes) -> None:
        """From now on it answers here, and not what stands in for all that nobody answers."""
        fallback, self.broker.fallback = self.broker.fallback, None
        self.broker.register(self.worker, name)
        self.broker.fallback = fallback

    def dispatch(self, job: Job) -> None:
        token = job.token
        try:
            answer = self.answer(split(job.body))
            if not isinstance(answer, Later):
                frames = _frames(answer)
        except Exception as error:  # whatever it is: the job must end, and the broker must not
            self._failed(token, error)
            return
        if isinstance(answer, Later):
            answer.pieces = lambda data: self._piece(token, data)
            answer.then(
                lambda value: self._answered(token, _frames(value)),
                lambda error: self._failed(token, error),
            )
        else:
            self._answered(token, frames)

    def cancel(self, job: Job) -> None:
        """It was taken back: answered at once, or this worker would count as late with it."""
        self.broker.fail(self.worker, job.token, Failure(WORKER_ERROR, "it was taken back"))

    def _piece(self, token: bytes, data: bytes) -> None:
        self.broker.stream(self.worker, token, frame(data))

    def _answered(self, token: bytes, frames: list[bytes]) -> None:
        self.broker.final(self.worker, token, join(frames))

    def _failed(self, token: bytes, error: Exception) -> None:
        self.broker.fail(self.worker, token, failure_of(error))


def failure_of(error: Exception) -> Failure:
    """For every kind of peer: those that read our accounts, and those that get a body."""
    message = encodable(redact(str(error)))
    account = msgspec.json.encode({"reason": WORKER_ERROR, "message": message, "kind": type(error).__name__})
    plain = frame(msgspec.json.encode({"error": message}))
    return Failure(WORKER_ERROR, message, plain, account)


def is_internal(name: bytes) -> bool:
    """A service of the broker's own?"""
    return name.startswith(RESERVED)


def unquoted(name: bytes) -> bytes:
    """A name that a JSON codec put into quotes; any other as it is."""
    if name[:1] == b'"':
        try:
            return msgspec.json.decode(name, type=str).encode()
        except (msgspec.DecodeError, UnicodeError):
            pass  # then the quote is part of it
    return name


def _frames(answer: Any) -> list[bytes]:
    return answer.frames if isinstance(answer, Raw) else [msgspec.json.encode(answer)]
