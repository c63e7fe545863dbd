"""Results that are gathered from several workers: one piece each, packed into one body."""

from __future__ import annotations

from polydomo.core.failure import Failure
from polydomo.wire.frames import Message, frame


class Piece:
    """The end of one worker's part of a job for several workers."""

    __slots__ = ("body", "detail", "message", "name", "reason")

    def __init__(self, name: bytes, body: bytes | None, reason: str, message: str, detail: bytes) -> None:
        self.name = name
        self.body = body  # canonical; None: the part failed, without a body of its own
        self.reason = reason  # empty: the part did not fail (`core.failure`)
        self.message = message
        self.detail = detail  # the worker's own report of its failure, JSON

    def failure(self) -> Failure | None:
        """Return why there is no reply, if there is none."""
        return Failure(self.reason, self.message, self.body, self.detail) if self.reason else None


def pack(pieces: list[Piece]) -> bytes:
    """Return a canonical body of six frames per piece: name, reason, message, detail, "1" if there is a body, body."""
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
    """Return the pieces of a gathered result."""
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
