"""How a job's end becomes an HTTP answer."""

from __future__ import annotations

import secrets
from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from polydomo.core.gather import Piece
from polydomo.core.names import printable
from polydomo.web.api.bodies import MIXED, preferred, write_body
from polydomo.web.api.body_json import shown
from polydomo.web.api.problems import MEDIA_TYPE, problem_of
from polydomo.web.clients import Outcome

JSON: Final = "application/json"


def answer(outcome: Outcome, accept: str | None, headers: dict[str, str]) -> Response:
    """The end of a job: 200 with its body, or the problem that it failed with."""
    if outcome.failure is not None:
        failed = problem_of(outcome.failure)
        failed.headers |= headers
        return failed.response()
    pieces = outcome.pieces
    if pieces is not None:
        kind, data = gathered(pieces, accept)
    else:
        kind, data = write_body(outcome.body or b"", accept)
        if outcome.worker:
            headers["polydomo-worker"] = header(outcome.worker)
    return Response(data, 200, headers, kind)


def gathered(pieces: list[Piece], accept: str | None) -> tuple[str, bytes]:
    """Several workers' answers: a JSON list, or a part for each."""
    if accept and preferred(accept, (JSON, MIXED))[:1] == [MIXED]:
        return _parts(pieces)
    return JSON, msgspec.json.encode([piece_shown(piece) for piece in pieces])


def piece_shown(piece: Piece) -> dict[str, Any]:
    """What one of several workers answered."""
    failure = piece.failure()
    if failure is not None:
        return {"worker": printable(piece.name), "ok": False, "problem": problem_of(failure).document()}
    return {"worker": printable(piece.name), "ok": True, **shown(piece.body or b"")}


def header(name: bytes) -> str:
    """A name as a header's value: what is not plain ASCII is percent-encoded."""
    return quote(name, safe="!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~ ").strip()


def _parts(pieces: list[Piece]) -> tuple[str, bytes]:
    """Each with its worker's name; a failure is a problem document."""
    boundary = secrets.token_hex(16)
    out: list[bytes] = []
    for piece in pieces:
        failure = piece.failure()
        if failure is not None:
            kind, data = MEDIA_TYPE, msgspec.json.encode(problem_of(failure).document())
        else:
            kind, data = write_body(piece.body or b"")
        head = f"--{boundary}\r\ncontent-type: {kind}\r\npolydomo-worker: {header(piece.name)}\r\n\r\n"
        out += (head.encode(), data, b"\r\n")
    out.append(f"--{boundary}--\r\n".encode())
    return f"{MIXED}; boundary={boundary}", b"".join(out)
