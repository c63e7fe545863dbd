"""The REST API's page of the reference, from its own OpenAPI document."""

from __future__ import annotations

import asyncio
from typing import Any

from markdown_parts import escape, flow, table

from polydomo.server.server import BrokerServer
from polydomo.server.settings import Settings
from polydomo.web.api.app import make_app
from polydomo.web.api.openapi import document
from polydomo.web.api.problems import KINDS

# It has a page of its own.
ELSEWHERE = "memodb"


def http_page() -> list[str]:
    """Paths, parameters, headers, bodies, problems, limits."""
    found = asyncio.run(_document())
    parts = [
        "The REST API",
        flow("""
            Where `--http HOST:PORT` says. How to use it: [the how-to](../how-to/http.md). The broker has the
            same, with schemas and examples, at `/openapi.json`, and as a page at `/docs`. MemoDB's own REST is
            beside it, under [`/memodb/v1`](memodb-rest.md).
        """),
        "## Paths",
        flow("""
            Names of services, workers and files may contain slashes. `HEAD` is answered wherever `GET` is,
            except for streams of events. Statuses are those of success; any other is a
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
            In the query. One that is not known is refused where jobs are submitted, as a misspelt option must not
            be lost, and ignored elsewhere.
        """),
        _parameters(found),
        "## Headers",
        table(["header", "in", "meaning"], HEADERS),
        "## Bodies",
        *_bodies(),
        "## Problems",
        flow("""
            Everything that goes wrong is answered with `application/problem+json` (RFC 9457): `type`, `title`,
            `status`, `detail`, and `reason`, which is one of these. A GET of its `type`, `/problems/REASON`,
            says the same as this table. A worker's own failure is in it as `body`, `text`, `base64` or
            `frames`, and what our own SDK's workers say about it as `account`. MemoDB's types are in
            [its page](memodb-rest.md).
        """),
        _problems(),
        "## Limits",
        flow("""
            `limits.message_bytes` for a body and `limits.frames` for its parts (413), 64 KiB for a request's
            head (431), `http.slow` for a head that comes slowly and for silence within a body (408),
            `http.connections` at once (503), `limits.client_jobs` unanswered jobs of one client (429),
            `http.patience` for everything that waits: more is not refused, but answered when that time is
            over. All of them are [settings](configuration.md#http).
        """),
    ]


HEADERS = [
    ["`Prefer: wait=N`", "request", "wait up to N seconds for the answer; without N: for `http.patience`"],
    ["`Preference-Applied`", "answer", "how long it was waited for"],
    ["`Idempotency-Key`", "request", "jobs of a service with one key are run once, and all get its answer"],
    ["`Polydomo-Client`", "request", "whose jobs they are; otherwise those of the host they come from"],
    [
        "`Accept`",
        "request",
        "what the answer is called; `text/event-stream` for a job: all that happens to it",
    ],
    ["`Last-Event-ID`", "request", "go on behind this event"],
    ["`Location`", "answer", "the job (202), or the attempt (a job for a worker)"],
    ["`Polydomo-Worker`", "answer", "who did it; for a worker: its own name"],
    ["`Polydomo-Service`, `Polydomo-Job`", "answer", "of a job for a worker: which service, the job's id"],
    ["`Polydomo-Timeout`", "answer", "of a job for a worker: how many seconds it has"],
    ["`ETag`, `If-None-Match`", "both", "304 if it is the same; results and files have strong ones"],
    ["`Range`, `If-Range`", "request", "a part of a file, and only of the same one"],
    ["`Retry-After`", "answer", "seconds, with 429 and 503, and with a result that is not there yet"],
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
    """Each once, with the paths that have it."""
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
                ["anything else, or without a type", "one frame, as it is"],
                ["nothing", "one empty frame"],
            ],
        ),
        flow("""
            A content encoding other than `identity` is refused (415). Answers of one frame are
            `application/octet-stream`, or what `Accept` prefers among that, `application/json`,
            `application/cbor` and `text/plain`, if it is true; answers of several frames are
            `multipart/mixed`. Where a body is part of a JSON document it is one of `body` (JSON), `text`,
            `base64`, or `frames` (a list of base64), in what the broker says and in what it reads.
        """),
    ]


def _problems() -> str:
    own = [(reason, kind) for reason, kind in KINDS.items() if kind.meaning]
    rows = [[f"`{reason}`", str(kind.status), escape(kind.meaning)] for reason, kind in own]
    return table(["reason", "status", "meaning"], rows)


async def _document() -> dict[str, Any]:
    """Of a broker that listens nowhere."""
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
