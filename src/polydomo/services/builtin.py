"""Building blocks of the broker's own services: workers inside the broker that perform tasks.

A task is a bare name or NORFAB's `{"task": "show_services", "args": […], "kwargs": {…}}`; the answer is JSON and may be
deferred. Names may stand in JSON quotes, because many clients send JSON only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import BoundArguments, Signature, signature
from typing import Any

import msgspec

from polydomo.core.broker import Broker
from polydomo.core.failure import DENIED, WORKER_ERROR, Failure
from polydomo.core.model import Job, WorkerPort
from polydomo.core.policy import Heartbeat
from polydomo.core.principals import Principal
from polydomo.core.services import RESERVED
from polydomo.deferred import Deferred, deferring
from polydomo.errors import encodable
from polydomo.redaction import redact
from polydomo.services import access
from polydomo.services.access import ROWS
from polydomo.services.authorizer import AccessDenied, Authorizer, View
from polydomo.wire.frames import frame, join, split

# Credit of a built-in worker: more than the number of requests that can be in hand at once.
UNLIMITED_CREDIT = 1 << 30


class Raw:
    """Answer that is not JSON: its frames."""

    def __init__(self, *frames: bytes) -> None:
        self.frames = list(frames)


class Streamed(Deferred[Any]):
    """Deferred answer that is preceded by pieces of data."""

    __slots__ = ("on_piece",)

    def __init__(self) -> None:
        super().__init__()
        self.on_piece: Callable[[bytes], object] | None = None  # set by the receiver, if it takes pieces

    def send_piece(self, data: bytes) -> None:
        """Pass a piece on to the client."""
        if self.on_piece is not None:
            self.on_piece(data)


class Task(msgspec.Struct):
    """Task as requested by a client."""

    task: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


def read_task(frames: list[bytes]) -> Task:
    """Return the task in a request; raise ValueError if it is malformed."""
    request = frames[0] if frames else b""
    if request.lstrip()[:1] == b"{":
        try:
            return msgspec.json.decode(request, type=Task)
        except msgspec.DecodeError as error:
            raise ValueError(f"not a task: {error}") from error
    return Task(task=unquoted(request.strip()).decode("utf-8", "replace"))


class Tasks:
    """Tasks of one of the broker's own services, and who may perform them (`services.access`).

    A task whose rule is about rows is called with the caller's `View` first.
    """

    def __init__(self, authorizer: Authorizer, service: str) -> None:
        self.authorizer = authorizer
        self.rules = access.TASKS[service]
        self._tasks: dict[str, Callable[..., Any]] = {}
        self._signatures: dict[str, Signature] = {}
        self._missing: dict[str, str] = {}  # why a task cannot be performed here

    def add(self, tasks: Mapping[str, Callable[..., Any]]) -> None:
        """Add tasks, also in place of others. Raises LookupError for one without a rule."""
        for name, task in tasks.items():
            if name not in self.rules:
                raise LookupError(f"the task {name} has no rule in services.access")
            self._tasks[name] = task
            self._signatures[name] = signature(task)

    def refuse(self, names: Iterable[str], reason: str) -> None:
        """Let these tasks fail, for whoever asks."""
        self._missing.update(dict.fromkeys(names, reason))

    def names(self) -> list[str]:
        """Return the names of all tasks."""
        return [*self._tasks, *self._missing]

    def perform(self, requested: Task, caller: Principal, address: str = "") -> Any:
        """Return the task's answer.

        Raises ValueError if the task is unknown or takes other arguments, AccessDenied if the caller may not perform
        it.
        """
        name = requested.task
        if name not in self._tasks:
            raise ValueError(
                self._missing.get(name) or f"no task {name!r}; there are {', '.join(self.names())}"
            )
        rule = self.rules[name]
        task = self._tasks[name]
        args = requested.args
        if rule.about == ROWS:
            args = [self.authorizer.view(caller), *args]
        try:
            given = self._signatures[name].bind(*args, **requested.kwargs)
        except TypeError as error:
            raise ValueError(f"wrong arguments for {name}: {error}") from error
        admission = self.authorizer.admit(caller, rule, name, given.arguments, address)
        if admission is None:
            return call(name, task, given.args, given.kwargs)
        return _call_later(admission, name, task, given)

    def run(self, name: str, view: View, *args: Any, **kwargs: Any) -> Any:
        """Return the answer of a task for a caller that was admitted elsewhere."""
        if name in self._missing:
            raise ValueError(self._missing[name])
        first = (view,) if self.rules[name].about == ROWS else ()
        return self._tasks[name](*first, *args, **kwargs)


def call(name: str, task: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return a task's answer; raise ValueError if it takes other arguments."""
    try:
        return task(*args, **kwargs)
    except TypeError as error:
        raise ValueError(f"wrong arguments for {name}: {error}") from error


@deferring
async def _call_later(
    admission: Deferred[None], name: str, task: Callable[..., Any], given: BoundArguments
) -> Any:
    await admission
    answer = call(name, task, given.args, given.kwargs)
    return await answer if isinstance(answer, Deferred) else answer


class BuiltIn(WorkerPort):
    """Worker inside the broker. `answer` is called with the request's frames and the principal whose job it is; an
    exception fails the job."""

    def __init__(
        self, broker: Broker, answer: Callable[[list[bytes], Principal], Any], name: bytes = b"broker"
    ) -> None:
        self.broker = broker
        self.answer = answer
        self.worker = broker.make_worker(name, "internal", self, Heartbeat())
        self.worker.internal = True
        self.worker.base_credit = self.worker.credit = UNLIMITED_CREDIT

    def offer(self, name: bytes) -> None:
        """Register the service `name`, which the fallback worker would otherwise claim."""
        fallback, self.broker.services.fallback = self.broker.services.fallback, None
        self.broker.register(self.worker, name)
        self.broker.services.fallback = fallback

    def dispatch(self, job: Job) -> None:
        token = job.token
        try:
            answer = self.answer(split(job.body), job.client.principal)
            body = b"" if isinstance(answer, Deferred) else _encoded(answer)
        except Exception as error:  # of any kind: the job must end, and the broker must go on
            self._fail(token, error)
            return
        if not isinstance(answer, Deferred):
            self.broker.final(self.worker, token, body)
            return
        if isinstance(answer, Streamed):
            answer.on_piece = lambda data: self.broker.stream(self.worker, token, frame(data))
        answer.then(
            lambda value: self.broker.final(self.worker, token, _encoded(value)),
            lambda error: self._fail(token, error),
        )

    def cancel(self, job: Job) -> None:
        """Fail the revoked job at once, so that this worker never counts as late."""
        self.broker.fail(self.worker, job.token, Failure(WORKER_ERROR, "the job was taken back"))

    def _fail(self, token: bytes, error: Exception) -> None:
        self.broker.fail(self.worker, token, failure_of(error))


def failure_of(error: Exception) -> Failure:
    """Return the failure in both forms: a structured detail for the SDK, and a plain body for other peers."""
    message = encodable(redact(str(error)))
    plain = msgspec.json.encode({"error": message})
    reason = WORKER_ERROR
    if isinstance(error, AccessDenied):
        reason = DENIED
        plain = plain if error.plain is None else error.plain
    detail = msgspec.json.encode({"reason": reason, "message": message, "kind": type(error).__name__})
    return Failure(reason, message, frame(plain), detail)


def is_internal(name: bytes) -> bool:
    """Return whether `name` is reserved for the broker's own services."""
    return name.startswith(RESERVED)


def unquoted(name: bytes) -> bytes:
    """Return a name without the quotes that a JSON codec put around it."""
    if name[:1] == b'"':
        try:
            return msgspec.json.decode(name, type=str).encode()
        except (msgspec.DecodeError, UnicodeError):
            pass  # the quote is part of the name
    return name


def _encoded(answer: Any) -> bytes:
    return join(answer.frames if isinstance(answer, Raw) else [msgspec.json.encode(answer)])
