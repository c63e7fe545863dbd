"""A result made of several workers' answers (`core.gather`), as Python values."""

from __future__ import annotations

from typing import Any

import msgspec

from polydomo.core.gather import Piece, unpack
from polydomo.core.names import printable
from polydomo.errors import PolydomoError
from polydomo.sdk import codecs, failures
from polydomo.sdk.codecs import BodyError, Codec
from polydomo.sdk.failures import Account


def name_of(piece: Piece) -> str:
    """As the broker shows it: what is no printable text in hex."""
    return printable(piece.name)


def decode(body: bytes, codec: Codec, service: str) -> dict[str, Any]:
    """Each worker's answer, or its error in the same place."""
    return {name_of(piece): value(piece, codec, service) for piece in unpack(body) if piece.name}


def value(piece: Piece, codec: Codec, service: str) -> Any:
    """One worker's answer; an error is returned, not raised."""
    if piece.reason:
        return failure(piece, service)
    try:
        return codecs.decode(piece.body or b"", codec)
    except BodyError as error:
        return error


def failure(piece: Piece, service: str) -> PolydomoError:
    """Why a worker has no answer: in its own words if there are any."""
    if piece.detail:
        try:
            account = msgspec.json.decode(piece.detail, type=Account)
        except msgspec.DecodeError:
            account = Account()
        if account.message or account.kind:
            account.reason = piece.reason
            return failures.error_of(account, service)
    return failures.error_of(Account(piece.reason, piece.message), service)
