"""HTTP responses for ended jobs."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from polydomo.core.failure import Failure
from polydomo.core.names import printable
from polydomo.core.pieces import Piece, unpack
from polydomo.core.result_history import JobResult
from polydomo.web.api.bodies import JSON, MIXED, multipart, preferred, write_body
from polydomo.web.api.body_json import body_to_json
from polydomo.web.api.problems import MEDIA_TYPE, problem_of


def job_response(result: JobResult, accept: str | None, headers: dict[str, str]) -> Response:
    """Return 200 with the job's result; raise the problem that it failed with."""
    if result.failure is not None:
        failed = problem_of(result.failure)
        failed.headers |= headers
        raise failed
    body = result.body or b""
    if result.gathered:
        kind, data = _gathered_body(unpack(body), accept)
    else:
        kind, data = write_body(body, accept)
        if result.worker:
            headers["polydomo-worker"] = header_value(result.worker)
    return Response(data, 200, headers, kind)


def piece_to_json(piece: Piece) -> dict[str, Any]:
    """Return the result of one of several workers as a JSON object."""
    return {"worker": printable(piece.name), **outcome_to_json(piece.body, piece.failure())}


def outcome_to_json(body: bytes | None, failure: Failure | None) -> dict[str, Any]:
    """Return a result as members of a JSON object."""
    if failure is not None:
        return {"ok": False, "problem": problem_of(failure).document()}
    return {"ok": True, **body_to_json(body or b"")}


def header_value(name: bytes) -> str:
    """Return a name as a header's value; all but printable ASCII is percent-encoded."""
    return quote(name, safe="!\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~ ").strip()


def _gathered_body(pieces: list[Piece], accept: str | None) -> tuple[str, bytes]:
    """Return the results of several workers: a JSON list, or a part for each with the worker's name."""
    if not accept or preferred(accept, (JSON, MIXED))[:1] != [MIXED]:
        return JSON, msgspec.json.encode([piece_to_json(piece) for piece in pieces])
    parts = []
    for piece in pieces:
        failure = piece.failure()
        if failure is not None:
            kind, data = MEDIA_TYPE, msgspec.json.encode(problem_of(failure).document())
        else:
            kind, data = write_body(piece.body or b"")
        parts.append((f"content-type: {kind}\r\npolydomo-worker: {header_value(piece.name)}\r\n", data))
    return multipart(parts)
