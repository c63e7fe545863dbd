"""Decoding of a result made of several workers' replies (`core.gather`)."""

from __future__ import annotations

from typing import Any

import msgspec

from polydomo.core.names import printable
from polydomo.core.pieces import Piece, unpack
from polydomo.errors import PolydomoError
from polydomo.sdk import codecs, failures
from polydomo.sdk.codecs import BodyError, Codec
from polydomo.sdk.failures import FailureInfo


def name_of(piece: Piece) -> str:
    """Return the worker's name as the broker shows it: in hex if it is no printable text."""
    return printable(piece.name)


def decode(body: bytes, codec: Codec, service: str) -> dict[str, Any]:
    """Return each worker's result, or its error in the same place."""
    return {name_of(piece): value(piece, codec, service) for piece in unpack(body) if piece.name}


def value(piece: Piece, codec: Codec, service: str) -> Any:
    """Return one worker's result; an error is returned, not raised."""
    if piece.reason:
        return failure(piece, service)
    try:
        return codecs.decode(piece.body or b"", codec)
    except BodyError as error:
        return error


def failure(piece: Piece, service: str) -> PolydomoError:
    """Return why a worker has no result: the worker's own description if there is one, else the broker's."""
    if piece.detail:
        try:
            info = msgspec.json.decode(piece.detail, type=FailureInfo)
        except msgspec.DecodeError:
            info = FailureInfo()
        if info.message or info.kind:
            info.reason = piece.reason
            return failures.error_of(info, service)
    return failures.error_of(FailureInfo(piece.reason, piece.message), service)
