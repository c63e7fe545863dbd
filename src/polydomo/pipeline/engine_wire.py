"""Protocol between the SQL service and its engine processes, over a pipe each way.

A message is its length (four bytes, big-endian) and a MessagePack object with its `type`. The service sends `Start`
once, the engine answers `Ready` when it can run queries. Then the service sends `Run` for a query and `Cancel` for one
whose caller is gone; the engine answers each `Run` with any number of `Told` and `ResultPart`, and exactly one of
`Done`, `Failed` and `TooHeavy`. The engine exits when either pipe is closed.
"""

from __future__ import annotations

import asyncio
from typing import BinaryIO, Final

import msgspec

from polydomo.errors import PolydomoError
from polydomo.pipeline import sql
from polydomo.pipeline.places import Places
from polydomo.pipeline.sql import Bounds, QueryProgress, Request


class Start(msgspec.Struct, tag=True):
    """Configuration of an engine. `folder`: for all temporary files of the engine and its Java; deleted afterwards."""

    master: str
    conf: list[str]
    places: Places
    bounds: Bounds
    folder: str
    nice: int = 0


class Run(msgspec.Struct, tag=True):
    """A query. Unless `heavy`, the engine hands it back if it is not light."""

    id: int
    request: Request
    heavy: bool


class Cancel(msgspec.Struct, tag=True):
    """Cancellation of a query, which is still answered."""

    id: int


class Ready(msgspec.Struct, tag=True):
    """The engine is started and warm."""


class Told(msgspec.Struct, tag=True):
    """Progress of a query."""

    id: int
    progress: QueryProgress


class ResultPart(msgspec.Struct, tag=True):
    """A part of a result, except the last one."""

    id: int
    data: bytes


class Done(msgspec.Struct, tag=True):
    """The last part of a result, or all of it."""

    id: int
    data: bytes


class Failed(msgspec.Struct, tag=True):
    """An error of `pipeline.sql`, by its class name."""

    id: int
    kind: str
    message: str
    advice: str

    def error(self) -> PolydomoError:
        """Return the error as an exception."""
        return _ERRORS.get(self.kind, sql.QueryFailed)(self.message, hint=self.advice)


class TooHeavy(msgspec.Struct, tag=True):
    """The query was not run because it is not light (`Run.heavy`)."""

    id: int


ToEngine = Start | Run | Cancel
About = Told | ResultPart | Done | Failed | TooHeavy  # one query
ToService = Ready | About

_ERRORS: Final[dict[str, type[PolydomoError]]] = {
    kind.__name__: kind for kind in (sql.BadQuery, sql.NotAllowed, sql.Stopped, sql.TooBig, sql.QueryFailed)
}

_HEAD: Final = 4
_encoder: Final = msgspec.msgpack.Encoder()
_to_engine: Final = msgspec.msgpack.Decoder(ToEngine)
_to_service: Final = msgspec.msgpack.Decoder(ToService)


def encode(message: ToEngine | ToService) -> bytes:
    """Return the message with its length."""
    body = _encoder.encode(message)
    return len(body).to_bytes(_HEAD) + body


def read(stream: BinaryIO) -> ToEngine | None:
    """Wait for a message from the service; None at the end of the pipe."""
    body = stream.read(int.from_bytes(head)) if len(head := stream.read(_HEAD)) == _HEAD else b""
    return _to_engine.decode(body) if body else None


async def receive(stream: asyncio.StreamReader) -> ToService | None:
    """Wait for a message from an engine; None at the end of the pipe."""
    try:
        head = await stream.readexactly(_HEAD)
        found: ToService = _to_service.decode(await stream.readexactly(int.from_bytes(head)))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return found
