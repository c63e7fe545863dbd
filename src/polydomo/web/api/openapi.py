"""The OpenAPI document.

Handlers encode their responses themselves, so FastAPI knows nothing about them; `documented`, `cached`, `failing` and
`no_content` describe them at the route. `document` adds what all operations share: problems for invalid parameters,
schemas, examples, tags.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from fastapi import FastAPI, Path, Query
from fastapi.openapi.utils import get_openapi

from polydomo.core.failure import DENIED
from polydomo.services.access import BROKER, INVENTORY, REGISTER, ROUTES, SERVICE, SUBMIT, Rule
from polydomo.web.api.bodies import CBOR, JSON, MIXED, OCTETS
from polydomo.web.api.problems import BASE, KINDS, MEDIA_TYPE
from polydomo.web.api.schemas import EXAMPLES, SCHEMAS, TEXT, ref

ResponseDocs = dict[int | str, dict[str, Any]]

# Rows of a list, by default and at most.
ROWS: Final = 100
ROWS_MAX: Final = 1000

# Parameters of several routes.
JobId = Annotated[str, Path(description="the job's id", min_length=1, max_length=255)]
ServiceFilter = Annotated[str | None, Query(description="only those of this service")]
Limit = Annotated[int, Query(description="rows in the response", ge=1, le=ROWS_MAX)]
Page = Annotated[str | None, Query(description="the `next` of a page")]

ETAG: Final = {"ETag": {"description": "of the response", "schema": TEXT}}

ABOUT: Final = """\
Clients request a service by name, workers offer services by name. A program may be either or both over HTTP, and the
other side may use any protocol of the broker.

Bodies are passed on unchanged. A job of several frames is `multipart/mixed`, one part each. Errors are problem
documents (RFC 9457) with a stable `reason`.
"""

TAGS: Final[list[dict[str, Any]]] = [
    {"name": "jobs", "description": "Submit a job, follow it, get its result, cancel it."},
    {"name": "worker", "description": "Work: poll for a job, report progress, return the result."},
    {"name": "services", "description": "Services and their state."},
    {"name": "peers", "description": "Connected workers and clients."},
    {"name": "dead letters", "description": "Durable jobs whose attempts are exhausted."},
    {"name": "inventory", "description": "Configuration data for workers."},
    {"name": "files", "description": "The shared folder of the broker."},
    {"name": "broker", "description": "The broker itself: health, metrics, counters."},
    {"name": "memodb", "description": "MemoDB's own REST API."},
]


# A parameter's convertor in the path of a route, which the document has not.
_CONVERTOR: Final = re.compile(r":\w+}")

TOKEN: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "A token of `polydomo tokens new`, or of the OpenID provider. Roles decide which requests need "
    "one; one that is not valid is refused everywhere.",
}

BINARY: Final = {"type": "string", "format": "binary"}

# Content of a job's body, in a request or a response.
ANY_CONTENT: Final[dict[str, Any]] = {
    OCTETS: {"schema": BINARY, "example": "hello"},
    JSON: {"schema": {}, "example": {"name": "Ada"}},
    CBOR: {"schema": BINARY},
    MIXED: {"schema": BINARY},
}


def frames_body(*kinds: str) -> dict[str, Any]:
    """Return the description of an optional request body of frames, in these or all media types."""
    content = {kind: ANY_CONTENT[kind] for kind in kinds or ANY_CONTENT}
    return request_body("a single frame, or several as `multipart/mixed`", content)


def request_body(text: str, content: dict[str, Any], required: bool = False) -> dict[str, Any]:
    """Return the description of a request body."""
    return {"requestBody": {"description": text, "required": required, "content": content}}


def documented(name: str) -> ResponseDocs:
    """Describe a response with this document."""
    content = {"schema": ref(name), "example": EXAMPLES[name]}
    return {200: {"description": f"{SCHEMAS[name]['description']}.", "content": {JSON: content}}}


def text_response(description: str, kind: str, example: str) -> ResponseDocs:
    """Describe a response of text in this media type."""
    content = {kind: {"schema": TEXT, "example": example}}
    return {200: {"description": description, "content": content}}


def cached(name: str = "") -> ResponseDocs:
    """Describe a response with this document and an ETag, or 304; without a name, only the latter."""
    found: ResponseDocs = {304: {"description": "`If-None-Match` names this version.", "headers": ETAG}}
    if name:
        found |= documented(name)
        found[200]["headers"] = ETAG
    return found


def no_content(text: str, status: int = 204) -> ResponseDocs:
    """Describe a response without a body."""
    return {status: {"description": text}}


def failing(*reasons: str) -> ResponseDocs:
    """Describe responses with these problems."""
    found: ResponseDocs = {}
    for reason in reasons:
        _add_problem(found.setdefault(KINDS[reason].status, {"description": "", "content": {}}), reason)
    return found


def _add_problem(answer: dict[str, Any], reason: str) -> None:
    """Describe one more problem of a response."""
    kind = KINDS[reason]
    content = answer["content"].setdefault(MEDIA_TYPE, {"schema": ref("Problem"), "examples": {}})
    if reason not in content["examples"]:
        answer["description"] = f"{answer['description']} {kind.title}.".strip()
        example = {"type": BASE + reason, "title": kind.title, "status": kind.status, "reason": reason}
        content["examples"][reason] = {"summary": kind.meaning, "value": example}


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of the app."""
    found = get_openapi(
        title=app.title,
        version=app.version,
        openapi_version="3.1.0",
        summary="A service broker",
        description=ABOUT,
        routes=app.routes,
        tags=TAGS,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    rules = {(method.lower(), _CONVERTOR.sub("}", path)): rule for (method, path), rule in ROUTES.items()}
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            _complete(path, operation, rules[method, path])
    components = found.setdefault("components", {})
    components["securitySchemes"] = {"token": TOKEN}
    found["security"] = [{}, {"token": []}]
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas.update(SCHEMAS)
    return found


def _complete(path: str, operation: dict[str, Any], rule: Rule) -> None:
    """Add what all operations share: 400 instead of 422, 401 and 403 by the operation's rule, 404 for a path with a
    parameter, and 500.

    Only statuses that the route describes are successes, so FastAPI's default 200 is removed.
    """
    answers: dict[str, Any] = operation["responses"]
    if MEDIA_TYPE not in answers.get("422", {}).get("content", {}):  # FastAPI's own
        answers.pop("422", None)
    if operation.get("parameters") and "400" not in answers:
        answers["400"] = failing("malformed")[400]
    if "{" in path:
        answers.setdefault("404", failing("not-found")[404])
    for reason in _refusals(rule):
        status = str(KINDS[reason].status)
        _add_problem(answers.setdefault(status, {"description": "", "content": {}}), reason)
    answers.setdefault("500", failing("internal")[500])
    if answers.get("200") == {"description": "Successful Response"}:
        del answers["200"]
    for answer in answers.values():
        for kind, content in answer.get("content", {}).items():
            if kind == "text/event-stream":
                content["schema"] = ref("Event")
    operation["responses"] = dict(sorted(answers.items()))


def _refusals(rule: Rule) -> list[str]:
    """Return the reasons for which a principal is refused an operation. A token that is not valid always is."""
    denied = rule.about in (BROKER, SERVICE, INVENTORY, SUBMIT, REGISTER)
    recorded = rule.is_act and not rule.reads
    return ["unauthenticated", *([DENIED] if denied else []), *(["not-recorded"] if recorded else [])]
