"""The reference page of the REST API, generated from its OpenAPI document."""

from __future__ import annotations

import asyncio
from typing import Any

from markdown_parts import escape, flow, table

from polydomo.server.server import BrokerServer
from polydomo.server.settings import Settings
from polydomo.web.api.app import make_app
from polydomo.web.api.openapi import document
from polydomo.web.api.problems import KINDS

# This tag has its own page.
ELSEWHERE = "memodb"


def http_page() -> list[str]:
    """Return the page: paths, parameters, headers, bodies, problems, limits."""
    found = asyncio.run(_document())
    parts = [
        "The REST API",
        flow("""
            Served at `--http HOST:PORT`. How to use it: [the how-to](../how-to/http.md). The broker serves the
            same, with schemas and examples, at `/openapi.json`, and as a page at `/docs`. MemoDB's REST API is
            next to it, under [`/memodb/v1`](memodb-rest.md).
        """),
        "## Paths",
        flow("""
            Names of services, workers and files may contain slashes. `HEAD` is answered wherever `GET` is,
            except for streams of events. Only success statuses are listed; any other is a
            [problem](#problems).
        """),
    ]
    for tag in found["tags"]:
        if tag["name"] != ELSEWHERE:
            parts += [f"### {tag['name'].capitalize()}", tag["description"], _operations(found, tag["name"])]
    return [
        *parts,
        "## Parameters",
        flow("""
            In the query. Unknown parameters are refused where jobs are submitted, so that a misspelled option is not
            lost, and ignored elsewhere.
        """),
        _parameters(found),
        "## Headers",
        table(["header", "in", "meaning"], HEADERS),
        "## Bodies",
        *_bodies(),
        "## Problems",
        flow("""
            Every error is answered with `application/problem+json` (RFC 9457): `type`, `title`, `status`,
            `detail`, and `reason`, which is one of these. A GET of its `type`, `/problems/REASON`, returns
            the text of this table. A worker's own failure is included as `body`, `text`, `base64` or
            `frames`, and the details from our own SDK's workers as `account`. MemoDB's types are in
            [its page](memodb-rest.md).
        """),
        _problems(),
        "## Limits",
        flow("""
            `limits.message_bytes` for a body and `limits.frames` for its parts (413), 64 KiB for a request's
            head (431), `http.slow` for a slow head and for silence within a body (408),
            `http.connections` at once (503), `limits.client_jobs` unanswered jobs of one client (429),
            `http.patience` for everything that waits: a longer wait is not refused, but answered after that
            time. All of them are [settings](configuration.md#http).
        """),
    ]


HEADERS = [
    ["`Prefer: wait=N`", "request", "wait up to N seconds for the reply; without N: for `http.patience`"],
    ["`Preference-Applied`", "answer", "how long the broker waited"],
    ["`Idempotency-Key`", "request", "jobs of a service with the same key are run once and share the reply"],
    ["`Polydomo-Client`", "request", "the client that owns the jobs; default: the host of the connection"],
    [
        "`Accept`",
        "request",
        "type of the reply; `text/event-stream` for a job: all its events",
    ],
    ["`Last-Event-ID`", "request", "continue after this event"],
    ["`Location`", "answer", "the job (202), or the attempt (a job for a worker)"],
    ["`Polydomo-Worker`", "answer", "the worker that ran the job; for a worker: its own name"],
    ["`Polydomo-Service`, `Polydomo-Job`", "answer", "of a job for a worker: its service and id"],
    ["`Polydomo-Timeout`", "answer", "of a job for a worker: its timeout in seconds"],
    ["`ETag`, `If-None-Match`", "both", "304 if unchanged; results and files have strong ones"],
    ["`Range`, `If-Range`", "request", "a part of a file, and only if it is unchanged"],
    ["`Retry-After`", "answer", "seconds, with 429 and 503, and with a pending result"],
]


def _operations(found: dict[str, Any], tag: str) -> str:
    rows = []
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            if tag in operation["tags"]:
                good = [status for status in operation["responses"] if status < "400" and status != "304"]
                said = " ".join(operation.get("description", "").split())
                summary = operation["summary"] + ("" if operation["summary"].endswith("?") else ".")
                rows.append([f"`{method.upper()} {path}`", f"{summary} {escape(said)}", ", ".join(good)])
    return table(["request", "what it does", "answers"], rows)


def _parameters(found: dict[str, Any]) -> str:
    """Return a table of the parameters, each once, with the paths that have it."""
    known: dict[tuple[str, str], list[str]] = {}
    for path, operations in found["paths"].items():
        for operation in operations.values():
            if ELSEWHERE in operation["tags"]:
                continue
            for one in operation.get("parameters", ()):
                if one["in"] == "query":
                    where = known.setdefault((one["name"], one["description"]), [])
                    if path not in where:
                        where.append(path)
    rows = [
        [f"`{name}`", escape(said), ", ".join(f"`{path}`" for path in where)]
        for (name, said), where in known.items()
    ]
    return table(["parameter", "meaning", "of"], rows)


def _bodies() -> list[str]:
    return [
        table(
            ["sent", "becomes"],
            [
                [
                    "`multipart/mixed`, `multipart/form-data`",
                    "one frame per part, in order; their headers are dropped",
                ],
                [
                    "`application/json`, `application/cbor`, `…+json`, `…+cbor`",
                    "one frame, if it is well-formed",
                ],
                ["anything else, or without a type", "one frame, unchanged"],
                ["nothing", "one empty frame"],
            ],
        ),
        flow("""
            A content encoding other than `identity` is refused (415). Replies of one frame are
            `application/octet-stream`, or what `Accept` prefers among that, `application/json`,
            `application/cbor` and `text/plain`, if the body is valid as such; replies of several frames are
            `multipart/mixed`. Where a body is part of a JSON document it is one of `body` (JSON), `text`,
            `base64`, or `frames` (a list of base64), in requests and in replies.
        """),
    ]


def _problems() -> str:
    own = [(reason, kind) for reason, kind in KINDS.items() if kind.meaning]
    rows = [[f"`{reason}`", str(kind.status), escape(kind.meaning)] for reason, kind in own]
    return table(["reason", "status", "meaning"], rows)


async def _document() -> dict[str, Any]:
    """Return the document of a broker without listeners."""
    settings = Settings()
    settings.broker.zmq = []
    settings.broker.data = ""
    server = BrokerServer(settings)
    await server.start()
    try:
        return document(make_app(server))
    finally:
        server.stop(drain=False)
        await server.wait()
