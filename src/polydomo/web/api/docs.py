"""Documentation of the API: the OpenAPI document, an HTML page, and the kinds of problems."""

from __future__ import annotations

from functools import cache
from html import escape
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, FastAPI, Path
from starlette.requests import Request
from starlette.responses import Response

from polydomo.web.api.json_responses import json_cached, with_etag
from polydomo.web.api.openapi import cached, document
from polydomo.web.api.problems import KINDS, problem

# The page loads no other resource.
POLICY = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}

STYLE = """\
:root{color-scheme:light dark;--line:#8884;--soft:#8881}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{margin-bottom:0}h2{margin-top:2.5rem;border-bottom:1px solid var(--line);text-transform:capitalize}
code,pre{font:14px/1.45 ui-monospace,monospace}pre{background:var(--soft);padding:.7rem;overflow:auto;border-radius:4px}
details{border:1px solid var(--line);border-radius:6px;margin:.5rem 0;padding:.35rem .8rem}
summary{cursor:pointer;display:flex;gap:.8rem;align-items:baseline;flex-wrap:wrap}
summary span{margin-left:auto;opacity:.75}
b{font:700 12px ui-monospace,monospace;color:#fff;border-radius:4px;padding:.15rem .45rem;
min-width:3.2rem;text-align:center}
.get{background:#2563a8}.post{background:#2b7a3d}.put{background:#8a5a00}.delete{background:#a02c2c}
table{border-collapse:collapse;width:100%;margin:.5rem 0}
td,th{text-align:left;vertical-align:top;padding:.25rem .6rem .25rem 0;border-top:1px solid var(--line)}
"""


def make_router(app: FastAPI) -> APIRouter:
    """Return the routes for documentation; the document is created at the first request."""
    router = APIRouter(default_response_class=Response)
    found = cache(lambda: document(app))

    @router.get("/openapi.json", include_in_schema=False)
    async def openapi(request: Request) -> Response:
        return json_cached(request, found())

    @router.get("/", include_in_schema=False)
    async def root() -> Response:
        return Response(status_code=307, headers={"location": "/docs"})

    @router.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        return with_etag(request, page(found()).encode(), "text/html; charset=utf-8", POLICY)

    @router.get(
        "/problems", summary="List kinds of problems", tags=["broker"], responses=cached("ProblemKinds")
    )
    async def list_problems(request: Request) -> Response:
        """List all kinds of problems with their reasons."""
        return json_cached(request, {"problems": [_kind(reason) for reason in KINDS]})

    @router.get(
        "/problems/{reason}", summary="Explain a problem", tags=["broker"], responses=cached("ProblemKind")
    )
    async def show_problem(
        request: Request,
        reason: Annotated[str, Path(description="the problem's reason", examples=["queue-full"])],
    ) -> Response:
        """Explain one kind of problem; a problem document's `type` is this path."""
        if reason not in KINDS:
            raise problem("not-found", f"there is no kind of problem {reason[:100]!r}")
        return json_cached(request, _kind(reason))

    return router


def page(found: dict[str, Any]) -> str:
    """Return the document as HTML: operations by tag, each with its parameters, bodies and responses."""
    info = found["info"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width,initial-scale=1'>",
        f"<title>{escape(info['title'])} REST API</title><style>{STYLE}</style>",
        f"<h1>{escape(info['title'])} REST API</h1>",
        f"<p>Version {escape(info['version'])} · <a href=openapi.json>openapi.json</a></p>",
        "".join(f"<p>{_prose(text)}</p>" for text in info["description"].split("\n\n")),
    ]
    for tag in found["tags"]:
        parts.append(f"<h2>{escape(tag['name'])}</h2><p>{_prose(tag['description'])}</p>")
        for path, operations in found["paths"].items():
            for method, operation in operations.items():
                if tag["name"] in operation.get("tags", ()):
                    parts.append(_operation(path, method, operation))
    return "\n".join(parts) + "\n"


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parts = [
        f"<details><summary><b class={escape(method)}>{escape(method.upper())}</b>"
        f"<code>{escape(path)}</code><span>{escape(operation.get('summary', ''))}</span></summary>",
        f"<p>{_prose(operation.get('description', ''))}</p>",
    ]
    rows = [
        f"<tr><td><code>{escape(one['name'])}</code><td>{escape(one['in'])}<td>{_prose(one.get('description', ''))}"
        for one in operation.get("parameters", ())
    ]
    if rows:
        parts.append(f"<table><tr><th>Parameter<th>In<th>{''.join(rows)}</table>")
    body = operation.get("requestBody")
    if body:
        kinds = ", ".join(f"<code>{escape(kind)}</code>" for kind in body["content"])
        parts.append(f"<p>Body: {_prose(body.get('description', ''))} {kinds}</p>")
    rows = [
        f"<tr><td>{escape(status)}<td>{_prose(answer.get('description', ''))}{_example(answer)}"
        for status, answer in operation["responses"].items()
    ]
    parts.append(f"<table><tr><th>Response<th>{''.join(rows)}</table></details>")
    return "".join(parts)


def _example(answer: dict[str, Any]) -> str:
    for kind, content in answer.get("content", {}).items():
        if "example" in content and not kind.startswith("application/problem"):
            value = content["example"]
            if not isinstance(value, str):
                value = msgspec.json.format(msgspec.json.encode(value)).decode()
            return f"<pre>{escape(value)}</pre>"
    return ""


def _prose(text: str) -> str:
    """Return text as HTML; backquotes become code."""
    pieces = escape(text, quote=False).split("`")
    return "".join(f"<code>{piece}</code>" if number % 2 else piece for number, piece in enumerate(pieces))


def _kind(reason: str) -> dict[str, Any]:
    return {"reason": reason, **KINDS[reason]._asdict()}
