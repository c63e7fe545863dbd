"""What the OpenAPI document says about MemoDB's REST."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Path, Query

from polydomo.dialects.options import LONGEST
from polydomo.web.api.bodies import CBOR, JSON, OCTETS
from polydomo.web.api.openapi import Answers, failing

_BYTES: Final = {"type": "string", "format": "binary"}

# What any request with a body, or any that reads or writes the store, may be told.
STORED: Final = ("store", "draining")
BODY: Final = ("too-large", "unsupported-media-type", "missing-body")
READ: Final = (*BODY, "invalid-or-unsupported-json", "invalid-or-unsupported-cbor")

CidPath = Annotated[
    str,
    Path(description="a CID: base64url, or another base with its letter before it", examples=["uAXEAAQI"]),
]
HeadPath = Annotated[str, Path(description="a head's name; slashes may be escaped", examples=["latest"])]
FuncPath = Annotated[str, Path(description="a function: the name of a service", examples=["test.add"])]
ArgsPath = Annotated[
    str, Path(description="CIDs of the arguments, separated by commas", examples=["uAXEAAQI,uAXEAAQI"])
]
After = Annotated[str, Query(description="only names behind this one")]
Depth = Annotated[
    int, Query(description="so many levels of links are shown with their values, in JSON", ge=0, le=16)
]


def value(text: str, example: Any, status: int = 200, *, octets: bool = False) -> Answers:
    """An answer in every form; `example` is MemoDB-JSON."""
    content: dict[str, Any] = {JSON: {"schema": {}, "example": example}, CBOR: {"schema": _BYTES}}
    if octets:
        content[OCTETS] = {"schema": _BYTES}
    return {status: {"description": text, "content": content}}


def body(text: str, example: Any, *, octets: bool = False, required: bool = True) -> dict[str, Any]:
    """A request's body; `example` is MemoDB-JSON."""
    content: dict[str, Any] = {
        JSON: {"schema": _SCHEMAS.get(text, {}), "example": example},
        CBOR: {"schema": _BYTES},
    }
    if octets:
        content[OCTETS] = {"schema": _BYTES}
    return {"requestBody": {"description": text, "required": required, "content": content}}


def nothing(text: str, status: int) -> Answers:
    """An answer without a body."""
    return {status: {"description": text}}


def unchanged() -> Answers:
    """Who has it already gets nothing."""
    return {304: {"description": "It is the one that `If-None-Match` names."}}


def fails(*reasons: str) -> Answers:
    """Problems; those of the store are always among them."""
    return failing(*reasons, *STORED)


LINK: Final = "a link to a value"
INFO: Final = "what the worker can do: a link to it, or the value itself"
SETTINGS: Final = "how it is to be evaluated"
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

PREFER: Final = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "`wait=N`: wait up to N seconds; `respond-async`: do not wait at all (RFC 7240)",
    "schema": {"type": "string"},
    "example": "respond-async",
}
