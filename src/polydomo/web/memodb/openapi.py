"""OpenAPI descriptions of MemoDB's REST API."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Path, Query

from polydomo.dialects.options import LONGEST
from polydomo.web.api import openapi as api
from polydomo.web.api.bodies import CBOR, JSON, OCTETS
from polydomo.web.api.openapi import BINARY, ResponseDocs, no_content, request_body
from polydomo.web.api.request_options import parameter
from polydomo.web.api.schemas import TEXT

# Problems of all requests that use the store, and of all requests with a body.
STORED: Final = ("store", "draining")
BODY: Final = ("too-large", "unsupported-media-type", "missing-body")
CID_PATH: Final = ("invalid-or-unsupported-cid", "invalid-string")
READ: Final = (*BODY, "invalid-or-unsupported-json", "invalid-or-unsupported-cbor")

CidPath = Annotated[
    str,
    Path(description="a CID: base64url, or another base with its prefix", examples=["uAXEAAQI"]),
]
HeadPath = Annotated[str, Path(description="a head's name; slashes may be escaped", examples=["latest"])]
FuncPath = Annotated[str, Path(description="a function: the name of a service", examples=["test.add"])]
ArgsPath = Annotated[
    str, Path(description="CIDs of the arguments, separated by commas", examples=["uAXEAAQI,uAXEAAQI"])
]
After = Annotated[str, Query(description="only names after this one")]
Depth = Annotated[int, Query(description="levels of links whose values are included, in JSON", ge=0, le=16)]


def returns(text: str, example: Any, status: int = 200, *, octets: bool = False) -> ResponseDocs:
    """Describe a response with a value; `example` is MemoDB-JSON."""
    return {status: {"description": text, "content": _content({}, example, octets)}}


def value_body(text: str, example: Any, *, octets: bool = False, required: bool = True) -> dict[str, Any]:
    """Describe a request's body; `example` is MemoDB-JSON."""
    content = _content(_SCHEMAS.get(text, {}), example, octets)
    return request_body(text, content, required)


def shows(text: str, example: Any, *reasons: str, octets: bool = False) -> ResponseDocs:
    """Describe the responses to a GET, which may be conditional; `example` is MemoDB-JSON."""
    not_modified = no_content("`If-None-Match` names this version.", 304)
    return returns(text, example, octets=octets) | not_modified | failing(*reasons, "not-acceptable")


def failing(*reasons: str) -> ResponseDocs:
    """Describe responses with these problems and those of the store."""
    return api.failing(*reasons, *STORED)


def _content(schema: dict[str, Any], example: Any, octets: bool) -> dict[str, Any]:
    content: dict[str, Any] = {JSON: {"schema": schema, "example": example}, CBOR: {"schema": BINARY}}
    if octets:
        content[OCTETS] = {"schema": BINARY}
    return content


LINK: Final = "a link to a value"
INFO: Final = "the worker's functions: a link to the value, or the value itself"
SETTINGS: Final = "options of the evaluation"
_SCHEMAS: Final[dict[str, Any]] = {
    LINK: {
        "type": "object",
        "properties": {"cid": {"type": "string", "pattern": "^u[A-Za-z0-9_-]+$"}},
        "required": ["cid"],
        "additionalProperties": False,
    },
    SETTINGS: {
        "type": "object",
        "properties": {
            "map": {
                "type": "object",
                "properties": {"timeout": {"type": "integer", "minimum": 0, "maximum": int(LONGEST)}},
            }
        },
        "required": ["map"],
        "additionalProperties": False,
    },
}

PREFER: Final = parameter(
    "header",
    "Prefer",
    TEXT,
    "respond-async",
    "`wait=N`: wait up to N seconds; `respond-async`: do not wait at all (RFC 7240)",
)
