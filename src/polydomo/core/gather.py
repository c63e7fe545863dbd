"""A job for several workers: one child job each, and one result made of all their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polydomo.core.client import Client
from polydomo.core.job import WORKER_ERROR, Failure, Job
from polydomo.core.ports import ClientPort
from polydomo.wire.frames import Message, frame

if TYPE_CHECKING:
    from polydomo.core.lifecycle import Lifecycle


class Piece:
    """What one worker made of its part."""

    __slots__ = ("body", "detail", "message", "name", "reason")

    def __init__(self, name: bytes, body: bytes | None, reason: str, message: str, detail: bytes) -> None:
        self.name = name
        self.body = body  # canonical; None: it failed, without a body of its own
        self.reason = reason  # empty: it did not fail (`core.job`'s reasons)
        self.message = message
        self.detail = detail  # the worker's own account of its failure, JSON

    def failure(self) -> Failure | None:
        """Why there is no answer, if there is none."""
        return Failure(self.reason, self.message, self.body, self.detail) if self.reason else None


def pack(pieces: list[Piece]) -> bytes:
    """A canonical body of six frames for each piece: name, reason, message, detail, "1" if there is a body, body."""
    frames: list[bytes] = []
    for piece in pieces:
        frames += (
            piece.name,
            piece.reason.encode(),
            piece.message.encode(),
            piece.detail,
            b"" if piece.body is None else b"1",
            piece.body or b"",
        )
    last = len(frames) - 1
    return b"".join([frame(data, index < last) for index, data in enumerate(frames)])


def unpack(body: bytes) -> list[Piece]:
    """The pieces of a gathered result."""
    message = Message(body, 0, len(body))
    pieces: list[Piece] = []
    while True:
        name = message.take()
        if name is None:
            return pieces
        reason = message.take() or b""
        text = message.take() or b""
        detail = message.take() or b""
        has_body = message.take() == b"1"
        nested = message.take() or b""
        pieces.append(Piece(name, nested if has_body else None, reason.decode(), text.decode(), detail))


class Gather(ClientPort):
    """The job's parts are jobs of this client. What their workers say goes on to the job's own client; what they
    answer is kept until all have ended. Of a durable job each answer is on disk before anybody is told."""

    def __init__(self, lifecycle: Lifecycle, job: Job, names: list[bytes]) -> None:
        self.lifecycle = lifecycle
        self.job = job
        self.names = names  # whose answers make up the result, in this order
        self.parts: dict[int, Job] = {}  # under way, by their place in `names`
        self.pieces: dict[int, Piece] = {}  # ended
        self.told = 0  # of these, also kept
        self.over = False  # nobody is interested any more
        self.client = Client(lifecycle.broker, job.client.name, job.client.dialect, self)

    def partial(self, job: Job, body: bytes) -> None:
        self.stream(job, b"" if job.worker is None else job.worker.name, body)

    def final(self, job: Job, body: bytes) -> None:
        self._ended(job, body, "", "", b"")

    def failed(self, job: Job, failure: Failure) -> None:
        self._ended(job, failure.body, failure.reason, failure.message, failure.detail)

    def taken(self, job: Job, name: bytes, body: bytes) -> None:
        for one in self.lifecycle.subscribers(self.job):
            one.client.port.taken(one, name, body)

    def event(self, job: Job, name: bytes, kind: str, body: bytes) -> None:
        self.lifecycle.event(self.job, name, kind, body)

    def stream(self, job: Job, name: bytes, body: bytes) -> None:
        for one in self.lifecycle.subscribers(self.job):
            one.client.port.stream(one, name, body)

    def kept(self, index: int) -> None:
        """A piece is safe: tell whoever waits for it. Behind the last one the whole has ended."""
        if self.over:
            return
        piece = self.pieces[index]
        self.told += 1
        for one in self.lifecycle.subscribers(self.job):
            one.client.port.gathered(one, piece.name, None if piece.reason else piece.body, piece.failure())
        if self.told == len(self.names):
            self.lifecycle.gathers.complete(self.job, self)

    def result(self) -> bytes:
        """All pieces."""
        return pack([self.pieces[index] for index in range(len(self.names))])

    def why_not(self) -> Failure | None:
        """If no worker did anything about it, that is the job's failure."""
        for piece in self.pieces.values():
            if not piece.reason or piece.reason == WORKER_ERROR:
                return None
        return self.pieces[0].failure()

    def _ended(self, job: Job, body: bytes | None, reason: str, message: str, detail: bytes) -> None:
        extra = job.extra
        if self.over or extra is None or extra.part not in self.parts:
            return
        index = extra.part
        del self.parts[index]
        self.pieces[index] = Piece(self.names[index], body, reason, message, detail)
        self.lifecycle.gathers.keep(self.job, index)
