"""JSON Schemas and examples of response documents, by name. They are used for OpenAPI only, not for validation."""

from __future__ import annotations

from typing import Any, NamedTuple

from polydomo.core.counts import MEANINGS

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
INTEGER: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "minimum": 0}
SECONDS: Schema = {"type": "number"}
TIME: Schema = {"type": "string", "format": "date-time"}
STRINGS: Schema = {"type": "array", "items": TEXT}
ANYTHING: Schema = {"type": "object", "additionalProperties": True}

SCHEMAS: dict[str, Schema] = {}
EXAMPLES: dict[str, Any] = {}


class Field(NamedTuple):
    """A member of a document: its schema, an example, and a description unless the name says enough."""

    schema: Schema
    example: Any
    text: str = ""


Fields = dict[str, Field]


def nullable(schema: Schema) -> Schema:
    """Return the schema of a value that may be null."""
    return {**schema, "type": [schema["type"], "null"]}


def array(items: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": items}


def ref(name: str) -> Schema:
    """Return a reference to one of SCHEMAS."""
    return {"$ref": f"#/components/schemas/{name}"}


def record(text: str, fields: Fields) -> Schema:
    """Return the schema of an object with these members, all required."""
    properties = {
        name: {**field.schema, "description": field.text} if field.text else field.schema
        for name, field in fields.items()
    }
    return {"type": "object", "description": text, "properties": properties, "required": list(fields)}


def examples(fields: Fields) -> dict[str, Any]:
    """Return an object with the examples of these members."""
    return {name: field.example for name, field in fields.items()}


def _define(name: str, text: str, /, **fields: Field) -> None:
    SCHEMAS[name] = record(text, fields)
    EXAMPLES[name] = examples(fields)


def _define_open(name: str, text: str, required: list[str], /, **fields: Field) -> None:
    """Define a document of which only some members are required, and which may have others."""
    _define(name, text, **fields)
    SCHEMAS[name] |= {"required": required, "additionalProperties": True}


def _define_page(name: str, rows: str, row: str, following: Schema) -> None:
    """Define a page of a list of `row` documents."""
    following_page = Field(following, None, "the next page; null: this is the last one")
    fields = {rows: Field(array(ref(row)), [EXAMPLES[row]]), "next": following_page}
    _define(name, f"{rows}, paginated", **fields)


_COUNTS = {name: Field(COUNT, 41 if name == "done" else 0, what) for name, what in MEANINGS.items()}
_SERVICE = {
    "name": Field(TEXT, "echo"),
    "workers": Field(COUNT, 2),
    "idle": Field(COUNT, 1, "workers that can take a job now"),
    "waiting": Field(COUNT, 0, "jobs that wait for a worker"),
    "paused": Field(FLAG, False),
    "running": Field(COUNT, 1),
    **_COUNTS,
}
_MEMO = {
    "entries": Field(COUNT, 3, "results in memory; more may be on disk"),
    "bytes": Field(COUNT, 812),
    "hits": Field(COUNT, 120, "requests that were answered from the cache"),
    "joined": Field(COUNT, 4, "requests that joined an identical one in progress"),
    "misses": Field(COUNT, 3, "requests that were dispatched to a worker"),
    "saved_seconds": Field(SECONDS, 61.5, "worker time that hits and joined requests saved"),
}
_STORED_JOB = {
    "id": Field(TEXT, "01K3ZK5B9W3V8Y2T6C4N1Q0R7X"),
    "service": Field(TEXT, "echo"),
    "state": Field(TEXT, "dead"),
    "reason": Field(TEXT, "retries-exhausted", "why it has no result"),
    "message": Field(TEXT, "all 3 attempts were lost"),
    "client": Field(TEXT, "10.0.0.7"),
    "dialect": Field(TEXT, "http"),
    "worker": Field(TEXT, "w1"),
    "attempts": Field(COUNT, 3),
    "key": Field(nullable(TEXT), None),
    "target": Field(nullable(TEXT), None),
    "priority": Field(INTEGER, 0),
    "bytes_in": Field(COUNT, 7),
    "bytes_out": Field(COUNT, 0),
    "submitted": Field(TIME, "2026-01-31T12:00:00.000000Z", "when it was submitted"),
    "dispatched": Field(nullable(TIME), "2026-01-31T12:00:01.000000Z", "when its latest attempt began"),
    "finished": Field(nullable(TIME), "2026-01-31T12:01:01.000000Z", "when it ended"),
}
POLICY = {
    "wait": Field(nullable(SECONDS), 60.0),
    "timeout": Field(nullable(SECONDS), 60.0),
    "retries": Field(COUNT, 2),
    "queue": Field(COUNT, 100_000),
    "liveness_busy": Field(COUNT, 0),
    "durable": Field(FLAG, False),
    "backoff": Field(nullable(SECONDS), 0.0),
    "grace": Field(nullable(SECONDS), 10.0),
    "retention": Field(nullable(SECONDS), 86400.0),
    "ageing": Field(nullable(SECONDS), 10.0),
    "memo": Field(FLAG, True),
    "memo_ttl": Field(nullable(SECONDS), 86400.0),
    "memo_bytes": Field(COUNT, 67_108_864),
}
WORKER = {
    "name": Field(TEXT, "w1"),
    "dialect": Field(TEXT, "http"),
    "services": Field(STRINGS, ["echo"]),
    "state": Field({"enum": ["idle", "busy", "late"]}, "idle"),
    "holds": Field(COUNT, 0, "jobs that it runs now"),
    "credit": Field(COUNT, 1, "jobs that it may run at once"),
    "done": Field(COUNT, 41),
    "seen": Field(SECONDS, 0.2, "seconds since its last sign of life"),
    "since": Field(SECONDS, 60.0, "seconds since it registered"),
}
_CLIENT = {
    "name": Field(TEXT, "10.0.0.7"),
    "dialect": Field(TEXT, "http"),
    "unanswered": Field(INTEGER, 1),
    "bytes": Field(INTEGER, 9),
    "submitted": Field(COUNT, 42),
    "held": Field(FLAG, False, "reading is paused because of too many unanswered jobs"),
    "since": Field(SECONDS, 60.0),
}
_BROKER = {
    "name": Field(TEXT, "polydomo"),
    "version": Field(TEXT, "0.1.0"),
    "uptime": Field(SECONDS, 12.5),
    "services": Field(COUNT, 1),
    "workers": Field(COUNT, 2),
    "clients": Field(COUNT, 1),
    "submitted": Field(COUNT, 42, "accepted + refused + undecided jobs"),
    "accepted": Field(COUNT, 42, "accepted jobs"),
    "active": Field(COUNT, 1, "jobs that have not ended"),
    "undecided": Field(COUNT, 0, "active jobs that are being stored, not accepted yet"),
    "memory": Field(COUNT, 409, "bytes of active jobs"),
    **_COUNTS,
    "unlisted": Field(
        record("Counts of services that are no longer listed", _COUNTS), dict.fromkeys(MEANINGS, 0)
    ),
    "strays": Field(COUNT, 0, "replies to attempts that were over"),
    "draining": Field(FLAG, False, "whether the broker is stopping"),
}
_PROBLEM = {
    "type": Field(TEXT, "/problems/queue-full", "`/problems/REASON`, where it is explained"),
    "title": Field(TEXT, "Queue full"),
    "status": Field(INTEGER, 429),
    "detail": Field(TEXT, "100000 jobs wait for echo", "what went wrong in this request"),
    "reason": Field(TEXT, "queue-full", "a stable identifier for programs"),
}
_PROBLEM_KIND = {
    "reason": Field(TEXT, "queue-full"),
    "status": Field(COUNT, 429),
    "title": Field(TEXT, "Queue full"),
    "meaning": Field(TEXT, "The service has as many waiting jobs as it may have."),
}
_FOLDER_ENTRY = {
    "name": Field(TEXT, "base.j2"),
    "kind": Field({"enum": ["file", "folder"]}, "file"),
    "size_bytes": Field(COUNT, 812),
    "modified": Field(SECONDS, 1769860800.0),
}

_define_open(
    "Problem",
    "An error (RFC 9457). Additional members depend on the reason.",
    ["type", "title", "status"],
    **_PROBLEM,
)
_define("ProblemKind", "A kind of problem", **_PROBLEM_KIND)
_define(
    "ProblemKinds",
    "All kinds of problems",
    problems=Field(array(ref("ProblemKind")), [examples(_PROBLEM_KIND)]),
)
_define("ServiceRow", "A service and its counters", **_SERVICE)
_define_page("Services", "services", "ServiceRow", nullable(TEXT))
_define("MemoBooks", "Size and use of a result cache", **_MEMO)
_define(
    "Service",
    "A service, its settings and its workers",
    **_SERVICE,
    worker_names=Field(STRINGS, ["w1", "w2"]),
    policy=Field(record("Settings for its jobs, times in seconds; null: no limit", POLICY), examples(POLICY)),
    memo=Field({"oneOf": [ref("MemoBooks"), {"type": "null"}]}, examples(_MEMO)),
)
_define(
    "Memo",
    "A service's result cache",
    name=Field(TEXT, "echo"),
    on=Field(FLAG, True, "whether results are cached now"),
    **_MEMO,
)
_define(
    "Forgotten",
    "Number of results that were removed from the cache",
    name=Field(TEXT, "echo"),
    forgotten=Field(COUNT, 3),
)
_define("Paused", "Whether a service is paused", name=Field(TEXT, "echo"), paused=Field(FLAG, True))
_define_open("Broker", "The broker: its counters and addresses", list(_BROKER), **_BROKER)
EXAMPLES["Broker"]["zmq"] = ["tcp://127.0.0.1:5555"]
_define("WorkerRow", "A worker", **WORKER)
_define_page("Workers", "workers", "WorkerRow", nullable(COUNT))
_define("ClientRow", "A client", **_CLIENT)
_define_page("Clients", "clients", "ClientRow", nullable(COUNT))
_define("StoredJobRow", "A durable job", **_STORED_JOB)
_define_page("StoredJobs", "jobs", "StoredJobRow", nullable(TEXT))
_define(
    "StoredJob",
    "A durable job with all stored data",
    **_STORED_JOB,
    request=Field(STRINGS, ["hello"], "its frames: text, or hex for other bytes"),
    history=Field(array(ANYTHING), [{"attempt": 3, "worker": "w1", "outcome": "lost"}], "its attempts"),
    events=Field(array(ANYTHING), []),
    result=Field({}, None, "frames; by worker if there were several; null: no result"),
)
_define("Sent", "A job that was queued again", id=_STORED_JOB["id"], sent=Field(FLAG, True))
_define(
    "InventoryFiles",
    "Sources of the inventory",
    file=Field(TEXT, "inventory.yaml"),
    files=Field(STRINGS, ["inventory.yaml"]),
    workers=Field(ANYTHING, {"nornir-*": ["nornir/common.yaml"]}, "by name or pattern: files, or (here)"),
    services=Field(ANYTHING, {}, "by name: number of assigned resources"),
    error=Field(TEXT, "", "why the newest files are not in use"),
)
SCHEMAS["Inventory"] = {**ANYTHING, "description": "merged contents of the files"}
EXAMPLES["Inventory"] = {"service": "nornir", "hosts": {"r1": {"hostname": "10.0.0.1"}}}
_define("Reloaded", "Workers whose inventory has changed", changed=Field(STRINGS, ["nornir-1"]))
_define("FolderEntry", "A file or a folder", **_FOLDER_ENTRY)
_define(
    "Folder",
    "A folder",
    path=Field(TEXT, "templates"),
    entries=Field(array(ref("FolderEntry")), [examples(_FOLDER_ENTRY)]),
)
_define(
    "FileDetails",
    "A file",
    path=Field(TEXT, "templates/base.j2"),
    size_bytes=Field(COUNT, 812),
    sha256=Field(TEXT, "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"),
    md5hash=Field(TEXT, "098f6bcd4621d373cade4e832627b4f6"),
    modified=Field(SECONDS, 1769860800.0),
    etag=Field(TEXT, "1f-32c-18"),
)
_define(
    "Health",
    "The broker's health",
    status=Field(TEXT, "ok"),
    warning=Field(TEXT, "", "jobs that were lost before the start"),
)
SCHEMAS["Health"]["required"] = ["status"]
EXAMPLES["Health"] = {"status": "ok"}
_define_open(
    "Event",
    "An event of a stream",
    ["data"],
    id=Field(TEXT, "end"),
    event=Field(TEXT, "result"),
    data=Field(TEXT, "hello"),
)
