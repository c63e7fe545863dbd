"""The OpenAPI document: what routers say about themselves, made whole.

Handlers answer with bytes they have made themselves, so the framework knows nothing about their answers; `shows`,
`failing` and `Doc` say it at the route. `document` adds what holds for all: problems where a parameter may be wrong,
schemas, examples, tags.
"""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from polydomo.web.api.problems import BASE, KINDS, MEDIA_TYPE
from polydomo.web.api.schemas import EXAMPLES, SCHEMAS, ref

Answers = dict[int | str, dict[str, Any]]

ETAG: Final = {"ETag": {"description": "of what is shown", "schema": {"type": "string"}}}

ABOUT: Final = """\
Clients ask for a service by name, workers offer services by name; over HTTP a program is either, or both, and the other
side may speak any protocol that the broker speaks.

Bodies are passed on as they are. A job of several frames is `multipart/mixed`, one part each. What goes wrong is told
as a problem document (RFC 9457); its `reason` is a stable word.
"""

TAGS: Final = [
    {"name": "jobs", "description": "Submit a job, see how it goes, have its result, cancel it."},
    {"name": "worker", "description": "Be a worker: take a job, say how it goes, answer it."},
    {"name": "services", "description": "What is offered, and how it goes."},
    {"name": "peers", "description": "Who is there."},
    {"name": "dead letters", "description": "Durable jobs that used up their attempts."},
    {"name": "inventory", "description": "What workers are told about themselves."},
    {"name": "files", "description": "The folder that the broker shares."},
    {"name": "broker", "description": "The broker itself: health, metrics, what it is."},
    {"name": "memodb", "description": "MemoDB's own REST, as its users know it."},
]


class Doc:
    """Pieces that several operations have."""

    ANY: Final[dict[str, Any]] = {
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}, "example": "hello"},
        "application/json": {"schema": {}, "example": {"name": "Ada"}},
        "application/cbor": {"schema": {"type": "string", "format": "binary"}},
        "multipart/mixed": {"schema": {"type": "string", "format": "binary"}},
    }
    OPTIONAL_BODY: Final[dict[str, Any]] = {
        "requestBody": {
            "description": "one frame as it is, or several as `multipart/mixed`",
            "required": False,
            "content": {
                "application/octet-stream": {
                    "schema": {"type": "string", "format": "binary"},
                    "example": "hello",
                }
            },
        }
    }


def shows(name: str, text: str = "", status: int = 200) -> Answers:
    """Answers with this document."""
    schema = SCHEMAS[name]
    content: dict[str, Any] = {"schema": ref(name)}
    if name in EXAMPLES:
        content["example"] = EXAMPLES[name]
    described = text or f"{schema['description']}."
    return {status: {"description": described, "content": {"application/json": content}}}


def cached(name: str = "", text: str = "") -> Answers:
    """The same for what has an ETag: who has it already gets 304. Without a name that is all."""
    found: Answers = {304: {"description": "It is the one that `If-None-Match` names.", "headers": ETAG}}
    if name:
        found |= shows(name, text)
        found[200]["headers"] = ETAG
    return found


def nothing(text: str) -> Answers:
    """Answers without a body."""
    return {204: {"description": text}}


def failing(*reasons: str) -> Answers:
    """Answers with one of these problems."""
    found: Answers = {}
    for reason in reasons:
        kind = KINDS[reason]
        answer = found.setdefault(
            kind.status,
            {"description": "", "content": {MEDIA_TYPE: {"schema": ref("Problem"), "examples": {}}}},
        )
        answer["description"] = f"{answer['description']} {kind.title}.".strip()
        answer["content"][MEDIA_TYPE]["examples"][reason] = {
            "summary": kind.meaning,
            "value": example(reason),
        }
    return found


def example(reason: str) -> dict[str, Any]:
    """A problem as it may look."""
    kind = KINDS[reason]
    return {"type": BASE + reason, "title": kind.title, "status": kind.status, "reason": reason}


def document(app: FastAPI) -> dict[str, Any]:
    """For `/openapi.json`, and for the reference."""
    found = get_openapi(
        title=app.title,
        version=app.version,
        openapi_version="3.1.0",
        summary="A service broker",
        description=ABOUT,
        routes=app.routes,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    used = {
        tag
        for path in found["paths"].values()
        for operation in path.values()
        for tag in operation.get("tags", ())
    }
    found["tags"] = [tag for tag in TAGS if tag["name"] in used]
    for path, operations in found["paths"].items():
        for operation in operations.values():
            _complete(path, operation)
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas.update(SCHEMAS)
    return found


def _complete(path: str, operation: dict[str, Any]) -> None:
    """What every operation has: no 422, as that is a 400 here; 404, where a path has a name in it; and the problem
    that nobody wants."""
    answers: dict[str, Any] = operation["responses"]
    answers.pop("422", None)
    if operation.get("parameters") and "400" not in answers:
        answers["400"] = failing("malformed")[400]
    if "{" in path:
        answers.setdefault("404", failing("not-found")[404])
    answers.setdefault("500", failing("internal")[500])
    bare = answers.get("200", {})
    if bare.get("content") == {
        "application/json": {"schema": {}}
    }:  # what the framework says if nobody else does
        del bare["content"]
    for answer in answers.values():
        for kind, content in answer.get("content", {}).items():
            if kind == "text/event-stream":
                content["schema"] = ref("Event")
    operation["responses"] = dict(sorted(answers.items()))
